/* base.h: the few macros that every file uses. */
#ifndef STOA_BASE_BASE_H
#define STOA_BASE_BASE_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define DIV_UP(a, b) (((a) + (b) - 1) / (b))
#define ROUND_UP(a, b) (DIV_UP(a, b) * (b))

/* The struct of that type whose member is at pointer. */
#define CONTAINER_OF(pointer, type, member) ((type *)(void *)((char *)(pointer) - offsetof(type, member)))

#define CACHE_LINE 64

#endif
