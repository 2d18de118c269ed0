/* tiny_gguf.h: a model file without tensors, from a table of keys, for tests and fuzzers of tokenizers.
 *
 *   type   "s" string   "u" u32   "b" bool   "S" "I" "F" "Y" arrays of strings, i32, f32, u8: one element a line of `value`
 *
 * Of two rows with one key the later counts, so that a test is a good table and the row that breaks it; a row of
 * type "" takes the key out. */
#ifndef STOA_TESTS_TINY_GGUF_H
#define STOA_TESTS_TINY_GGUF_H

#include "base/base.h"
#include "base/buffer.h"
#include "format/model_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct tiny_key {
    const char *key, *type, *value;
};

static inline void tiny_number(struct buffer *out, uint64_t value, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++)
        buffer_add(out, &(uint8_t){ (uint8_t)(value >> 8 * i) }, 1);
}

static inline void tiny_text(struct buffer *out, const char *text, size_t n_bytes)
{
    tiny_number(out, n_bytes, 8);
    buffer_add(out, text, n_bytes);
}

static inline void tiny_element(struct buffer *out, char type, const char *text, size_t n_bytes)
{
    union { float f; uint32_t u; } real = { .f = strtof(text, NULL) };
    switch (type | 0x20) {
    case 's': tiny_text(out, text, n_bytes); break;
    case 'f': tiny_number(out, real.u, 4); break;
    case 'b':
    case 'y': tiny_number(out, (uint64_t)atoi(text), 1); break;
    default:  tiny_number(out, (uint64_t)strtoll(text, NULL, 0), 4); break;
    }
}

static inline uint32_t tiny_type(char type)
{
    switch (type | 0x20) {
    case 's': return 8;
    case 'b': return 7;
    case 'f': return 6;
    case 'i': return 5;
    case 'y': return 0;
    default:  return 4;
    }
}

static inline void tiny_array(struct buffer *out, char type, const char *value)
{
    uint64_t n = *value != 0;
    for (const char *c = value; *c; c++)
        n += *c == '\n';
    tiny_number(out, tiny_type(type), 4);
    tiny_number(out, n, 8);
    for (const char *line = value; n; n--, line += strcspn(line, "\n") + 1)
        tiny_element(out, type, line, strcspn(line, "\n"));
}

static inline bool tiny_counts(const struct tiny_key *keys, size_t n, size_t i)
{
    for (size_t later = i + 1; later < n; later++)
        if (!strcmp(keys[i].key, keys[later].key))
            return false;
    return keys[i].type[0];
}

/* Opens it from memory; the program that fails here has no test to run. */
static inline struct model_file *tiny_gguf_open(const struct tiny_key *keys, size_t n)
{
    struct buffer out = { 0 };
    struct model_file *file = NULL;
    char path[64];
    uint64_t n_keys = 0;
    for (size_t i = 0; i < n; i++)
        n_keys += tiny_counts(keys, n, i);
    buffer_add_text(&out, "GGUF");
    tiny_number(&out, 3, 4);
    tiny_number(&out, 0, 8);
    tiny_number(&out, n_keys, 8);
    for (size_t i = 0; i < n; i++) {
        if (!tiny_counts(keys, n, i))
            continue;
        char type = keys[i].type[0];
        bool array = type < 'a';
        tiny_text(&out, keys[i].key, strlen(keys[i].key));
        tiny_number(&out, array ? 9 : tiny_type(type), 4);
        if (array)
            tiny_array(&out, type, keys[i].value);
        else
            tiny_element(&out, type, keys[i].value, strlen(keys[i].value));
    }
    while (out.size % 32)
        buffer_add(&out, "", 1);
    int fd = memfd_create("tiny.gguf", 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (fd < 0 || out.failed || write(fd, out.bytes, out.size) != (ssize_t)out.size || model_file_open(&file, path) < 0) {
        fprintf(stderr, "tiny_gguf: the model could not be made\n");
        abort();
    }
    close(fd);
    buffer_release(&out);
    return file;
}

/* The 256 pieces that byte-level BPE has for single bytes, one a line; free() it. */
static inline char *tiny_byte_pieces(void)
{
    struct buffer out = { 0 };
    uint32_t next = 0x100;
    for (uint32_t byte = 0; byte < 256; byte++) {
        bool itself = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
        uint32_t code = itself ? byte : next++;
        if (code >= 0x80)
            buffer_add(&out, (char[]){ (char)(0xc0 | code >> 6), (char)(0x80 | (code & 0x3f)) }, 2);
        else
            buffer_add(&out, (char[]){ (char)code }, 1);
        buffer_add_text(&out, byte < 255 ? "\n" : "");
    }
    return out.bytes;
}

/* `times` copies of a line, and between them a newline; free() it. */
static inline char *tiny_repeat(const char *line, size_t times)
{
    struct buffer out = { 0 };
    for (size_t i = 0; i < times; i++)
        buffer_printf(&out, i ? "\n%s" : "%s", line);
    return out.bytes;
}

static inline char *tiny_join(const char *a, const char *b)
{
    struct buffer out = { 0 };
    buffer_printf(&out, "%s\n%s", a, b);
    return out.bytes;
}

#endif
