/* memory.h: how much memory there is and was. */
#ifndef STOA_BASE_MEMORY_H
#define STOA_BASE_MEMORY_H

#include <stdint.h>

/* Bytes that this process could still take without anything being pushed out or killed: what the system says is available,
 * or what its control group leaves, whichever is less; UINT64_MAX when neither can be read. */
uint64_t memory_available(void);
/* The most that this process has held at once, as the system counts it; 0 when that cannot be read. */
uint64_t memory_peak(void);

#endif
