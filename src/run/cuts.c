#include "run/cuts.h"

#include "base/error.h"

#define MOST_PANELS 32

/* Units of the next chunk. */
static uint32_t next_size(uint32_t n_left, uint32_t unit_panels, uint32_t panels_after, uint32_t n_threads)
{
    uint64_t n_panels = (uint64_t)n_left * unit_panels + panels_after, most = MAX(MOST_PANELS / unit_panels, 1);
    if (n_threads == 1)
        return n_left;
    return (uint32_t)MIN(MAX(MIN(n_panels / (2 * n_threads) / unit_panels, most), 1), n_left);
}

int cuts_make(struct cuts *to, struct arena *memory, uint32_t n_items, uint32_t unit, uint32_t unit_panels, uint32_t panels_after,
              uint32_t n_threads)
{
    const uint32_t n_units = DIV_UP(n_items, unit);
    uint32_t *end = arena_array(memory, uint32_t, n_units + 1);
    *to = (struct cuts){ .end = end };
    if (!end)
        return error_set(ERR_NO_MEMORY, "no memory for instructions");
    for (uint32_t at = 0; at < n_units;) {
        at += next_size(n_units - at, unit_panels, panels_after, n_threads);
        end[to->n++] = MIN(at * unit, n_items);
    }
    return 0;
}
