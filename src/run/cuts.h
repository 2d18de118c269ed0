/* cuts.h: how the columns of a product are cut into chunks of work.
 *
 * Long chunks stream weights; short ones at the end let threads end together.  So a chunk is a share of what is left, that of a
 * thread halved, as in guided self-scheduling (Polychronopoulos and Kuck, "Guided Self-Scheduling", 1987), with a limit so that
 * the others do not wait long for a thread that has lost its core. */
#ifndef STOA_RUN_CUTS_H
#define STOA_RUN_CUTS_H

#include "base/arena.h"
#include "base/base.h"
#include "graph/partition.h"

/* Chunk i is items end[i - 1] .. end[i]. */
struct cuts {
    uint32_t n;
    const uint32_t *end;        /* [n], in the arena */
};

static inline struct range cuts_at(const struct cuts *cuts, uint32_t i)
{
    return (struct range){ i ? cuts->end[i - 1] : 0, cuts->end[i] };
}

/* Cuts n_items into whole units (but for the last), each unit_panels of weights; panels_after: what the same region has after these.
 * ERR_NO_MEMORY */
int cuts_make(struct cuts *to, struct arena *memory, uint32_t n_items, uint32_t unit, uint32_t unit_panels, uint32_t panels_after,
              uint32_t n_threads);

#endif
