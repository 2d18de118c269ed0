#include "base/buffer.h"
#include "tests/check.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

#include <string.h>

#define BAD "\xef\xbf\xbd"

/* The wanted texts are Python's: bytes.decode("utf-8", "replace"). */
static const struct { const char *name, *bytes, *want; } rows[] = {
    { "ascii",                             "plain",                            "plain" },
    { "two, three and four bytes",         "\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82" },
    { "a lone continuation byte",          "a\x80z",                           "a" BAD "z" },
    { "three of them",                     "\x80\x80\x80",                     BAD BAD BAD },
    { "a lead byte before ascii",          "\xc3(",                            BAD "(" },
    { "two thirds of a character: one",    "\xe2\x82(",                        BAD "(" },
    { "three quarters: one",               "\xf0\x9f\x99z",                    BAD "z" },
    { "an overlong slash: two",            "\xc0\xaf",                         BAD BAD },
    { "an overlong of three: three",       "\xe0\x80\xaf",                     BAD BAD BAD },
    { "a surrogate: three",                "\xed\xa0\x80",                     BAD BAD BAD },
    { "past the last code point: four",    "\xf4\x90\x80\x80",                 BAD BAD BAD BAD },
    { "the last code point",               "\xf4\x8f\xbf\xbf",                 "\xf4\x8f\xbf\xbf" },
    { "bytes that are never valid",        "\xfe\xff",                         BAD BAD },
    { "truncated at the end: one",         "a\xf0\x9f\x99",                    "a" BAD },
    { "a lead byte at the end",            "\xe2",                             BAD },
    { "a character breaks off into another", "\xe2\x82\xe2\x82\xac",           BAD "\xe2\x82\xac" },
};

/* However the bytes are cut into tokens, the text that comes out is the same. */
static void test_stream(void)
{
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        size_t n = strlen(rows[i].bytes);
        check_begin("utf8 stream: %s", rows[i].name);
        for (size_t step = 1; step <= n; step++) {
            struct utf8_stream stream = { .n_held = 0 };
            struct buffer out = { 0 };
            buffer_add_text(&out, "");
            for (size_t at = 0; at < n; at += step)
                utf8_stream_add(&stream, rows[i].bytes + at, MIN(step, n - at), &out);
            utf8_stream_end(&stream, &out);
            check_text(out.bytes, rows[i].want);
            check_int(stream.n_held, 0);
            buffer_release(&out);
        }
        check_int(utf8_is_valid(rows[i].bytes, n), !strcmp(rows[i].bytes, rows[i].want));
    }
}

static void test_round_trip(void)
{
    check_begin("utf8: every code point there and back");
    for (uint32_t code = 0; code < 0x110000; code++) {
        char bytes[4];
        uint32_t back = 0;
        size_t n = utf8_encode(code, bytes);
        bool surrogate = code >= 0xd800 && code < 0xe000;
        if (utf8_decode(bytes, n, &back) != (surrogate ? 1 : n) || back != (surrogate ? UTF8_INVALID : code)) {
            check_int(back, code);
            return;
        }
    }
    check(true);
}

static const struct { uint32_t code, class; } classes[] = {
    { 'a', CHAR_LOWER }, { 'Z', CHAR_UPPER }, { '0', CHAR_DIGIT }, { '9', CHAR_DIGIT }, { '_', CHAR_PUNCTUATION }, { '@', CHAR_PUNCTUATION },
    { '[', CHAR_PUNCTUATION }, { '`', CHAR_SYMBOL }, { '{', CHAR_PUNCTUATION }, { '|', CHAR_SYMBOL }, { '/', CHAR_PUNCTUATION },
    { ':', CHAR_PUNCTUATION }, { '$', CHAR_SYMBOL }, { ' ', CHAR_SPACE }, { '\t', CHAR_SPACE }, { '\r', CHAR_SPACE }, { 0x8, CHAR_OTHER },
    { 0xe, CHAR_OTHER }, { 0x1c, CHAR_OTHER }, { 0x7f, CHAR_OTHER }, { 0x85, CHAR_SPACE }, { 0xa0, CHAR_SPACE }, { 0x3000, CHAR_SPACE },
    { 0x200b, CHAR_OTHER }, { 0x180e, CHAR_OTHER }, { 0xaa, CHAR_UNCASED }, { 0xb2, CHAR_NUMERAL }, { 0xbd, CHAR_NUMERAL },
    { 0x1c5, CHAR_UPPER }, { 0x663, CHAR_DIGIT }, { 0x2168, CHAR_NUMERAL }, { 0x301, CHAR_MARK }, { 0x903, CHAR_MARK },
    { 0x4e2d, CHAR_UNCASED | CHAR_HAN }, { 0x3005, CHAR_UNCASED | CHAR_HAN }, { 0x3007, CHAR_NUMERAL | CHAR_HAN }, { 0x3042, CHAR_UNCASED },
    { 0xd7a3, CHAR_UNCASED }, { 0xd7a4, CHAR_OTHER }, { 0x20000, CHAR_UNCASED | CHAR_HAN }, { 0x2a6d6, CHAR_UNCASED | CHAR_HAN },
    { 0x1f642, CHAR_SYMBOL }, { 0x10ffff, CHAR_OTHER }, { UTF8_INVALID, CHAR_OTHER }, { UTF8_TRUNCATED, CHAR_OTHER },
};

/* How many characters have a class, as in Unicode 16.0. */
static const struct { uint32_t class; size_t n; } counts[] = {
    { CHAR_LETTER, 141028 }, { CHAR_UPPER, 1889 }, { CHAR_LOWER, 2258 }, { CHAR_MARK, 2501 }, { CHAR_DIGIT, 760 }, { CHAR_NUMBER, 1911 },
    { CHAR_PUNCTUATION, 855 }, { CHAR_SYMBOL, 8514 }, { CHAR_SPACE, 25 }, { CHAR_HAN, 99030 },
};

static void test_classes(void)
{
    check_begin("unicode: classes");
    for (size_t i = 0; i < COUNT_OF(classes); i++)
        check_int(unicode_class(classes[i].code), classes[i].class);
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        size_t n = 0;
        for (uint32_t code = 0; code < 0x110000; code++)
            n += (unicode_class(code) & counts[i].class) != 0;
        check_begin("unicode: characters of class %#x", counts[i].class);
        check_int(n, counts[i].n);
    }
    for (uint32_t code = 0; code < 0x110000; code++) {
        uint32_t class = unicode_class(code) & ~(uint32_t)CHAR_HAN;
        if (!class || class & (class - 1)) {
            check_begin("unicode: U+%04X has one class", code);
            check_int(class, 0);
            break;
        }
    }
}

int main(void)
{
    test_stream();
    test_round_trip();
    test_classes();
    return check_done();
}
