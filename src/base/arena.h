/* arena.h: memory with one lifetime.  Everything taken from an arena is freed by arena_close() and not before. */
#ifndef STOA_BASE_ARENA_H
#define STOA_BASE_ARENA_H

#include <stddef.h>

struct arena_chunk;
struct arena {
    struct arena_chunk *chunks;     /* {0} is an empty arena, ready for use */
};

/* Zeroed, aligned for any type; NULL when memory is out. */
void *arena_alloc(struct arena *arena, size_t n_bytes);
char *arena_string(struct arena *arena, const char *text);
char *arena_printf(struct arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
void arena_close(struct arena *arena);

#define arena_new(arena, type) ((type *)arena_alloc(arena, sizeof(type)))
#define arena_array(arena, type, n) ((type *)arena_alloc(arena, (size_t)(n) * sizeof(type)))

#endif
