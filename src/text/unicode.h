/* unicode.h: characters: out of UTF-8, and the few classes that splitting text into words needs. */
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

enum char_class {
    CHAR_OTHER,         /* also the class of UTF8_INVALID and UTF8_TRUNCATED */
    CHAR_LETTER,        /* \p{L} */
    CHAR_NUMBER,        /* \p{N}: Nd, Nl and No */
    CHAR_SPACE,         /* \s: the property White_Space */
};
enum char_class unicode_class(uint32_t code);

/* The table behind it, sorted: `n` characters from `first` on. */
struct unicode_range {
    uint32_t first;
    uint16_t n;
    uint8_t class;
};
extern const struct unicode_range unicode_ranges[];
extern const size_t n_unicode_ranges;

#endif
