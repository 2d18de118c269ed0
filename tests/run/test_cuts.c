/* Chunks of a product: all of its columns once, in whole units, none too long, and short at the end. */
#include "run/cuts.h"
#include "tests/check.h"

#define MOST_PANELS 32

static void check_cuts(uint32_t n_items, uint32_t unit, uint32_t unit_panels, uint32_t after, uint32_t n_threads)
{
    struct arena memory = { 0 };
    struct cuts cuts;
    uint32_t at = 0, before = UINT32_MAX;
    check_begin("%u items, units of %u (%u panels), %u panels after, %u threads", n_items, unit, unit_panels, after, n_threads);
    check_int(cuts_make(&cuts, &memory, n_items, unit, unit_panels, after, n_threads), 0);
    for (uint32_t i = 0; i < cuts.n; i++) {
        struct range r = cuts_at(&cuts, i);
        uint32_t n_units = (uint32_t)DIV_UP(r.end - r.begin, unit);
        check_int(r.begin, at);
        check(r.end > r.begin && (r.end % unit == 0 || r.end == n_items));
        check(n_threads == 1 || n_units == 1 || n_units * unit_panels <= MOST_PANELS);
        check(n_units <= before);
        before = n_units;
        at = r.end;
    }
    check_int(at, n_items);
    if (n_threads == 1)
        check_int(cuts.n, n_items > 0);
    else if (!after && cuts.n > 1)
        check(cuts.n >= n_threads || cuts.n == DIV_UP(n_items, unit));
    arena_close(&memory);
}

int main(void)
{
    static const uint32_t items[] = { 0, 1, 2, 31, 160, 2001, 16384 }, units[][2] = { { 1, 1 }, { 2, 2 }, { 64, 4 }, { 128, 8 }, { 256, 48 } };
    static const uint32_t threads[] = { 1, 2, 3, 16, 200 };
    for (size_t i = 0; i < COUNT_OF(items); i++)
        for (size_t u = 0; u < COUNT_OF(units); u++)
            for (size_t t = 0; t < COUNT_OF(threads); t++)
                for (uint32_t after = 0; after <= 100; after += 100)
                    check_cuts(items[i], units[u][0], units[u][1], after, threads[t]);

    struct arena memory = { 0 };
    struct cuts cuts;
    check_begin("the last chunk of many is one unit; with panels after it, it is longer");
    cuts_make(&cuts, &memory, 160, 2, 2, 0, 2);
    check_int(cuts_at(&cuts, 0).end, 32);
    check_int(cuts.end[cuts.n - 1] - cuts.end[cuts.n - 2], 2);
    cuts_make(&cuts, &memory, 160, 2, 2, 100, 2);
    check_int(cuts.end[0], 32);
    check(cuts.end[cuts.n - 1] - cuts.end[cuts.n - 2] > 2);
    arena_close(&memory);
    return check_done();
}
