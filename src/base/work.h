/* work.h: a region of work, cut into chunks that threads claim one by one.
 *
 * A region is over when all its chunks are done, not when all threads have come by: a thread that the system holds up in
 * between costs nothing while it holds no chunk.  So a busy neighbour on the machine costs what it takes and not more.
 *
 * Regions belong to a step, and steps are numbered.  A thread that is late may still look at the regions of a step that
 * is over: it can claim nothing there, because a claim carries the step's number.  Whoever holds a claim keeps the step
 * open, so what a chunk reads does not change under it. */
#ifndef STOA_BASE_WORK_H
#define STOA_BASE_WORK_H

#include "base/base.h"

#include <stdatomic.h>

struct work {
    _Alignas(CACHE_LINE) atomic_uint_least64_t claim;      /* step << 32 | next chunk */
    atomic_uint n_chunks, n_done, n_sleepers;
};

/* By the thread that leads, before the step's number is made known.  No chunk: the region is over at once. */
void work_prepare(struct work *work, uint32_t step, uint32_t n_chunks);
/* True with a chunk that is this thread's to do, and then to report with work_done(); false when none is left. */
bool work_claim(struct work *work, uint32_t step, uint32_t *chunk);
void work_done(struct work *work);
/* Waits until the region is over: true; or until `current` is no longer `step`: false.  Spins for a moment, if it pays, then
 * sleeps. */
bool work_wait(struct work *work, const atomic_uint *current, uint32_t step, bool spin);

/* Waits while *word is `seen`: spins for up to spin_us, then sleeps and counts itself in n_sleepers. */
void word_wait(atomic_uint *word, unsigned seen, atomic_uint *n_sleepers, int spin_us);
/* After *word has changed: wakes who sleeps on it. */
void word_wake(atomic_uint *word, atomic_uint *n_sleepers);

#endif
