/* buffer.h: a growing run of bytes, for text and messages that are built piece by piece.
 *
 * bytes[size] is always 0 when bytes is not NULL, so a buffer of text is a C string.  Memory that runs out sets
 * `failed`, after which every call is a no-op: the caller looks once, at the end. */
#ifndef STOA_BASE_BUFFER_H
#define STOA_BASE_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

struct buffer {
    char *bytes;            /* {0} is an empty buffer, ready for use */
    size_t size, capacity;
    bool failed;
};

void buffer_add(struct buffer *buffer, const void *bytes, size_t n_bytes);
void buffer_add_text(struct buffer *buffer, const char *text);
void buffer_printf(struct buffer *buffer, const char *format, ...) __attribute__((format(printf, 2, 3)));
void buffer_reserve(struct buffer *buffer, size_t n_bytes);     /* room for n_bytes more */
void buffer_release(struct buffer *buffer);                     /* frees; the buffer is empty again */

#endif
