/* template_case.c: upper, lower and title case of whole strings, as Python has them. */
#include "base/base.h"
#include "base/error.h"
#include "text/template_builtin.h"
#include "text/template_unicode.h"
#include "text/unicode.h"

#include <string.h>

static bool in_spans(const struct template_span *spans, size_t n, uint32_t code)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (code >= spans[middle].first + spans[middle].n)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n && code >= spans[low].first;
}

bool template_is_cased(uint32_t code)
{
    uint32_t lower = code | 0x20;
    return code < 0x80 ? lower >= 'a' && lower <= 'z' : in_spans(template_cased, n_template_cased, code);
}

bool template_is_printable(uint32_t code)
{
    return code < 0x80 ? code >= 0x20 && code < 0x7f : in_spans(template_printable, n_template_printable, code);
}

static uint32_t move(const struct template_case_run *runs, size_t n, uint32_t code)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (code > runs[middle].first + (uint32_t)(runs[middle].n - 1) * runs[middle].step)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == n || code < runs[low].first || (code - runs[low].first) % runs[low].step)
        return code;
    return (uint32_t)((int32_t)code + runs[low].delta);
}

void template_change_case(uint32_t code, enum template_case to, struct buffer *out)
{
    char bytes[4];
    bool letter = template_is_cased(code);
    if (code < 0x80) {
        bytes[0] = (char)(!letter ? code : to == CASE_LOWER ? code | 0x20 : code & ~0x20u);
        buffer_add(out, bytes, 1);
        return;
    }
    for (size_t i = 0; i < n_template_special; i++)
        if (template_special[i].code == code && template_special[i].to == to) {
            buffer_add_text(out, template_special[i].text);
            return;
        }
    uint32_t moved = to == CASE_UPPER ? move(template_upper, n_template_upper, code) :
                     to == CASE_LOWER ? move(template_lower, n_template_lower, code) : move(template_title, n_template_title, code);
    buffer_add(out, bytes, utf8_encode(moved, bytes));
}

enum style { STYLE_UPPER, STYLE_LOWER, STYLE_CAPITALIZED, STYLE_TITLE };

/* How `style` wants a character, of which it knows whether it is the first, and whether a cased one came before it. */
static enum template_case case_of(enum style style, bool first, bool after_cased)
{
    switch (style) {
    case STYLE_UPPER:       return CASE_UPPER;
    case STYLE_LOWER:       return CASE_LOWER;
    case STYLE_CAPITALIZED: return first ? CASE_TITLE : CASE_LOWER;
    default:                return after_cased ? CASE_LOWER : CASE_TITLE;
    }
}

static int change(run_t *run, const value_t *text, enum style style, value_t *out)
{
    const char *bytes = text->text.bytes, *end = bytes + text->text.n_bytes;
    struct buffer built = { 0 };
    bool cased = false;
    int err = template_spend(run, 4 * text->text.n_bytes);
    for (const char *at = bytes; at < end && !err; ) {
        uint32_t code;
        size_t n = utf8_decode(at, (size_t)(end - at), &code);
        enum template_case to = case_of(style, at == bytes, cased);
        if (code >= UTF8_INVALID)
            buffer_add(&built, at, n);
        else if (code == 0x3a3 && to == CASE_LOWER)         /* it depends on the letters around */
            err = template_fail(run, "the lower case of a capital sigma is not supported");
        else
            template_change_case(code, to, &built);
        cased = code < UTF8_INVALID && template_is_cased(code);
        at += n;
    }
    return template_take_text(run, &built, err, out);
}

int template_to_upper(run_t *run, const value_t *text, value_t *out)
{
    return change(run, text, STYLE_UPPER, out);
}

int template_to_lower(run_t *run, const value_t *text, value_t *out)
{
    return change(run, text, STYLE_LOWER, out);
}

int template_capitalize(run_t *run, const value_t *text, value_t *out)
{
    return change(run, text, STYLE_CAPITALIZED, out);
}

int template_method_title(run_t *run, const value_t *a, value_t *out)
{
    return change(run, &a[0], STYLE_TITLE, out);
}

int template_filter_title(run_t *run, const value_t *a, value_t *out)
{
    static const char splits[] = "-({[<";
    value_t text;
    struct buffer built = { 0 };
    bool first = true;
    int err = template_soft_text(run, &a[0], &text);
    if (err == 0)
        err = template_spend(run, 4 * text.text.n_bytes);
    for (size_t i = 0, n; err == 0 && i < text.text.n_bytes; i += n) {
        uint32_t code;
        const char *at = text.text.bytes + i;
        n = utf8_decode(at, text.text.n_bytes - i, &code);
        if (code >= UTF8_INVALID)
            buffer_add(&built, at, n);
        else if (code == 0x3a3 && !first)
            err = template_fail(run, "the lower case of a capital sigma is not supported");
        else
            template_change_case(code, first ? CASE_UPPER : CASE_LOWER, &built);
        first = template_is_space(code) || (code && code < 0x80 && strchr(splits, (int)code));
    }
    return template_take_text(run, &built, err, out);
}
