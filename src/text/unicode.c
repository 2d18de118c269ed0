#include "text/unicode.h"

#include "base/base.h"

/* How a lead byte constrains what follows (Unicode, table 3-7): the number of bytes and the range of the second. */
static size_t utf8_lead(unsigned char lead, unsigned char *low, unsigned char *high)
{
    *low = 0x80;
    *high = 0xbf;
    if (lead < 0x80)
        return 1;
    if (lead < 0xc2 || lead > 0xf4)
        return 0;
    switch (lead) {
    case 0xe0: *low = 0xa0; break;          /* overlong below */
    case 0xed: *high = 0x9f; break;         /* surrogates above */
    case 0xf0: *low = 0x90; break;          /* overlong below */
    case 0xf4: *high = 0x8f; break;         /* past U+10FFFF above */
    }
    return lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

size_t utf8_decode(const char *text, size_t n_bytes, uint32_t *code)
{
    const unsigned char *s = (const unsigned char *)text;
    unsigned char low, high;
    size_t n = utf8_lead(s[0], &low, &high);
    if (n <= 1) {
        *code = n ? s[0] : UTF8_INVALID;
        return 1;
    }
    uint32_t sum = s[0] & (0xffu >> (n + 1));
    for (size_t i = 1; i < n; i++, low = 0x80, high = 0xbf) {
        if (i == n_bytes || s[i] < low || s[i] > high) {
            *code = i == n_bytes ? UTF8_TRUNCATED : UTF8_INVALID;
            return i;
        }
        sum = sum << 6 | (s[i] & 0x3f);
    }
    *code = sum;
    return n;
}

size_t utf8_encode(uint32_t code, char to[4])
{
    if (code < 0x80) {
        to[0] = (char)code;
        return 1;
    }
    size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, code >>= 6)
        to[i] = (char)(0x80 | (code & 0x3f));
    to[0] = (char)(0xf00 >> n | code);
    return n;
}

size_t utf8_count(const char *text, size_t n_bytes)
{
    size_t count = 0;
    for (size_t i = 0; i < n_bytes; i++)
        count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

uint32_t unicode_value(const struct unicode_range *ranges, size_t n, uint32_t code)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (code < ranges[middle].first)
            high = middle;
        else if (code >= ranges[middle].first + ranges[middle].n)
            low = middle + 1;
        else
            return ranges[middle].value;
    }
    return 0;
}

static uint32_t ascii_class(uint32_t code)
{
    if (code - '0' < 10)
        return CHAR_DIGIT;
    if ((code | 0x20) - 'a' < 26)
        return code & 0x20 ? CHAR_LOWER : CHAR_UPPER;
    if (code <= ' ' || code == 0x7f)
        return code == ' ' || code - '\t' < 5 ? CHAR_SPACE : CHAR_OTHER;
    switch (code) {
    case '$': case '+': case '<': case '=': case '>': case '^': case '`': case '|': case '~':
        return CHAR_SYMBOL;
    }
    return CHAR_PUNCTUATION;
}

uint32_t unicode_class(uint32_t code)
{
    if (code < 0x80)
        return ascii_class(code);
    uint32_t class = unicode_value(unicode_ranges, n_unicode_ranges, code);
    return class ? class : CHAR_OTHER;
}

uint32_t unicode_set(uint32_t code)
{
    return unicode_value(unicode_sets, n_unicode_sets, code);
}
