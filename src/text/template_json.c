/* template_json.c: the filter tojson, as Python's json.dumps(ensure_ascii=False): letters stay what they are, keys keep
 * their order, and "<" is no danger here. */
#include "base/buffer.h"
#include "base/error.h"
#include "text/template_node.h"

#include <inttypes.h>

struct json {
    struct template_run *run;
    struct buffer out;
    int64_t indent;             /* -1: all on one line */
    unsigned depth;
};

static int json_add(struct json *j, const struct template_value *value);

static void json_text(struct buffer *out, const struct template_value *text)
{
    static const char escapes[] = "\"\"\\\\\nn\rr\tt\bb\ff";          /* a character, and its letter behind a backslash */
    buffer_add_text(out, "\"");
    for (size_t i = 0; i < text->text.n_bytes; i++) {
        char c = text->text.bytes[i];
        const char *escape = NULL;
        for (const char *e = escapes; *e && !escape; e += 2)
            escape = *e == c ? e : NULL;
        if (escape)
            buffer_printf(out, "\\%c", escape[1]);
        else if ((unsigned char)c < 0x20)
            buffer_printf(out, "\\u%04x", c);
        else
            buffer_add(out, &c, 1);
    }
    buffer_add_text(out, "\"");
}

static void json_line(struct json *j)
{
    if (j->indent < 0)
        return;
    buffer_add_text(&j->out, "\n");
    for (int64_t i = 0; i < j->indent * (int64_t)j->depth; i++)
        buffer_add_text(&j->out, " ");
}

static int json_between(struct json *j, size_t i)
{
    if (i)
        buffer_add_text(&j->out, j->indent < 0 ? ", " : ",");
    json_line(j);
    return template_spend(j->run, j->indent < 0 ? 0 : (size_t)j->indent * j->depth);
}

static int json_list(struct json *j, const struct template_list *list)
{
    int err = 0;
    buffer_add_text(&j->out, "[");
    j->depth++;
    for (size_t i = 0; i < list->n && !err; i++)
        if ((err = json_between(j, i)) == 0)
            err = json_add(j, &list->items[i]);
    j->depth--;
    if (list->n)
        json_line(j);
    buffer_add_text(&j->out, "]");
    return err;
}

static int json_map(struct json *j, const struct template_map *map)
{
    int err = 0;
    buffer_add_text(&j->out, "{");
    j->depth++;
    for (size_t i = 0; i < map->n && !err; i++)
        if ((err = json_between(j, i)) == 0) {
            json_text(&j->out, &map->entries[i].key);
            buffer_add_text(&j->out, ": ");
            err = json_add(j, &map->entries[i].value);
        }
    j->depth--;
    if (map->n)
        json_line(j);
    buffer_add_text(&j->out, "}");
    return err;
}

static int json_add(struct json *j, const struct template_value *value)
{
    int err = template_spend(j->run, value->kind == VALUE_STRING ? value->text.n_bytes : 0);
    if (err < 0)
        return err;
    switch (value->kind) {
    case VALUE_NONE:   buffer_add_text(&j->out, "null"); return 0;
    case VALUE_BOOL:   buffer_add_text(&j->out, value->flag ? "true" : "false"); return 0;
    case VALUE_INT:    buffer_printf(&j->out, "%" PRId64, value->number); return 0;
    case VALUE_STRING: json_text(&j->out, value); return 0;
    case VALUE_LIST:   return json_list(j, value->list);
    case VALUE_MAP:    return json_map(j, value->map);
    default:           return template_fail(j->run, "tojson does not work for a value of type %s", template_kind_name(value->kind));
    }
}

/* The params are those of transformers' own tojson, not of jinja2's. */
int template_tojson(struct template_run *run, const struct template_value *a, struct template_value *out)
{
    struct json j = { .run = run, .indent = -1 };
    int err = 0;
    if (template_value_is_true(&a[1]))
        return template_fail(run, "tojson in ASCII only is not supported");
    if (a[2].kind != VALUE_ABSENT && a[2].kind != VALUE_NONE) {
        if (a[2].kind != VALUE_INT || a[2].number < 0 || a[2].number > 64)
            return template_fail(run, "tojson with this indent is not supported");
        j.indent = a[2].number;
    }
    if ((err = json_add(&j, &a[0])) == 0)
        err = j.out.failed ? error_set(ERR_NO_MEMORY, "no memory to render a chat template") :
              template_new_text(run, j.out.bytes, j.out.size, out);
    buffer_release(&j.out);
    return err;
}
