/* template_format.c: "%s" % values and "{}".format(values), as Python has them, but for what hardly anybody uses:
 * that is an error. */
#include "base/base.h"
#include "base/error.h"
#include "text/template_builtin.h"
#include "text/unicode.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* How one value is to be written. */
struct spec {
    char fill[5], align;        /* '<', '>', '^', '=', or 0 for what the kind of value has */
    char sign;                  /* '-', '+' or ' ' */
    bool alternate, zero;
    char group;                 /* ',' or '_' between thousands, or 0 */
    int64_t width, precision;   /* precision: -1 for none */
    char type;                  /* 0 for none */
};

#define MOST_DIGITS 64

static int unsupported(run_t *run)
{
    return template_fail(run, "a format of this kind is not supported");
}

/* Digits at *at as a number of at most a million. */
static bool read_number(const char **at, const char *end, int64_t *number)
{
    bool any = false;
    for (*number = 0; *at < end && **at >= '0' && **at <= '9'; ++*at, any = true)
        *number = MIN(*number * 10 + (**at - '0'), (int64_t)1000000);
    return any;
}

/* `prefix` (a sign, 0x) and body, filled to the width. */
static int put(run_t *run, struct buffer *out, const struct spec *spec, const char *prefix, const char *body, size_t n, char align)
{
    size_t n_prefix = strlen(prefix), n_shown = n_prefix + utf8_count(body, n);
    size_t lack = spec->width > (int64_t)n_shown ? (size_t)spec->width - n_shown : 0;
    size_t left = align == '<' ? 0 : align == '^' ? lack / 2 : lack;
    int err = template_spend(run, 16 * lack + n);
    if (err < 0)
        return err;
    if (align == '=')
        buffer_add(out, prefix, n_prefix);
    for (size_t i = 0; i < left; i++)
        buffer_add_text(out, spec->fill);
    if (align != '=')
        buffer_add(out, prefix, n_prefix);
    buffer_add(out, body, n);
    for (size_t i = left; i < lack; i++)
        buffer_add_text(out, spec->fill);
    return 0;
}

static int put_text(run_t *run, struct buffer *out, const struct spec *spec, const value_t *text)
{
    size_t n = text->text.n_bytes;
    if (spec->precision >= 0) {
        n = 0;
        for (int64_t i = 0; i < spec->precision && n < text->text.n_bytes; i++) {
            uint32_t code;
            n += utf8_decode(text->text.bytes + n, text->text.n_bytes - n, &code);
        }
    }
    return put(run, out, spec, "", text->text.bytes, n, spec->align ? spec->align : '<');
}

/* A separator after every `every` digits of the whole part, from the right. */
static void group_digits(char *digits, char separator, size_t every)
{
    char grouped[2 * MOST_DIGITS + 700];
    size_t whole = strspn(digits, "0123456789abcdefABCDEF"), n = 0;
    for (size_t i = 0; i < whole; i++) {
        if (i && (whole - i) % every == 0)
            grouped[n++] = separator;
        grouped[n++] = digits[i];
    }
    strcpy(grouped + n, digits + whole);
    strcpy(digits, grouped);
}

static const char *sign_of(const struct spec *spec, bool negative)
{
    return negative ? "-" : spec->sign == '+' ? "+" : spec->sign == ' ' ? " " : "";
}

static int put_number(run_t *run, struct buffer *out, const struct spec *spec, bool negative, const char *base, char *digits)
{
    char prefix[8];
    snprintf(prefix, sizeof prefix, "%s%s", sign_of(spec, negative), spec->alternate ? base : "");
    if (spec->group && (spec->zero || spec->fill[0] == '0'))
        return unsupported(run);
    if (spec->group)
        group_digits(digits, spec->group, *base ? 4 : 3);
    return put(run, out, spec, prefix, digits, strlen(digits), spec->align ? spec->align : '>');
}

static int put_integer(run_t *run, struct buffer *out, const struct spec *spec, int64_t number)
{
    char digits[2 * MOST_DIGITS + 700];
    uint64_t magnitude = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    const char *base = "";
    size_t n = 0;
    switch (spec->type) {
    case 'x': snprintf(digits, sizeof digits, "%" PRIx64, magnitude); base = "0x"; break;
    case 'X': snprintf(digits, sizeof digits, "%" PRIX64, magnitude); base = "0X"; break;
    case 'o': snprintf(digits, sizeof digits, "%" PRIo64, magnitude); base = "0o"; break;
    case 'b':
        base = "0b";
        for (int bit = 63; bit >= 0; bit--)
            if (magnitude >> bit || bit == 0)
                digits[n++] = (char)('0' + (magnitude >> bit & 1));
        digits[n] = 0;
        break;
    default:  snprintf(digits, sizeof digits, "%" PRIu64, magnitude); break;
    }
    return put_number(run, out, spec, number < 0, base, digits);
}

static int put_float(run_t *run, struct buffer *out, const struct spec *spec, double number)
{
    char digits[2 * MOST_DIGITS + 700], form[8];
    bool percent = spec->type == '%';
    int precision = spec->precision < 0 ? 6 : (int)spec->precision;
    if (precision > MOST_DIGITS || spec->alternate)
        return unsupported(run);
    if (percent)
        number *= 100;
    snprintf(form, sizeof form, "%%.*%c", percent ? 'f' : spec->type);
    snprintf(digits, sizeof digits, form, precision, fabs(number));
    if (percent)
        strcat(digits, "%");
    return put_number(run, out, spec, signbit(number) && number == number, "", digits);
}

/* ---- %: the older way ---- */

struct percent {
    run_t *run;
    const value_t *values;
    size_t used;                /* of a tuple, or of the one value */
    bool named;
    struct buffer out;
};

static int next_value(struct percent *p, value_t *value)
{
    bool tuple = p->values->kind == VALUE_LIST && p->values->list->type == LIST_TUPLE;
    if (p->used >= (tuple ? p->values->list->n : 1))
        return template_fail(p->run, "not enough values for a format");
    *value = tuple ? p->values->list->items[p->used] : *p->values;
    p->used++;
    return 0;
}

static int named_value(struct percent *p, const char **at, const char *end, value_t *value)
{
    const char *close = memchr(*at, ')', (size_t)(end - *at));
    if (!close)
        return template_fail(p->run, "a format with a name without an end");
    if (p->values->kind != VALUE_MAP)
        return template_fail(p->run, "a format with names wants a dict");
    const value_t *found = template_map_find(p->values->map, *at, (size_t)(close - *at));
    if (!found)
        return template_fail(p->run, "\"%.*s\" is not there to be formatted", (int)MIN(close - *at, 40), *at);
    *value = *found;
    *at = close + 1;
    p->named = true;
    return template_spend(p->run, 8 * p->values->map->n);
}

static int percent_one(struct percent *p, const struct spec *spec, const value_t *value)
{
    value_t text;
    struct buffer built = { 0 };
    int err;
    switch (spec->type) {
    case 's':
        return (err = template_to_text(p->run, value, &text)) < 0 ? err : put_text(p->run, &p->out, spec, &text);
    case 'r':
        err = template_take_text(p->run, &built, template_repr(p->run, value, &built), &text);
        return err < 0 ? err : put_text(p->run, &p->out, spec, &text);
    case 'd': case 'i': case 'u':
        if (value->kind == VALUE_FLOAT && fabs(value->real) < 9e18)
            return put_integer(p->run, &p->out, spec, (int64_t)value->real);
        /* fall through */
    case 'x': case 'X': case 'o':
        if (!template_is_integer(value))
            return template_fail(p->run, "an integer is wanted, not a value of type %s", template_kind_name(value->kind));
        return spec->precision >= 0 ? unsupported(p->run) : put_integer(p->run, &p->out, spec, template_as_integer(value));
    case 'e': case 'E': case 'f': case 'F': case 'g': case 'G':
        if (!template_is_number(value))
            return template_fail(p->run, "a number is wanted, not a value of type %s", template_kind_name(value->kind));
        return put_float(p->run, &p->out, spec, template_as_float(value));
    default:
        return unsupported(p->run);
    }
}

static int percent_spec(struct percent *p, const char **at, const char *end)
{
    struct spec spec = { .fill = " ", .align = '>', .sign = '-', .precision = -1 };
    value_t value = { 0 };
    int err = 0;
    bool has_value = *at < end && **at == '(';
    if (has_value) {
        ++*at;
        err = named_value(p, at, end, &value);
    }
    for (; !err && *at < end && **at && strchr("-+ #0", **at); ++*at) {
        spec.align = **at == '-' ? '<' : spec.align;
        spec.sign = **at == '+' || (**at == ' ' && spec.sign != '+') ? **at : spec.sign;
        spec.alternate |= **at == '#';
        spec.zero |= **at == '0';
    }
    if (err == 0)
        read_number(at, end, &spec.width);
    if (!err && *at < end && **at == '.') {
        ++*at;
        read_number(at, end, &spec.precision);
    }
    if (err < 0 || *at == end)
        return err < 0 ? err : template_fail(p->run, "a format without an end");
    spec.type = *(*at)++;
    if (spec.type == '%') {
        buffer_add_text(&p->out, "%");
        return 0;
    }
    if (spec.zero && spec.align != '<' && spec.type != 's' && spec.type != 'r') {
        strcpy(spec.fill, "0");
        spec.align = '=';
    }
    if (!has_value)
        err = next_value(p, &value);
    return err < 0 ? err : percent_one(p, &spec, &value);
}

int template_percent(run_t *run, const value_t *format, const value_t *values, value_t *out)
{
    struct percent p = { .run = run, .values = values };
    const char *at = format->text.bytes, *end = at + format->text.n_bytes;
    int err = template_spend(run, format->text.n_bytes);
    while (at < end && !err) {
        const char *sign = memchr(at, '%', (size_t)(end - at));
        buffer_add(&p.out, at, (size_t)((sign ? sign : end) - at));
        at = sign ? sign + 1 : end;
        if (sign)
            err = percent_spec(&p, &at, end);
    }
    bool tuple = values->kind == VALUE_LIST && values->list->type == LIST_TUPLE;
    bool other = values->kind == VALUE_MAP || values->kind == VALUE_LIST || values->kind == VALUE_UNDEFINED;
    size_t n = tuple ? values->list->n : other ? 0 : 1;     /* what Python could look names up in need not be used */
    if (!err && p.used < n && !p.named)
        err = template_fail(run, "not all values of a format are used");
    return template_take_text(run, &p.out, err, out);
}

/* ---- {}: the newer way ---- */

struct braces {
    run_t *run;
    const struct template_arguments *values;
    int64_t next;               /* -1 once a number was given */
    struct buffer out;
};

static bool is_align(char c)
{
    return c && strchr("<>^=", c);
}

/* [[fill]align][sign][#][0][width][,][.precision][type] */
static int read_spec(run_t *run, const char *at, const char *end, struct spec *spec)
{
    uint32_t code;
    size_t n_first = at < end ? utf8_decode(at, (size_t)(end - at), &code) : 1;
    *spec = (struct spec){ .fill = " ", .sign = '-', .precision = -1 };
    if (at + n_first < end && is_align(at[n_first])) {
        memcpy(spec->fill, at, n_first);
        spec->fill[n_first] = 0;
        spec->align = at[n_first];
        at += n_first + 1;
    } else if (at < end && is_align(*at)) {
        spec->align = *at++;
    }
    if (at < end && (*at == '+' || *at == '-' || *at == ' '))
        spec->sign = *at++;
    if (at < end && *at == '#')
        spec->alternate = at++;
    if (at < end && *at == '0') {
        spec->zero = at++;
        if (!spec->align) {
            strcpy(spec->fill, "0");
            spec->align = '=';
        }
    }
    read_number(&at, end, &spec->width);
    if (at < end && (*at == ',' || *at == '_'))
        spec->group = *at++;
    if (at < end && *at == '.') {
        at++;
        if (!read_number(&at, end, &spec->precision))
            return unsupported(run);
    }
    if (at < end)
        spec->type = *at++;
    return at == end ? 0 : unsupported(run);
}

static int format_value(struct braces *b, const value_t *value, const char *at, const char *end)
{
    struct spec spec;
    value_t text;
    int err = read_spec(b->run, at, end, &spec);
    bool number = template_is_number(value);
    if (err < 0)
        return err;
    if (at == end || (value->kind == VALUE_STRING && (!spec.type || spec.type == 's'))) {
        if (value->kind == VALUE_STRING && (spec.align == '=' || spec.sign != '-' || spec.alternate || spec.group))
            return unsupported(b->run);
        return (err = template_to_text(b->run, value, &text)) < 0 ? err : put_text(b->run, &b->out, &spec, &text);
    }
    if (template_is_integer(value) && spec.precision < 0 && (!spec.type || strchr("dxXob", spec.type))) {
        if (spec.group == ',' && spec.type && spec.type != 'd')
            return unsupported(b->run);
        return put_integer(b->run, &b->out, &spec, template_as_integer(value));
    }
    if (number && spec.type && strchr("eEfFgG%", spec.type))
        return put_float(b->run, &b->out, &spec, template_as_float(value));
    return unsupported(b->run);
}

/* The value that "name.attribute[index]" means. */
static int find_field(struct braces *b, const char *at, const char *end, value_t *value)
{
    const char *stop = at;
    int64_t number;
    while (stop < end && *stop != '.' && *stop != '[')
        stop++;
    const char *digits = at;
    bool is_number = read_number(&digits, stop, &number) && digits == stop;
    if (at == stop || is_number) {
        if ((at == stop && b->next < 0) || (is_number && b->next > 0))
            return template_fail(b->run, "a format with some fields numbered and some not");
        number = at == stop ? b->next++ : number;
        b->next = is_number ? -1 : b->next;
        if (number >= (int64_t)b->values->list.list->n)
            return template_fail(b->run, "not enough values for a format");
        *value = b->values->list.list->items[number];
    } else {
        const value_t *found = b->values->map.kind == VALUE_MAP ? template_map_find(b->values->map.map, at, (size_t)(stop - at)) : NULL;
        if (!found)
            return template_fail(b->run, "\"%.*s\" is not there to be formatted", (int)MIN(stop - at, 40), at);
        *value = *found;
    }
    while (stop < end) {
        bool bracket = *stop == '[';
        const char *start = ++stop, *rest;
        while (stop < end && (bracket ? *stop != ']' : *stop != '.' && *stop != '['))
            stop++;
        if (start == stop || (bracket && stop == end))
            return template_fail(b->run, "a field of a format without a name");
        value_t key = template_value_text(start, (size_t)(stop - start));
        rest = start;
        if (bracket && read_number(&rest, stop, &number) && rest == stop)
            key = template_value_int(number);
        int err = bracket ? template_get_item(b->run, value, &key, value) : template_get_attribute(b->run, value, &key, value);
        if (err < 0)
            return err;
        stop += bracket;
    }
    return template_spend(b->run, (size_t)(end - at));
}

/* Behind "{", up to its "}". */
static int format_field(struct braces *b, const char **at, const char *end)
{
    const char *close = memchr(*at, '}', (size_t)(end - *at)), *name_end, *spec;
    value_t value, text;
    char conversion = 0;
    int err;
    if (!close)
        return template_fail(b->run, "a field of a format without an end");
    if (memchr(*at, '{', (size_t)(close - *at)))
        return unsupported(b->run);
    spec = memchr(*at, ':', (size_t)(close - *at));
    name_end = spec ? spec : close;
    const char *mark = memchr(*at, '!', (size_t)(name_end - *at));
    if (mark) {
        if (name_end - mark != 2)
            return unsupported(b->run);
        conversion = mark[1];
        name_end = mark;
    }
    if ((err = find_field(b, *at, name_end, &value)) < 0)
        return err;
    if (conversion == 'r') {
        struct buffer built = { 0 };
        err = template_take_text(b->run, &built, template_repr(b->run, &value, &built), &value);
    } else if (conversion == 's') {
        err = template_to_text(b->run, &value, &text);
        value = text;
    } else if (conversion) {
        err = unsupported(b->run);
    }
    *at = close + 1;
    return err < 0 ? err : format_value(b, &value, spec ? spec + 1 : close, close);
}

int template_format(run_t *run, const value_t *format, const struct template_arguments *values, value_t *out)
{
    struct braces b = { .run = run, .values = values };
    const char *at = format->text.bytes, *end = at + format->text.n_bytes;
    int err = template_spend(run, format->text.n_bytes);
    while (at < end && !err) {
        char c = *at++;
        bool twice = at < end && *at == c;
        if (c != '{' && c != '}') {
            buffer_add(&b.out, &c, 1);
        } else if (twice) {
            buffer_add(&b.out, &c, 1);
            at++;
        } else if (c == '{') {
            err = format_field(&b, &at, end);
        } else {
            err = template_fail(run, "a format with a \"}\" alone");
        }
    }
    return template_take_text(run, &b.out, err, out);
}
