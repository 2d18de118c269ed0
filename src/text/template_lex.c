#include "text/template_lex.h"

#include "base/base.h"
#include "text/template_value.h"
#include "text/unicode.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool template_lex_init(struct template_lexer *lexer, struct arena *arena, const char *source, size_t n_bytes)
{
    char *copy = arena_alloc(arena, n_bytes + 1);
    size_t n = 0;
    if (!copy)
        return false;
    for (size_t i = 0; i < n_bytes; i++) {
        bool pair = source[i] == '\r' && i + 1 < n_bytes && source[i + 1] == '\n';
        copy[n++] = source[i] == '\r' ? '\n' : source[i];
        i += pair;
    }
    n -= n > 0 && copy[n - 1] == '\n';
    *lexer = (struct template_lexer){ .arena = arena, .at = copy, .end = copy + n, .line = 1, .line_start = true };
    return true;
}

static struct template_token token_of(const struct template_lexer *l, enum template_token_kind kind, const char *text, size_t n)
{
    return (struct template_token){ .kind = kind, .line = l->line, .text = text, .n_bytes = n };
}

static struct template_token bad(struct template_lexer *l, const char *what)
{
    struct template_token token = token_of(l, TOKEN_BAD, what, strlen(what));
    l->at = l->end;
    l->where = LEX_DATA;
    return token;
}

static bool next_is(const struct template_lexer *l, const char *text)
{
    size_t n = strlen(text);
    return (size_t)(l->end - l->at) >= n && !memcmp(l->at, text, n);
}

static void advance(struct template_lexer *l, size_t n)
{
    for (size_t i = 0; i < n; i++)
        l->line += l->at[i] == '\n';
    if (n)
        l->line_start = l->at[n - 1] == '\n';
    l->at += n;
}

/* Bytes of the white space that text begins with. */
static size_t leading_space(const char *text, const char *end)
{
    const char *at = text;
    while (at < end) {
        uint32_t code;
        size_t n = utf8_decode(at, (size_t)(end - at), &code);
        if (!template_is_space(code))
            break;
        at += n;
    }
    return (size_t)(at - text);
}

/* Bytes that are left of n when the white space at the end is gone. */
static size_t without_trailing_space(const char *text, size_t n)
{
    for (;;) {
        size_t start = n;
        uint32_t code = UTF8_INVALID;
        while (start > 0 && n - start < 4 && code >= UTF8_INVALID) {
            start--;
            if (start + utf8_decode(text + start, n - start, &code) != n)
                code = UTF8_INVALID;
        }
        if (start == n || !template_is_space(code))
            return n;
        n = start;
    }
}

/* lstrip_blocks: when nothing but white space stands before a tag on its line, that goes too. */
static size_t without_indent(const char *text, size_t n, bool line_start)
{
    size_t line = n;
    while (line > 0 && text[line - 1] != '\n')
        line--;
    if (line == 0 && !line_start)
        return n;
    return line + leading_space(text + line, text + n) == n ? line : n;
}

static void after_tag(struct template_lexer *l, char sign, bool trim_newline)
{
    if (sign == '-')
        advance(l, leading_space(l->at, l->end));
    else if (sign != '+' && trim_newline && l->at < l->end && *l->at == '\n')
        advance(l, 1);
}

static bool is_tag(const char *at, const char *end)
{
    return end - at >= 2 && at[0] == '{' && (at[1] == '{' || at[1] == '%' || at[1] == '#');
}

static const char *find_tag(const char *at, const char *end)
{
    while (at < end && !is_tag(at, end))
        at++;
    return at;
}

/* Past "{#" and its sign, to behind the comment; false when it has no end. */
static bool skip_comment(struct template_lexer *l)
{
    const char *start = l->at, *close = start;
    while (close + 1 < l->end && memcmp(close, "#}", 2))
        close++;
    if (close + 1 >= l->end)
        return false;
    char sign = close > start ? close[-1] : 0;
    advance(l, (size_t)(close - start) + 2);
    after_tag(l, sign, true);
    return true;
}

/* Data up to the next tag, without what the tag trims: it may come out empty. */
static struct template_token next_data(struct template_lexer *l)
{
    const char *tag = find_tag(l->at, l->end);
    size_t n = (size_t)(tag - l->at), kept = n;
    char sign = tag + 2 < l->end ? tag[2] : 0;
    if (tag < l->end && sign == '-')
        kept = without_trailing_space(l->at, n);
    else if (tag < l->end && sign != '+' && tag[1] != '{')
        kept = without_indent(l->at, n, l->line_start);
    struct template_token data = token_of(l, TOKEN_DATA, l->at, kept);
    advance(l, n);
    return data;
}

static struct template_token begin_tag(struct template_lexer *l)
{
    char kind = l->at[1];
    struct template_token token = token_of(l, kind == '{' ? TOKEN_PRINT_BEGIN : TOKEN_BLOCK_BEGIN, l->at, 2);
    advance(l, 2);
    if (l->at < l->end && (*l->at == '-' || *l->at == '+'))
        advance(l, 1);
    l->where = kind == '{' ? LEX_PRINT : kind == '%' ? LEX_BLOCK : LEX_DATA;
    l->open = 0;
    return token;
}

static bool end_tag(struct template_lexer *l, struct template_token *token)
{
    const char *close = l->where == LEX_PRINT ? "}}" : "%}";
    char sign = l->at < l->end && (*l->at == '-' || (*l->at == '+' && l->where == LEX_BLOCK)) ? *l->at : 0;
    l->at += sign != 0;
    if (l->open || !next_is(l, close)) {
        l->at -= sign != 0;
        return false;
    }
    *token = token_of(l, l->where == LEX_PRINT ? TOKEN_PRINT_END : TOKEN_BLOCK_END, close, 2);
    advance(l, 2);
    after_tag(l, sign, l->where == LEX_BLOCK);
    l->where = LEX_DATA;
    return true;
}

static bool is_name(char c, bool first)
{
    return c == '_' || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || (!first && c >= '0' && c <= '9');
}

static bool is_digit(const struct template_lexer *l, size_t i)
{
    return (size_t)(l->end - l->at) > i && l->at[i] >= '0' && l->at[i] <= '9';
}

/* Bytes of digits of the base at l->at + from, a "_" between two of them allowed; `first` is one allowed before the first. */
static size_t digits_at(const struct template_lexer *l, size_t from, unsigned base, bool first)
{
    size_t n = 0, left = (size_t)(l->end - l->at);
    for (;;) {
        size_t i = from + n + (from + n < left && l->at[from + n] == '_' && (n || first));
        char c = i < left ? l->at[i] : 0, lower = c | 0x20;
        unsigned value = c >= '0' && c <= '9' ? (unsigned)(c - '0') : lower >= 'a' && lower <= 'f' ? (unsigned)(lower - 'a') + 10 : 99;
        if (value >= base)
            return n;
        n = i + 1 - from;
    }
}

/* Bytes of a number with a fraction or an exponent at l->at, 0 when there is none. */
static size_t float_at(const struct template_lexer *l)
{
    size_t left = (size_t)(l->end - l->at), whole = digits_at(l, 0, 10, false), n = whole, more;
    if (n < left && l->at[n] == '.' && (more = digits_at(l, n + 1, 10, false)))
        n += 1 + more;
    if (n < left && (l->at[n] | 0x20) == 'e') {
        size_t sign = n + 1 < left && (l->at[n + 1] == '-' || l->at[n + 1] == '+');
        if ((more = digits_at(l, n + 1 + sign, 10, false)))
            n += 1 + sign + more;
    }
    return n > whole ? n : 0;
}

static struct template_token next_number(struct template_lexer *l)
{
    struct template_token token = token_of(l, TOKEN_INT, l->at, 0);
    char second = l->end - l->at > 1 ? (char)(l->at[1] | 0x20) : 0, text[400];
    unsigned base = *l->at != '0' ? 10 : second == 'x' ? 16 : second == 'o' ? 8 : second == 'b' ? 2 : 10;
    size_t start = base == 10 ? 0 : 2, n = 0, n_text = 0;
    if (base == 10 && (n = float_at(l)))
        token.kind = TOKEN_FLOAT;
    else
        n = start + digits_at(l, start, base, start > 0);
    if (n == start || n >= sizeof text || (l->at + n < l->end && is_name(l->at[n], false)))
        return bad(l, "a number of a form that is not supported");
    for (size_t i = start; i < n; i++)
        if (l->at[i] != '_')
            text[n_text++] = l->at[i];
    text[n_text] = 0;
    if (token.kind == TOKEN_FLOAT) {
        token.real = strtod(text, NULL);
    } else {
        errno = 0;
        token.number = strtoll(text, NULL, (int)base);
        if (errno)
            return bad(l, "a number that does not fit 64 bits");
        if (base == 10 && text[0] == '0' && token.number)
            return bad(l, "a number of a form that is not supported");
    }
    token.n_bytes = n;
    advance(l, n);
    return token;
}

/* The value of n hexadecimal digits, or -1. */
static int64_t hexadecimal(const char *text, const char *end, int n)
{
    int64_t value = 0;
    for (int i = 0; i < n; i++) {
        char c = text + i < end ? text[i] : 0, lower = c | 0x20;
        if (!(c >= '0' && c <= '9') && !(lower >= 'a' && lower <= 'f'))
            return -1;
        value = value * 16 + (c <= '9' ? c - '0' : lower - 'a' + 10);
    }
    return value;
}

/* One escape of Python's, behind the backslash at `at`: appends what it means and returns its bytes, 0 when it is bad. */
static size_t unescape(const char *at, const char *end, char *to, size_t *n)
{
    static const char simple[][2] = {
        { 'n', '\n' }, { 't', '\t' }, { 'r', '\r' }, { '\\', '\\' }, { '\'', '\'' }, { '"', '"' },
        { 'a', '\a' }, { 'b', '\b' }, { 'f', '\f' }, { 'v', '\v' },
    };
    for (size_t i = 0; i < COUNT_OF(simple); i++)
        if (*at == simple[i][0]) {
            to[(*n)++] = simple[i][1];
            return 1;
        }
    if (*at >= '0' && *at <= '7') {
        size_t n_octal = 0;
        uint32_t value = 0;
        while (n_octal < 3 && at + n_octal < end && at[n_octal] >= '0' && at[n_octal] <= '7')
            value = value * 8 + (uint32_t)(at[n_octal++] - '0');
        *n += utf8_encode(value, to + *n);
        return n_octal;
    }
    int digits = *at == 'x' ? 2 : *at == 'u' ? 4 : *at == 'U' ? 8 : 0;
    int64_t code = digits ? hexadecimal(at + 1, end, digits) : 0;
    if (code < 0 || code >= 0x110000 || (code >= 0xd800 && code < 0xe000) || *at == 'N')
        return 0;
    if (digits) {
        *n += utf8_encode((uint32_t)code, to + *n);
        return (size_t)digits + 1;
    }
    if (*at != '\n') {                          /* the backslash of an unknown escape stays */
        to[(*n)++] = '\\';
        to[(*n)++] = *at;
    }
    return 1;
}

static struct template_token next_string(struct template_lexer *l)
{
    const char *close = l->at + 1;
    while (close < l->end && *close != *l->at)
        close += *close == '\\' ? 2 : 1;
    if (close >= l->end)
        return bad(l, "a string without an end");
    char *text = arena_alloc(l->arena, (size_t)(close - l->at));
    if (!text)
        return bad(l, "no memory");
    struct template_token token = token_of(l, TOKEN_STRING, text, 0);
    for (const char *at = l->at + 1; at < close; ) {
        if (*at != '\\') {
            text[token.n_bytes++] = *at++;
            continue;
        }
        size_t n = unescape(at + 1, close, text, &token.n_bytes);
        if (!n)
            return bad(l, "an escape in a string that is not supported");
        at += n + 1;
    }
    advance(l, (size_t)(close - l->at) + 1);
    return token;
}

static struct template_token next_operator(struct template_lexer *l)
{
    static const char *const operators[] = {
        "//", "**", "==", "!=", ">=", "<=",
        "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<", "=", ".", ":", "|", ",",
    };
    for (size_t i = 0; i < COUNT_OF(operators); i++)
        if (next_is(l, operators[i])) {
            struct template_token token = token_of(l, TOKEN_OPERATOR, operators[i], strlen(operators[i]));
            char c = *l->at;
            l->open += c == '[' || c == '(' || c == '{';
            l->open -= l->open && (c == ']' || c == ')' || c == '}');
            advance(l, token.n_bytes);
            return token;
        }
    return bad(l, "a character that has no meaning in a tag");
}

static struct template_token next_in_tag(struct template_lexer *l)
{
    struct template_token token;
    advance(l, leading_space(l->at, l->end));
    if (l->at == l->end)
        return bad(l, "a tag without an end");
    if (end_tag(l, &token))
        return token;
    if (is_digit(l, 0))
        return next_number(l);
    if (*l->at == '"' || *l->at == '\'')
        return next_string(l);
    if (!is_name(*l->at, true))
        return next_operator(l);
    size_t n = 1;
    while (l->at + n < l->end && is_name(l->at[n], false))
        n++;
    token = token_of(l, TOKEN_NAME, l->at, n);
    advance(l, n);
    return token;
}

/* Bytes of "{%- NAME -%}" at `at`, 0 when that is not there; the signs in it. */
static size_t whole_tag(const char *at, const char *end, const char *name, char *before, char *after)
{
    const char *start = at;
    size_t n = strlen(name);
    if (end - at < 2 || memcmp(at, "{%", 2))
        return 0;
    at += 2;
    *before = at < end && (*at == '-' || *at == '+') ? *at++ : 0;
    at += leading_space(at, end);
    if ((size_t)(end - at) < n || memcmp(at, name, n))
        return 0;
    at += n;
    at += leading_space(at, end);
    *after = at < end && (*at == '-' || *at == '+') ? *at++ : 0;
    return end - at >= 2 && !memcmp(at, "%}", 2) ? (size_t)(at + 2 - start) : 0;
}

/* Behind {% raw %}: all up to {% endraw %} is data. */
static struct template_token next_raw(struct template_lexer *l)
{
    char before = 0, after = 0;
    const char *tag = l->at;
    size_t n_tag = 0;
    while (tag < l->end && !(n_tag = whole_tag(tag, l->end, "endraw", &before, &after)))
        tag++;
    if (!n_tag)
        return bad(l, "a raw block without an end");
    size_t n = (size_t)(tag - l->at), kept = before == '-' ? without_trailing_space(l->at, n) :
               before == '+' ? n : without_indent(l->at, n, l->line_start);
    struct template_token data = token_of(l, TOKEN_DATA, l->at, kept);
    advance(l, n + n_tag);
    after_tag(l, after, true);
    l->raw = false;
    return data;
}

static bool begin_raw(struct template_lexer *l)
{
    char before = 0, after = 0;
    size_t n = whole_tag(l->at, l->end, "raw", &before, &after);
    if (!n || after == '+')
        return false;
    advance(l, n);
    after_tag(l, after, false);
    l->raw = true;
    return true;
}

struct template_token template_lex_next(struct template_lexer *l)
{
    struct template_token data;
    if (l->where != LEX_DATA)
        return next_in_tag(l);
    while (l->at < l->end || l->raw) {
        if (l->raw) {
            data = next_raw(l);
            if (data.kind == TOKEN_BAD || data.n_bytes)
                return data;
            continue;
        }
        if (is_tag(l->at, l->end)) {
            bool comment = l->at[1] == '#';
            if (begin_raw(l))
                continue;
            struct template_token begin = begin_tag(l);
            if (!comment)
                return begin;
            if (!skip_comment(l))
                return bad(l, "a comment without an end");
            continue;
        }
        data = next_data(l);
        if (data.n_bytes)
            return data;
    }
    return token_of(l, TOKEN_END, "", 0);
}
