/* template_text.c: Python's str() and repr() of values. */
#include "base/base.h"
#include "base/error.h"
#include "text/template_node.h"
#include "text/unicode.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The fewest digits that read back as the same number; an exponent from 1e16 on and below 1e-4. */
size_t template_float_text(double real, char text[32])
{
    char digits[32], *dot;
    int n_digits = 1, exponent;
    if (real != real)
        return (size_t)snprintf(text, 32, "nan");
    if (real > 1.7976931348623157e308 || real < -1.7976931348623157e308)
        return (size_t)snprintf(text, 32, real > 0 ? "inf" : "-inf");
    do
        snprintf(digits, sizeof digits, "%.*e", n_digits - 1, real);
    while (strtod(digits, NULL) != real && n_digits++ < 17);
    exponent = atoi(strchr(digits, 'e') + 1);
    if (exponent >= -4 && exponent < 16)
        return (size_t)snprintf(text, 32, "%.*f", MAX(n_digits - 1 - exponent, 1), real);
    dot = strchr(digits, 'e');
    return (size_t)snprintf(text, 32, "%.*se%c%02d", (int)(dot - digits), digits, exponent < 0 ? '-' : '+', abs(exponent));
}

static void repr_character(const char *bytes, size_t n, uint32_t code, char quote, struct buffer *out)
{
    static const char escapes[] = "\nn\rr\tt\\\\";
    for (const char *e = escapes; *e; e += 2)
        if (n == 1 && *e == *bytes) {
            buffer_printf(out, "\\%c", e[1]);
            return;
        }
    if (n == 1 && *bytes == quote)
        buffer_printf(out, "\\%c", quote);
    else if (code < 0x20 || (code >= 0x7f && (code < 0xa0 || !template_is_printable(code))))
        buffer_printf(out, code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x", code);
    else
        buffer_add(out, bytes, n);
}

static int repr_text(struct template_run *run, const struct template_value *text, struct buffer *out)
{
    const char *bytes = text->text.bytes, *end = bytes + text->text.n_bytes;
    bool single = memchr(bytes, '\'', text->text.n_bytes), twice = memchr(bytes, '"', text->text.n_bytes);
    char quote = single && !twice ? '"' : '\'';
    buffer_add(out, &quote, 1);
    while (bytes < end) {
        uint32_t code;
        size_t n = utf8_decode(bytes, (size_t)(end - bytes), &code);
        if (code >= UTF8_INVALID)
            return template_fail(run, "text that is not UTF-8 in a list or dict that is printed");
        repr_character(bytes, n, code, quote, out);
        bytes += n;
    }
    buffer_add(out, &quote, 1);
    return template_spend(run, 2 * text->text.n_bytes);
}

static int repr_items(struct template_run *run, const struct template_list *list, const char *before, const char *after,
                      struct buffer *out)
{
    int err = 0;
    buffer_add_text(out, before);
    for (size_t i = 0; i < list->n && !err; i++) {
        buffer_add_text(out, i ? ", " : "");
        err = template_repr(run, &list->items[i], out);
    }
    if (list->type == LIST_TUPLE && list->n == 1)
        buffer_add_text(out, ",");
    buffer_add_text(out, after);
    return err;
}

static int repr_list(struct template_run *run, const struct template_list *list, struct buffer *out)
{
    switch (list->type) {
    case LIST_LIST:   return repr_items(run, list, "[", "]", out);
    case LIST_TUPLE:  return repr_items(run, list, "(", ")", out);
    case LIST_KEYS:   return repr_items(run, list, "dict_keys([", "])", out);
    case LIST_VALUES: return repr_items(run, list, "dict_values([", "])", out);
    case LIST_ITEMS:  return repr_items(run, list, "dict_items([", "])", out);
    default:          return template_fail(run, "printing a range or a generator is not supported");
    }
}

static int repr_map(struct template_run *run, const struct template_map *map, struct buffer *out)
{
    int err = 0;
    buffer_add_text(out, "{");
    for (size_t i = 0; i < map->n && !err; i++) {
        buffer_add_text(out, i ? ", " : "");
        if ((err = template_repr(run, &map->entries[i].key, out)) == 0) {
            buffer_add_text(out, ": ");
            err = template_repr(run, &map->entries[i].value, out);
        }
    }
    buffer_add_text(out, "}");
    return err;
}

int template_repr(struct template_run *run, const struct template_value *value, struct buffer *out)
{
    struct template_value text;
    int err = template_spend(run, 0);
    if (err < 0)
        return err;
    switch (value->kind) {
    case VALUE_STRING:
        if (value->markup)
            return template_fail(run, "printing a list with text that was escaped or is safe is not supported");
        return repr_text(run, value, out);
    case VALUE_LIST:      return repr_list(run, value->list, out);
    case VALUE_MAP:       return repr_map(run, value->map, out);
    case VALUE_UNDEFINED: buffer_add_text(out, "Undefined"); return 0;
    case VALUE_NAMESPACE:
        if (++run->depth > TEMPLATE_MAX_RECURSION)          /* it may hold itself */
            err = template_fail(run, "a namespace nested too deep to print");
        buffer_add_text(out, "<Namespace ");
        if (!err)
            err = repr_map(run, value->map, out);
        buffer_add_text(out, ">");
        run->depth--;
        return err;
    default:
        break;
    }
    if ((err = template_to_text(run, value, &text)) == 0)
        buffer_add(out, text.text.bytes, text.text.n_bytes);
    return err;
}

int template_to_text(struct template_run *run, const struct template_value *value, struct template_value *text)
{
    char digits[32];
    struct buffer built = { 0 };
    switch (value->kind) {
    case VALUE_STRING:    *text = *value; return 0;
    case VALUE_UNDEFINED: *text = template_value_text("", 0); return 0;
    case VALUE_NONE:      *text = template_value_text("None", 4); return 0;
    case VALUE_BOOL:
        *text = value->flag ? template_value_text("True", 4) : template_value_text("False", 5);
        return 0;
    case VALUE_INT:
        snprintf(digits, sizeof digits, "%" PRId64, value->number);
        return template_new_text(run, digits, strlen(digits), text);
    case VALUE_FLOAT:
        if (value->written)
            return template_new_text(run, value->written, strlen(value->written), text);
        return template_new_text(run, digits, template_float_text(value->real, digits), text);
    case VALUE_LIST:
    case VALUE_MAP:
    case VALUE_NAMESPACE:
        return template_take_text(run, &built, template_repr(run, value, &built), text);
    case VALUE_LOOP:
        buffer_printf(&built, "<LoopContext %zu/%zu>", value->loop->index0 + 1, value->loop->list->n);
        return template_take_text(run, &built, 0, text);
    case VALUE_MACRO:
        buffer_add_text(&built, "<Macro ");
        repr_text(run, &value->macro->node->value, &built);
        buffer_add_text(&built, ">");
        return template_take_text(run, &built, 0, text);
    default:
        return template_fail(run, "printing a value of type %s is not supported", template_kind_name(value->kind));
    }
}
