/* gguf_writer.h: bytes from a line of words, so that a test's table can hold whole files.
 *
 *   GGUF        these four bytes            b:N h:N w:N q:N     u8, u16, u32, u64, little-endian
 *   f:X         f32                         s:TEXT              u64 length, then the bytes
 *   x:TEXT      the bytes alone             z:N                 N zero bytes
 *   a:N         zeros up to a multiple of N                     r:N  N bytes that differ, as tensor data
 *
 * N is decimal, 0x... or negative.  TEXT has no blanks. */
#ifndef STOA_TESTS_GGUF_WRITER_H
#define STOA_TESTS_GGUF_WRITER_H

#include "base/buffer.h"

#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline void gguf_write_number(struct buffer *out, uint64_t value, int n_bytes)
{
    for (int i = 0; i < n_bytes; i++)
        buffer_add(out, &(uint8_t){ (uint8_t)(value >> 8 * i) }, 1);
}

static inline void gguf_write_word(struct buffer *out, const char *word, size_t n)
{
    char text[256];
    assert(n < sizeof text);
    memcpy(text, word, n);
    text[n] = 0;
    if (!strcmp(text, "GGUF")) {
        buffer_add(out, text, 4);
        return;
    }
    assert(n >= 2 && text[1] == ':');
    uint64_t value = text[2] == '-' ? (uint64_t)strtoll(text + 2, NULL, 0) : strtoull(text + 2, NULL, 0);
    union { float f; uint32_t u; } real = { .f = strtof(text + 2, NULL) };
    switch (text[0]) {
    case 'b': gguf_write_number(out, value, 1); break;
    case 'h': gguf_write_number(out, value, 2); break;
    case 'w': gguf_write_number(out, value, 4); break;
    case 'q': gguf_write_number(out, value, 8); break;
    case 'f': gguf_write_number(out, real.u, 4); break;
    case 's': gguf_write_number(out, n - 2, 8); buffer_add(out, text + 2, n - 2); break;
    case 'x': buffer_add(out, text + 2, n - 2); break;
    case 'z': for (; value; value--) buffer_add(out, "", 1); break;
    case 'a': while (out->size % value) buffer_add(out, "", 1); break;
    case 'r': for (uint64_t i = 0; i < value; i++) gguf_write_number(out, i * 37 + 11, 1); break;
    default: fprintf(stderr, "gguf_writer: what is %s?\n", text); abort();
    }
}

/* Appends what the line says. */
static inline void gguf_write(struct buffer *out, const char *line)
{
    for (const char *word = line + strspn(line, " "); *word; word += strspn(word, " ")) {
        size_t n = strcspn(word, " ");
        gguf_write_word(out, word, n);
        word += n;
    }
}

#endif
