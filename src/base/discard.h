/* discard.h: large memory given back a piece at a time.
 *
 * free() of 60 MB takes the kernel more than 10 ms, in which whoever called waits, and whoever else in the process maps memory. */
#ifndef STOA_BASE_DISCARD_H
#define STOA_BASE_DISCARD_H

#include <stdbool.h>
#include <stddef.h>

struct discard {                /* {0}: nothing to give back */
    struct discarded *first;
};
/* Takes over what malloc() gave (NULL: nothing), of which so many bytes may have been written; a small one is freed here. */
void discard_add(struct discard *discard, void *bytes, size_t n_bytes);
/* Gives back a MB, which takes well under a millisecond; false: nothing is left. */
bool discard_step(struct discard *discard);
/* All of one, for a thread that may take its time. */
void discard_now(void *bytes, size_t n_bytes);

#endif
