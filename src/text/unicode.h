/* unicode.h: characters: in and out of UTF-8, the classes that splitting text into words needs, NFC. */
#ifndef STOA_TEXT_UNICODE_H
#define STOA_TEXT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What utf8_decode() gives where there is no character; both lie above every code point. */
#define UTF8_INVALID 0x110000u          /* these bytes can not begin a character */
#define UTF8_TRUNCATED 0x110001u        /* the text ended inside a character that was valid so far */

/* The character at text[0..n_bytes), n_bytes > 0, in *code; returns the bytes it takes.  Where there is none, the
 * bytes of the maximal subpart: as many as a character could begin with, at least one. */
size_t utf8_decode(const char *text, size_t n_bytes, uint32_t *code);
/* Writes code point `code` (below 0x110000) and returns its 1 to 4 bytes. */
size_t utf8_encode(uint32_t code, char to[4]);
/* How many characters text has, which is UTF-8. */
size_t utf8_count(const char *text, size_t n_bytes);

/* A character has one class of these, by its general category; CHAR_SPACE, the property White_Space, goes before. */
enum char_class {
    CHAR_UPPER = 1 << 0,        /* Lu and Lt */
    CHAR_LOWER = 1 << 1,        /* Ll */
    CHAR_UNCASED = 1 << 2,      /* Lm and Lo */
    CHAR_MARK = 1 << 3,         /* \p{M} */
    CHAR_DIGIT = 1 << 4,        /* Nd */
    CHAR_NUMERAL = 1 << 5,      /* Nl and No */
    CHAR_PUNCTUATION = 1 << 6,  /* \p{P} */
    CHAR_SYMBOL = 1 << 7,       /* \p{S} */
    CHAR_SPACE = 1 << 8,        /* \s */
    CHAR_OTHER = 1 << 9,        /* also the class of UTF8_INVALID and UTF8_TRUNCATED */
    CHAR_HAN = 1 << 10,         /* beside its class: of the script Han */

    CHAR_LETTER = CHAR_UPPER | CHAR_LOWER | CHAR_UNCASED,       /* \p{L} */
    CHAR_NUMBER = CHAR_DIGIT | CHAR_NUMERAL,                    /* \p{N} */
};
uint32_t unicode_class(uint32_t code);

/* Sets that expressions of single tokenizers name character by character; scripts/make-unicode spells them out. */
enum char_set {
    SET_ASCII_LETTERS = 1 << 0,
    SET_ASCII_DIGITS = 1 << 1,
    SET_ASCII_MARKS = 1 << 2,           /* printing, and neither letter nor digit */
    SET_DEFAULT_SYMBOLS = 1 << 3,       /* $ + < = > ^ ~ | */
    SET_SLASH = 1 << 4,
    SET_BLOOM_STOPS = 1 << 5,
    SET_CJK = 1 << 6,                   /* U+0800 to U+9FA5 and U+AC00 to U+D7FF */
    SET_HAN_KANA = 1 << 7,
    SET_DEEPSEEK_MARKS = 1 << 8,
    SET_DEEPSEEK_LETTERS = 1 << 9,
};
uint32_t unicode_set(uint32_t code);

/* Appends the text in Normalization Form C; what is no UTF-8 goes through as it is.  Time grows near-linearly. */
struct buffer;
void unicode_add_nfc(struct buffer *out, const char *text, size_t n_bytes);

/* The tables behind these, sorted; ranges are the `n` characters from `first` on. */
struct unicode_range {
    uint32_t first;
    uint16_t n, value;
};
struct unicode_parts {
    uint32_t code, a, b;        /* code is canonically equivalent to a b; b is 0 when to a alone */
};
extern const struct unicode_range unicode_ranges[];             /* classes */
extern const struct unicode_range unicode_sets[];
extern const struct unicode_range unicode_orders[];             /* canonical combining classes that are not 0 */
extern const struct unicode_range unicode_unstable[];           /* NFC_Quick_Check is no or maybe */
extern const struct unicode_parts unicode_decompositions[];     /* by code */
extern const struct unicode_parts unicode_compositions[];       /* by a, then b */
/* The value of the range that holds `code`, or 0. */
uint32_t unicode_value(const struct unicode_range *ranges, size_t n, uint32_t code);
extern const size_t n_unicode_ranges, n_unicode_sets, n_unicode_orders, n_unicode_unstable, n_unicode_decompositions,
    n_unicode_compositions;

#endif
