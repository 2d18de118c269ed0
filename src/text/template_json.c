/* template_json.c: the filter tojson, which is Python's json.dumps() with transformers' defaults: letters stay what they
 * are, keys keep their order, and "<" is no danger here. */
#include "base/base.h"
#include "base/error.h"
#include "text/template_builtin.h"
#include "text/unicode.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct json {
    struct template_run *run;
    struct buffer out;
    bool ascii, lines, sort_keys;
    value_t indent, between, colon;         /* texts */
    unsigned depth;
};

static int json_add(struct json *j, const struct template_value *value);

static void json_character(struct json *j, const char *bytes, size_t n, uint32_t code)
{
    static const char escapes[] = "\"\"\\\\\nn\rr\tt\bb\ff";          /* a character, and its letter behind a backslash */
    for (const char *e = escapes; *e; e += 2)
        if (*e == *bytes) {
            buffer_printf(&j->out, "\\%c", e[1]);
            return;
        }
    if (code < 0x20 || (j->ascii && code > 0x7e && code < 0x10000))
        buffer_printf(&j->out, "\\u%04x", code);
    else if (j->ascii && code >= 0x10000)
        buffer_printf(&j->out, "\\u%04x\\u%04x", 0xd800 + ((code - 0x10000) >> 10), 0xdc00 + ((code - 0x10000) & 0x3ff));
    else
        buffer_add(&j->out, bytes, n);
}

static int json_text(struct json *j, const struct template_value *text)
{
    const char *at = text->text.bytes, *end = at + text->text.n_bytes;
    buffer_add_text(&j->out, "\"");
    while (at < end) {
        uint32_t code;
        size_t n = utf8_decode(at, (size_t)(end - at), &code);
        if (code >= UTF8_INVALID && j->ascii)
            return template_fail(j->run, "text that is not UTF-8 as JSON");
        json_character(j, at, n, code);
        at += n;
    }
    buffer_add_text(&j->out, "\"");
    return template_spend(j->run, text->text.n_bytes * (j->ascii ? 3 : 1));
}

static int json_line(struct json *j)
{
    if (!j->lines)
        return 0;
    buffer_add_text(&j->out, "\n");
    for (unsigned i = 0; i < j->depth; i++)
        buffer_add(&j->out, j->indent.text.bytes, j->indent.text.n_bytes);
    return template_spend(j->run, j->indent.text.n_bytes * j->depth);
}

static int json_between(struct json *j, size_t i)
{
    if (i)
        buffer_add(&j->out, j->between.text.bytes, j->between.text.n_bytes);
    int err = json_line(j);
    return err < 0 ? err : template_spend(j->run, j->between.text.n_bytes + j->colon.text.n_bytes);
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
    if (list->n && !err)
        err = json_line(j);
    buffer_add_text(&j->out, "]");
    return err;
}

/* Python has keys of other kinds, which JSON writes as strings. */
static int json_key(struct json *j, const struct template_value *key)
{
    int err;
    if (key->kind == VALUE_STRING)
        return json_text(j, key);
    buffer_add_text(&j->out, "\"");
    err = json_add(j, key);
    buffer_add_text(&j->out, "\"");
    return err;
}

static int by_key(const void *a, const void *b)
{
    const struct template_value *x = &((const struct template_entry *)a)->key, *y = &((const struct template_entry *)b)->key;
    int sign = memcmp(x->text.bytes, y->text.bytes, MIN(x->text.n_bytes, y->text.n_bytes));
    return sign ? sign : (x->text.n_bytes > y->text.n_bytes) - (x->text.n_bytes < y->text.n_bytes);
}

static int sorted_entries(struct json *j, const struct template_map *map, struct template_entry **sorted)
{
    *sorted = (struct template_entry *)(void *)template_alloc(j->run, map->n * sizeof **sorted);
    if (!*sorted)
        return ERR_FAILED;
    if (map->n)
        memcpy(*sorted, map->entries, map->n * sizeof **sorted);
    for (size_t i = 0; i < map->n; i++)
        if (map->entries[i].key.kind != VALUE_STRING)
            return template_fail(j->run, "sorting keys that are no strings is not supported");
    qsort(*sorted, map->n, sizeof **sorted, by_key);
    return 0;
}

static int json_map(struct json *j, const struct template_map *map)
{
    struct template_entry *entries = map->entries;
    int err = j->sort_keys ? sorted_entries(j, map, &entries) : 0;
    buffer_add_text(&j->out, "{");
    j->depth++;
    for (size_t i = 0; i < map->n && !err; i++)
        if ((err = json_between(j, i)) == 0 && (err = json_key(j, &entries[i].key)) == 0) {
            buffer_add(&j->out, j->colon.text.bytes, j->colon.text.n_bytes);
            err = json_add(j, &entries[i].value);
        }
    j->depth--;
    if (map->n && !err)
        err = json_line(j);
    buffer_add_text(&j->out, "}");
    return err;
}

static int json_float(struct json *j, const struct template_value *value)
{
    char text[32];
    double real = value->real;
    bool finite = real - real <= 0;
    size_t n = template_float_text(real, text);
    if (value->written) {
        buffer_add_text(&j->out, value->written);
        return template_spend(j->run, strlen(value->written));
    }
    if (finite)
        buffer_add(&j->out, text, n);
    else
        buffer_add_text(&j->out, real != real ? "NaN" : real > 0 ? "Infinity" : "-Infinity");
    return 0;
}

static int json_add(struct json *j, const struct template_value *value)
{
    int err = template_spend(j->run, 0);
    if (err < 0)
        return err;
    switch (value->kind) {
    case VALUE_NONE:   buffer_add_text(&j->out, "null"); return 0;
    case VALUE_BOOL:   buffer_add_text(&j->out, value->flag ? "true" : "false"); return 0;
    case VALUE_INT:    buffer_printf(&j->out, "%" PRId64, value->number); return 0;
    case VALUE_FLOAT:  return json_float(j, value);
    case VALUE_STRING: return json_text(j, value);
    case VALUE_MAP:    return json_map(j, value->map);
    case VALUE_LIST:
        if (value->list->type <= LIST_TUPLE)
            return json_list(j, value->list);
        break;
    default:           break;
    }
    return template_fail(j->run, "tojson does not work for a value of type %s", template_kind_name(value->kind));
}

/* A number of blanks, or a string. */
static int set_indent(struct json *j, const value_t *indent)
{
    int64_t n;
    if (!template_is_given(indent))
        return 0;
    j->lines = true;
    j->indent = *indent;
    if (indent->kind == VALUE_STRING)
        return 0;
    int err = template_int_or(j->run, indent, 0, &n);
    if (err < 0 || n > 1000)
        return err < 0 ? err : template_fail(j->run, "tojson with this indent is not supported");
    char *blanks = template_alloc(j->run, (size_t)MAX(n, 0));
    if (!blanks)
        return ERR_FAILED;
    memset(blanks, ' ', (size_t)MAX(n, 0));
    j->indent = template_value_text(blanks, (size_t)MAX(n, 0));
    return 0;
}

/* What stands between items, and behind a key. */
static int set_separators(struct json *j, const value_t *separators)
{
    j->between = j->lines ? template_value_text(",", 1) : template_value_text(", ", 2);
    j->colon = template_value_text(": ", 2);
    if (!template_is_given(separators))
        return 0;
    if (separators->kind != VALUE_LIST || separators->list->type > LIST_TUPLE || separators->list->n != 2)
        return template_fail(j->run, "the separators of tojson must be two strings");
    j->between = separators->list->items[0];
    j->colon = separators->list->items[1];
    int err = template_want_text(j->run, &j->between);
    return err < 0 ? err : template_want_text(j->run, &j->colon);
}

/* The params are those of transformers' own tojson, not of jinja2's. */
int template_filter_tojson(struct template_run *run, const struct template_value *a, struct template_value *out)
{
    struct json j = { .run = run, .ascii = template_value_is_true(&a[1]), .sort_keys = template_value_is_true(&a[4]) };
    int err;
    if ((err = set_indent(&j, &a[2])) == 0 && (err = set_separators(&j, &a[3])) == 0)
        err = json_add(&j, &a[0]);
    return template_take_text(run, &j.out, err, out);
}
