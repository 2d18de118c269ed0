/* template_filter.c: filters of one value: text and numbers, as jinja2 3.1 has them. */
#include "base/base.h"
#include "base/error.h"
#include "text/template_builtin.h"
#include "text/unicode.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- text ---- */

int template_filter_trim(run_t *run, const value_t *a, value_t *out)
{
    int err = template_soft_text(run, &a[0], out);
    return err < 0 ? err : template_strip(run, *out, &a[1], true, true, out);
}

int template_filter_upper(run_t *run, const value_t *a, value_t *out)
{
    int err = template_soft_text(run, &a[0], out);
    return err < 0 ? err : template_to_upper(run, out, out);
}

int template_filter_lower(run_t *run, const value_t *a, value_t *out)
{
    int err = template_soft_text(run, &a[0], out);
    return err < 0 ? err : template_to_lower(run, out, out);
}

int template_filter_capitalize(run_t *run, const value_t *a, value_t *out)
{
    int err = template_soft_text(run, &a[0], out);
    return err < 0 ? err : template_capitalize(run, out, out);
}

int template_filter_string(run_t *run, const value_t *a, value_t *out)
{
    return template_soft_text(run, &a[0], out);
}

int template_filter_center(run_t *run, const value_t *a, value_t *out)
{
    int64_t width;
    int err;
    if ((err = template_soft_text(run, &a[0], out)) < 0 || (err = template_int_or(run, &a[1], 80, &width)) < 0)
        return err;
    return template_center(run, out, width, out);
}

int template_filter_replace(run_t *run, const value_t *a, value_t *out)
{
    value_t text, old, new;
    int64_t most;
    int err;
    if ((err = template_soft_text(run, &a[0], &text)) < 0 || (err = template_to_text(run, &a[1], &old)) < 0 ||
        (err = template_to_text(run, &a[2], &new)) < 0 || (err = template_int_or(run, &a[3], -1, &most)) < 0)
        return err;
    return template_replace(run, &text, &old, &new, most, out);
}

int template_filter_indent(run_t *run, const value_t *a, value_t *out)
{
    static const value_t newline = { .kind = VALUE_STRING, .text = { "\n", 1 } };
    struct buffer built = { 0 }, with = { 0 };
    value_t lines, whole;
    int64_t width = 4;
    int err = template_want_text(run, &a[0]);
    if (err == 0 && a[1].kind == VALUE_STRING)
        buffer_add(&with, a[1].text.bytes, a[1].text.n_bytes);
    else if (err == 0 && (err = template_int_or(run, &a[1], 4, &width)) == 0 && (err = template_spend(run, (size_t)MAX(width, 0))) == 0)
        for (; width > 0; width--)
            buffer_add(&with, " ", 1);
    if (err == 0 && (err = template_operate(run, TEMPLATE_ADD, &a[0], &newline, &whole)) == 0)
        err = template_split_lines(run, &whole, false, &lines);
    for (size_t i = 0; err == 0 && i < lines.list->n; i++) {
        const value_t *line = &lines.list->items[i];
        bool indents = i ? line->text.n_bytes || template_value_is_true(&a[3]) : template_value_is_true(&a[2]);
        err = template_spend(run, with.size + line->text.n_bytes);
        buffer_add(&built, "\n", i != 0);
        if (indents)
            buffer_add(&built, with.bytes, with.size);
        buffer_add(&built, line->text.bytes, line->text.n_bytes);
    }
    buffer_release(&with);
    return template_take_text(run, &built, err, out);
}

int template_filter_truncate(run_t *run, const value_t *a, value_t *out)
{
    value_t end = a[3].kind == VALUE_ABSENT ? template_value_text("...", 3) : a[3], kept;
    int64_t length, leeway;
    size_t n = 0, n_end = 0, at = 0;
    int err;
    if ((err = template_want_text(run, &a[0])) < 0 || (err = template_want_text(run, &end)) < 0 ||
        (err = template_int_or(run, &a[1], 255, &length)) < 0 || (err = template_int_or(run, &a[4], 5, &leeway)) < 0 ||
        (err = template_length(run, &a[0], &n)) < 0 || (err = template_length(run, &end, &n_end)) < 0)
        return err;
    if (length < (int64_t)n_end || leeway < 0)
        return template_fail(run, "truncate() with a length that its end does not fit, or a leeway below 0");
    *out = a[0];
    if (length > INT64_MAX - leeway || (int64_t)n <= length + leeway)
        return 0;
    for (int64_t i = 0; i < length - (int64_t)n_end; i++) {
        uint32_t code;
        at += utf8_decode(a[0].text.bytes + at, a[0].text.n_bytes - at, &code);
    }
    if (!template_value_is_true(&a[2])) {
        const char *blank = at ? memrchr(a[0].text.bytes, ' ', at) : NULL;
        at = blank ? (size_t)(blank - a[0].text.bytes) : at;
    }
    kept = template_value_text(a[0].text.bytes, at);
    return template_operate(run, TEMPLATE_CONCATENATE, &kept, &end, out);
}

int template_filter_wordcount(run_t *run, const value_t *a, value_t *out)
{
    value_t text;
    int64_t n = 0;
    bool in_word = false;
    int err = template_soft_text(run, &a[0], &text);
    for (size_t i = 0, n_code; err == 0 && i < text.text.n_bytes; i += n_code) {
        uint32_t code;
        n_code = utf8_decode(text.text.bytes + i, text.text.n_bytes - i, &code);
        bool letter = unicode_class(code) & (CHAR_LETTER | CHAR_NUMBER) || code == '_';
        n += letter && !in_word;
        in_word = letter;
    }
    *out = template_value_int(n);
    return err;
}

int template_filter_escape(run_t *run, const value_t *a, value_t *out)
{
    static const struct { char c; const char *text; } entities[] = {
        { '&', "&amp;" }, { '<', "&lt;" }, { '>', "&gt;" }, { '"', "&#34;" }, { '\'', "&#39;" },
    };
    struct buffer built = { 0 };
    value_t text;
    int err = template_soft_text(run, &a[0], &text);
    if (err == 0)
        err = template_spend(run, 5 * text.text.n_bytes);
    for (size_t i = 0; err == 0 && i < text.text.n_bytes; i++) {
        const char *entity = NULL;
        for (size_t k = 0; k < COUNT_OF(entities); k++)
            entity = entities[k].c == text.text.bytes[i] ? entities[k].text : entity;
        if (entity)
            buffer_add_text(&built, entity);
        else
            buffer_add(&built, text.text.bytes + i, 1);
    }
    err = template_take_text(run, &built, err, out);
    out->markup = err == 0;
    return err;
}

int template_filter_safe(run_t *run, const value_t *a, value_t *out)
{
    int err = template_soft_text(run, &a[0], out);
    if (err == 0)
        out->markup = true;
    return err;
}

int template_filter_format(run_t *run, const value_t *a, value_t *out)
{
    value_t text;
    int err = template_soft_text(run, &a[0], &text);
    if (err < 0)
        return err;
    if (a[2].kind == VALUE_MAP && a[1].list->n)
        return template_fail(run, "format() with arguments both with and without names");
    return template_percent(run, &text, a[2].kind == VALUE_MAP ? &a[2] : &a[1], out);
}

int template_filter_default(run_t *run, const value_t *a, value_t *out)
{
    (void)run;
    bool take = a[0].kind == VALUE_UNDEFINED || (template_value_is_true(&a[2]) && !template_value_is_true(&a[0]));
    *out = !take ? a[0] : a[1].kind == VALUE_ABSENT ? template_value_text("", 0) : a[1];
    return 0;
}

/* ---- numbers ---- */

/* The text without blanks around it and "_" between digits, as int() and float() of Python take it; false when they do not. */
static bool plain_number(const value_t *text, char to[128])
{
    value_t rest = *text;
    size_t n = 0;
    while (rest.text.n_bytes && strchr(" \t\n\r\v\f\x1c\x1d\x1e\x1f", *rest.text.bytes) && *rest.text.bytes)
        rest.text.bytes++, rest.text.n_bytes--;
    while (rest.text.n_bytes && rest.text.bytes[rest.text.n_bytes - 1] &&
           strchr(" \t\n\r\v\f\x1c\x1d\x1e\x1f", rest.text.bytes[rest.text.n_bytes - 1]))
        rest.text.n_bytes--;
    for (size_t i = 0; i < rest.text.n_bytes; i++) {
        char c = rest.text.bytes[i];
        bool between = i > 0 && i + 1 < rest.text.n_bytes && rest.text.bytes[i - 1] != '_' && rest.text.bytes[i + 1] != '_';
        if (c <= ' ' || c & 0x80 || n >= 127 || (c == '_' && !between))
            return false;
        if (c != '_')
            to[n++] = c;
    }
    to[n] = 0;
    return n > 0;
}

/* Whether characters beyond ASCII, which Python may take for digits, are in it. */
static bool has_foreign(const value_t *text)
{
    for (size_t i = 0; i < text->text.n_bytes; i++)
        if (text->text.bytes[i] & 0x80)
            return true;
    return false;
}

static bool read_float(const char *text, double *real)
{
    static const char *const words[] = { "inf", "infinity", "nan" };
    char *end;
    const char *digits = text + (*text == '-' || *text == '+');
    bool word = false;
    for (size_t i = 0; i < COUNT_OF(words); i++)
        word |= !strcasecmp(digits, words[i]);
    if (!word && ((*digits < '0' || *digits > '9') && *digits != '.'))
        return false;
    if (!word && strpbrk(digits, "xXpP"))
        return false;
    *real = strtod(text, &end);
    return !*end;
}

static bool read_int(const char *text, int base, int64_t *number, bool *overflow)
{
    char *end;
    const char *digits = text + (*text == '-' || *text == '+');
    bool prefix = *digits == '0' && ((base == 16 && (digits[1] | 0x20) == 'x') || (base == 8 && (digits[1] | 0x20) == 'o') ||
                                     (base == 2 && (digits[1] | 0x20) == 'b'));
    bool minus = *text == '-';
    digits += prefix ? 2 : 0;
    if (!*digits || *digits == '-' || *digits == '+' || (*digits == '0' && (digits[1] | 0x20) == 'x'))
        return false;
    errno = 0;
    char with_sign[130];
    snprintf(with_sign, sizeof with_sign, "%s%s", minus ? "-" : "", digits);
    *number = strtoll(with_sign, &end, base);
    *overflow = errno == ERANGE;
    return !*end;
}

/* int(float): cut to its whole part. */
static int whole(run_t *run, double real, const value_t *otherwise, value_t *out)
{
    if (real != real || isinf(real)) {
        if (isinf(real) && otherwise->kind == VALUE_FLOAT)
            return template_fail(run, "int() of infinity");
        *out = *otherwise;
        return 0;
    }
    if (real >= 9223372036854775808.0 || real < -9223372036854775808.0)
        return template_fail(run, "a number that does not fit 64 bits");
    *out = template_value_int((int64_t)real);
    return 0;
}

int template_filter_int(run_t *run, const value_t *a, value_t *out)
{
    const value_t fallback = a[1].kind == VALUE_ABSENT ? template_value_int(0) : a[1];
    char text[128];
    int64_t base, number;
    double real;
    bool overflow = false;
    int err = template_int_or(run, &a[2], 10, &base);
    if (err < 0)
        return err;
    if (base != 10 && base != 16 && base != 8 && base != 2)
        return template_fail(run, "int() with this base is not supported");
    *out = fallback;
    switch (a[0].kind) {
    case VALUE_BOOL:
    case VALUE_INT:       *out = template_value_int(template_as_integer(&a[0])); return 0;
    case VALUE_FLOAT:
        if (isinf(a[0].real))
            return template_fail(run, "int() of infinity");
        return whole(run, a[0].real, &fallback, out);
    case VALUE_UNDEFINED: return template_undefined(run, &a[0]);
    case VALUE_STRING:    break;
    default:              return 0;
    }
    if (has_foreign(&a[0]))
        return template_fail(run, "int() of text beyond ASCII is not supported");
    if (!plain_number(&a[0], text))
        return 0;
    if (read_int(text, (int)base, &number, &overflow)) {
        *out = template_value_int(number);
        return overflow ? template_fail(run, "a number that does not fit 64 bits") : 0;
    }
    return read_float(text, &real) ? whole(run, real, &fallback, out) : 0;
}

int template_filter_float(run_t *run, const value_t *a, value_t *out)
{
    char text[128];
    double real;
    *out = a[1].kind == VALUE_ABSENT ? template_value_float(0.0) : a[1];
    if (a[0].kind == VALUE_UNDEFINED)
        return template_undefined(run, &a[0]);
    if (template_is_number(&a[0]))
        *out = template_value_float(template_as_float(&a[0]));
    if (a[0].kind != VALUE_STRING)
        return 0;
    if (has_foreign(&a[0]))
        return template_fail(run, "float() of text beyond ASCII is not supported");
    if (plain_number(&a[0], text) && read_float(text, &real))
        *out = template_value_float(real);
    return 0;
}

static int want_number(run_t *run, const value_t *value)
{
    if (template_is_number(value))
        return 0;
    if (value->kind == VALUE_UNDEFINED)
        return template_undefined(run, value);
    return template_fail(run, "a number is wanted, not a value of type %s", template_kind_name(value->kind));
}

int template_filter_abs(run_t *run, const value_t *a, value_t *out)
{
    int err = want_number(run, &a[0]);
    if (err < 0)
        return err;
    if (a[0].kind == VALUE_FLOAT) {
        *out = template_value_float(fabs(a[0].real));
        return 0;
    }
    const value_t sign = template_value_int(template_as_integer(&a[0]) < 0 ? -1 : 1);
    return template_operate(run, TEMPLATE_MULTIPLY, &a[0], &sign, out);
}

/* Python's round(): to the even one of two that are as near, of the decimal digits that the number really has. */
static int round_common(run_t *run, const value_t *value, int64_t digits, value_t *out)
{
    char text[400];
    if (value->kind != VALUE_FLOAT) {
        if (digits < 0)
            return template_fail(run, "rounding an integer to tens is not supported");
        *out = template_value_int(template_as_integer(value));
        return 0;
    }
    if (digits < 0)
        return template_fail(run, "rounding to tens is not supported");
    *out = *value;
    if (isinf(value->real) || value->real != value->real || digits > 22)
        return 0;
    snprintf(text, sizeof text, "%.*f", (int)digits, value->real);
    *out = template_value_float(strtod(text, NULL));
    return 0;
}

int template_filter_round(run_t *run, const value_t *a, value_t *out)
{
    const value_t *method = &a[2];
    double scale = 1;
    int64_t digits;
    int err;
    if ((err = want_number(run, &a[0])) < 0 || (err = template_int_or(run, &a[1], 0, &digits)) < 0)
        return err;
    bool common = method->kind == VALUE_ABSENT || (method->kind == VALUE_STRING && template_text_equal(method, "common"));
    if (common)
        return round_common(run, &a[0], digits, out);
    bool up = method->kind == VALUE_STRING && template_text_equal(method, "ceil");
    if (!up && !(method->kind == VALUE_STRING && template_text_equal(method, "floor")))
        return template_fail(run, "the method must be common, ceil or floor");
    if (digits < 0 || digits > 15)
        return template_fail(run, "rounding to so many digits is not supported");
    for (int64_t i = 0; i < digits; i++)
        scale *= 10;
    double scaled = template_as_float(&a[0]) * scale;
    if (scaled != scaled || fabs(scaled) > 9007199254740992.0)
        return template_fail(run, "rounding a number this large is not supported");
    *out = template_value_float((up ? ceil(scaled) : floor(scaled)) / scale);
    if (out->real < 0 || out->real > 0)
        return 0;
    out->real = 0.0;                            /* math.ceil() gives an integer, which has no minus zero */
    return 0;
}
