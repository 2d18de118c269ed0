#include "text/json_in.h"

#include "base/base.h"
#include "base/error.h"
#include "text/unicode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct reader {
    struct arena *arena;
    const char *start, *at, *end;
    unsigned depth;
    size_t n_values;
};

static int fail(const struct reader *r, const char *what)
{
    return error_set(ERR_USAGE, "%s at byte %zu", what, (size_t)(r->at - r->start));
}

static int no_memory(void)
{
    return error_set(ERR_NO_MEMORY, "no memory for a JSON value");
}

static void skip_blanks(struct reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\r' || *r->at == '\t'))
        r->at++;
}

static bool take(struct reader *r, char c)
{
    if (r->at == r->end || *r->at != c)
        return false;
    r->at++;
    return true;
}

/* ---- strings ---- */

/* Four hexadecimal digits at r->at, or -1. */
static int32_t read_hex(struct reader *r)
{
    int32_t code = 0;
    for (int i = 0; i < 4; i++, r->at++) {
        char c = r->at < r->end ? *r->at : 0;
        int digit = c >= '0' && c <= '9' ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10 : -1;
        if (digit < 0)
            return -1;
        code = code * 16 + digit;
    }
    return code;
}

/* The character of \uXXXX or of a pair of them, whose first "\u" has been read. */
static int read_code(struct reader *r, uint32_t *code)
{
    int32_t high = read_hex(r), low;
    if (high < 0)
        return fail(r, "a \\u without four hexadecimal digits");
    *code = (uint32_t)high;
    if (high < 0xd800 || high > 0xdfff)
        return 0;
    if (high > 0xdbff || !take(r, '\\') || !take(r, 'u') || (low = read_hex(r)) < 0xdc00 || low > 0xdfff)
        return fail(r, "half of a surrogate pair");
    *code = 0x10000 + ((uint32_t)(high - 0xd800) << 10) + (uint32_t)(low - 0xdc00);
    return 0;
}

/* One escape, whose backslash has been read; moves *to behind what it wrote. */
static int read_escape(struct reader *r, char **to)
{
    static const char escapes[] = "\"\"\\\\//b\bf\fn\nr\rt\t";          /* a letter, and the character it stands for */
    uint32_t code = 0;
    for (const char *e = escapes; *e; e += 2)
        if (take(r, *e)) {
            *(*to)++ = e[1];
            return 0;
        }
    if (!take(r, 'u'))
        return fail(r, "an unknown escape");
    int err = read_code(r, &code);
    if (!err)
        *to += utf8_encode(code, *to);
    return err;
}

/* Moves over characters that stand for themselves. */
static int skip_plain(struct reader *r)
{
    while (r->at < r->end && *r->at != '"' && *r->at != '\\') {
        uint32_t code;
        size_t n = utf8_decode(r->at, (size_t)(r->end - r->at), &code);
        if (code >= UTF8_INVALID)
            return fail(r, "bytes that are no UTF-8");
        if (code < 0x20)
            return fail(r, "a control character in a string");
        r->at += n;
    }
    return r->at < r->end ? 0 : fail(r, "a string without an end");
}

/* Up to where the string may end: what an escape stands for is never longer than it, so that is room enough. */
static size_t n_bytes_to_quote(const struct reader *r)
{
    const char *at = r->at;
    while (at < r->end && *at != '"')
        at += *at == '\\' && at + 1 < r->end ? 2 : 1;
    return (size_t)(at - r->at);
}

/* The opening quote has been read. */
static int read_string(struct reader *r, struct template_value *out)
{
    const char *first = r->at;
    int err = skip_plain(r);
    if (err < 0)
        return err;
    *out = template_value_text(first, (size_t)(r->at - first));
    if (take(r, '"'))
        return 0;
    char *text = arena_alloc(r->arena, out->text.n_bytes + n_bytes_to_quote(r)), *to = text;
    if (!text)
        return no_memory();
    do {
        memcpy(to, first, (size_t)(r->at - first));
        to += r->at++ - first;
        if ((err = read_escape(r, &to)) < 0)
            return err;
        first = r->at;
        if ((err = skip_plain(r)) < 0)
            return err;
    } while (*r->at == '\\');
    memcpy(to, first, (size_t)(r->at - first));
    to += r->at++ - first;
    *out = template_value_text(text, (size_t)(to - text));
    return 0;
}

/* ---- numbers ---- */

static bool is_digit(const struct reader *r)
{
    return r->at < r->end && *r->at >= '0' && *r->at <= '9';
}

static bool skip_digits(struct reader *r)
{
    const char *first = r->at;
    while (is_digit(r))
        r->at++;
    return r->at > first;
}

/* Moves over a number; not *whole when it has a fraction or an exponent. */
static int skip_number(struct reader *r, bool *whole)
{
    take(r, '-');
    if (!take(r, '0') && !skip_digits(r))
        return fail(r, "a minus without a number");
    if (is_digit(r))
        return fail(r, "a number that begins with 0");
    if (take(r, '.')) {
        *whole = false;
        if (!skip_digits(r))
            return fail(r, "a number that ends with a point");
    }
    if (take(r, 'e') || take(r, 'E')) {
        *whole = false;
        if (!take(r, '+'))
            take(r, '-');
        if (!skip_digits(r))
            return fail(r, "an exponent without digits");
    }
    return 0;
}

static bool read_integer(const char *digits, size_t n, int64_t *number)
{
    bool negative = *digits == '-';
    *number = 0;
    for (size_t i = negative; i < n; i++)               /* below zero, where there is one number more */
        if (__builtin_mul_overflow(*number, 10, number) || __builtin_sub_overflow(*number, digits[i] - '0', number))
            return false;
    return negative || !__builtin_sub_overflow(0, *number, number);
}

static int read_number(struct reader *r, struct template_value *out)
{
    const char *first = r->at;
    bool whole = true;
    int64_t integer;
    int err = skip_number(r, &whole);
    if (err < 0)
        return err;
    size_t n = (size_t)(r->at - first);
    if (n > JSON_MAX_NUMBER)
        return fail(r, "a number that is too long");
    if (whole && read_integer(first, n, &integer)) {
        *out = template_value_int(integer);
        return 0;
    }
    char *text = arena_alloc(r->arena, n + 1);
    if (!text)
        return no_memory();
    memcpy(text, first, n);
    *out = template_value_float(strtod(text, NULL));
    if (whole || !isfinite(out->real))
        out->written = text;
    return 0;
}

/* ---- lists and objects ---- */

static int read_value(struct reader *r, struct template_value *out);

static int enter(struct reader *r)
{
    return r->depth++ < JSON_MAX_DEPTH ? 0 : error_set(ERR_USAGE, "JSON nested more than %d deep at byte %zu", JSON_MAX_DEPTH,
                                                       (size_t)(r->at - r->start));
}

/* The opening bracket has been read. */
static int read_list(struct reader *r, struct template_value *out)
{
    struct template_value item;
    int err = enter(r);
    if (err < 0)
        return err;
    *out = template_value_list(r->arena, LIST_LIST);
    if (out->kind == VALUE_ABSENT)
        return no_memory();
    skip_blanks(r);
    for (bool first = true; !take(r, ']'); first = false) {
        if (!first && !take(r, ','))
            return fail(r, "neither a comma nor the end of a list");
        if ((err = read_value(r, &item)) < 0)
            return err;
        if (!template_list_add(r->arena, *out, item))
            return no_memory();
    }
    r->depth--;
    return 0;
}

static int by_text(const void *a, const void *b)
{
    const struct template_value *x = &(*(struct template_entry *const *)a)->key, *y = &(*(struct template_entry *const *)b)->key;
    if (x->text.n_bytes != y->text.n_bytes)
        return x->text.n_bytes < y->text.n_bytes ? -1 : 1;
    return memcmp(x->text.bytes, y->text.bytes, x->text.n_bytes);
}

/* Sorted, since an object may have a million keys. */
static int check_keys(struct reader *r, const struct template_map *map)
{
    if (map->n < 2)
        return 0;
    struct template_entry **sorted = malloc(map->n * sizeof *sorted);
    int err = sorted ? 0 : no_memory();
    for (size_t i = 0; sorted && i < map->n; i++)
        sorted[i] = &map->entries[i];
    if (sorted)
        qsort(sorted, map->n, sizeof *sorted, by_text);
    for (size_t i = 1; !err && i < map->n; i++)
        if (!by_text(&sorted[i - 1], &sorted[i]))
            err = error_set(ERR_USAGE, "the key \"%.*s\" twice in the object that ends at byte %zu",
                            (int)MIN(sorted[i]->key.text.n_bytes, (size_t)40), sorted[i]->key.text.bytes, (size_t)(r->at - r->start));
    free(sorted);
    return err;
}

/* The opening brace has been read. */
static int read_object(struct reader *r, struct template_value *out)
{
    struct template_value key, value;
    int err = enter(r);
    if (err < 0)
        return err;
    *out = template_value_map(r->arena);
    if (out->kind == VALUE_ABSENT)
        return no_memory();
    skip_blanks(r);
    for (bool first = true; !take(r, '}'); first = false) {
        if (!first && !take(r, ','))
            return fail(r, "neither a comma nor the end of an object");
        skip_blanks(r);
        if (!take(r, '"'))
            return fail(r, "an object's key that is no string");
        if ((err = read_string(r, &key)) < 0)
            return err;
        skip_blanks(r);
        if (!take(r, ':'))
            return fail(r, "a key without a colon");
        if ((err = read_value(r, &value)) < 0)
            return err;
        if (!template_map_add(r->arena, *out, key, value))
            return no_memory();
    }
    r->depth--;
    return check_keys(r, out->map);
}

/* ---- values ---- */

static int read_word(struct reader *r, const char *word, struct template_value value, struct template_value *out)
{
    size_t n = strlen(word);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n))
        return fail(r, "no JSON value");
    r->at += n;
    *out = value;
    return 0;
}

static int read_one(struct reader *r, struct template_value *out)
{
    const struct template_value none = { .kind = VALUE_NONE };
    if (take(r, '"'))
        return read_string(r, out);
    if (take(r, '{'))
        return read_object(r, out);
    if (take(r, '['))
        return read_list(r, out);
    if (is_digit(r) || (r->at < r->end && *r->at == '-'))
        return read_number(r, out);
    switch (r->at < r->end ? *r->at : 0) {
    case 't': return read_word(r, "true", template_value_bool(true), out);
    case 'f': return read_word(r, "false", template_value_bool(false), out);
    default:  return read_word(r, "null", none, out);
    }
}

/* With the blanks around it. */
static int read_value(struct reader *r, struct template_value *out)
{
    if (r->n_values++ == JSON_MAX_VALUES)
        return error_set(ERR_USAGE, "JSON of more than %d values", JSON_MAX_VALUES);
    skip_blanks(r);
    int err = read_one(r, out);
    skip_blanks(r);
    return err;
}

int json_read(struct arena *arena, const char *bytes, size_t n_bytes, struct template_value *out)
{
    struct reader r = { .arena = arena, .start = bytes, .at = bytes, .end = bytes + n_bytes };
    if (n_bytes >= 3 && !memcmp(bytes, "\xef\xbb\xbf", 3))
        return fail(&r, "a byte-order mark, which JSON has none of,");
    int err = read_value(&r, out);
    return err < 0 || r.at == r.end ? err : fail(&r, "something behind the JSON value");
}
