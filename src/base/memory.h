/* memory.h: how much memory there is and was, and how malloc() deals with it. */
#ifndef STOA_BASE_MEMORY_H
#define STOA_BASE_MEMORY_H

#include <stdint.h>

/* Bytes that this process could still take without anything being pushed out or killed: what the system says is available,
 * or what its control group leaves, whichever is less; UINT64_MAX when neither can be read. */
uint64_t memory_available(void);
/* The most that this process has held at once, as the system counts it; 0 when that cannot be read. */
uint64_t memory_peak(void);

/* For a process that runs for months, before it has threads: its memory stays flat, and long buffers neither move when they grow nor
 * stay when they are freed.  Each of its threads then calls memory_fill_caches(). */
void memory_settle(void);
/* malloc() keeps seven freed blocks of each small size for each thread.  As they come in the course of a day each holds a page of its own;
 * taken at once they lie together, in 250 KB. */
void memory_fill_caches(void);

#endif
