#include "base/buffer.h"

#include "base/base.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buffer_reserve(struct buffer *buffer, size_t n_bytes)
{
    if (buffer->failed || buffer->capacity - buffer->size > n_bytes)
        return;
    size_t capacity = MAX(buffer->size + n_bytes + 1, 2 * buffer->capacity);
    char *bytes = n_bytes < SIZE_MAX / 4 ? realloc(buffer->bytes, capacity) : NULL;
    if (!bytes) {
        buffer->failed = true;
        return;
    }
    buffer->bytes = bytes;
    buffer->capacity = capacity;
    bytes[buffer->size] = 0;
}

void buffer_add(struct buffer *buffer, const void *bytes, size_t n_bytes)
{
    buffer_reserve(buffer, n_bytes);
    if (buffer->failed)
        return;
    if (n_bytes)
        memcpy(buffer->bytes + buffer->size, bytes, n_bytes);
    buffer->size += n_bytes;
    buffer->bytes[buffer->size] = 0;
}

void buffer_add_text(struct buffer *buffer, const char *text)
{
    buffer_add(buffer, text, strlen(text));
}

void buffer_printf(struct buffer *buffer, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n > 0)
        buffer_reserve(buffer, (size_t)n);
    if (n > 0 && !buffer->failed) {
        vsnprintf(buffer->bytes + buffer->size, (size_t)n + 1, format, again);
        buffer->size += (size_t)n;
    }
    va_end(again);
}

void buffer_release(struct buffer *buffer)
{
    free(buffer->bytes);
    *buffer = (struct buffer){ 0 };
}
