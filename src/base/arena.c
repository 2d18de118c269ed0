#include "base/arena.h"

#include "base/base.h"
#include "base/discard.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct arena_chunk {
    struct arena_chunk *next;
    size_t used, size;
    _Alignas(max_align_t) unsigned char bytes[];
};

void *arena_alloc(struct arena *arena, size_t n_bytes)
{
    struct arena_chunk *chunk = arena->chunks;
    if (n_bytes > SIZE_MAX / 2)
        return NULL;
    n_bytes = ROUND_UP(n_bytes, _Alignof(max_align_t));
    if (!chunk || chunk->size - chunk->used < n_bytes) {
        size_t size = MAX(n_bytes, (size_t)16384);
        chunk = calloc(1, sizeof *chunk + size);
        if (!chunk)
            return NULL;
        chunk->size = size;
        chunk->next = arena->chunks;
        arena->chunks = chunk;
    }
    void *result = chunk->bytes + chunk->used;
    chunk->used += n_bytes;
    return result;
}

char *arena_string(struct arena *arena, const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = arena_alloc(arena, size);
    return copy ? memcpy(copy, text, size) : NULL;
}

char *arena_printf(struct arena *arena, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = n < 0 ? NULL : arena_alloc(arena, (size_t)n + 1);
    if (text)
        vsnprintf(text, (size_t)n + 1, format, again);
    va_end(again);
    return text;
}

void arena_close(struct arena *arena)
{
    while (arena->chunks) {
        struct arena_chunk *next = arena->chunks->next;
        discard_now(arena->chunks, sizeof *next + arena->chunks->size);
        arena->chunks = next;
    }
}
