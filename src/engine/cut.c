/* cut.c: what top-k and top-p leave of a row, found by its ranks together, where lists of candidates would be long.
 *
 * The cut is a logit and how many of those equal to it are still in.  Its digits, eight bits of the ordered form each, are found
 * from the highest on: every rank makes a histogram of its logits that agree with the digits known so far, all histograms
 * go to all ranks, and the digit is the one in whose bin the count reaches k, or the mass the nucleus.  Counts and masses are
 * integers, so every rank finds the same, and what one rank with the whole row would have found. */
#include "engine/sampler.h"

#include "base/base.h"
#include "kernel/mass.h"

#include <string.h>

/* What is sought: the first of k ids, or the first of top_p of `mass`. */
struct aim {
    uint64_t k;                 /* 0: by mass */
    uint64_t mass;              /* of all ids; the first digit's bins tell */
    float top_p;
};

static bool is_reached(const struct aim *aim, struct sample_bin above, uint64_t n, uint64_t mass)
{
    return aim->k ? above.n + n >= aim->k : sample_is_nucleus(above.mass + mass, aim->mass, aim->top_p);
}

/* Ids that agree in the digits known so far; the first round looks at all of the row that row->cut leaves. */
struct search {
    const struct sample_row *row;
    struct aim *aim;
    float *left;                /* [n_left] */
    uint32_t n_left;
};

/* Of n logits those that agree with `prefix` above the digit, counted by their digit, and written to `left`, which may be where
 * they come from.  row->cut is the first round's to apply: n_ties. */
static void count_run(struct search *s, const float *from, uint32_t n, struct sample_bin *bins, uint32_t prefix, int shift,
                      uint32_t *n_ties)
{
    float *kept = s->left + s->n_left;
    uint64_t mass[SAMPLE_RUN] = { 0 };
    uint32_t n_kept = 0;
    for (uint32_t i = 0; i < n; i++) {              /* without a branch: which ones agree is hard to foresee */
        float logit = from[i];
        bool agrees = (uint64_t)sample_ordered(logit) >> (shift + 8) == prefix;
        kept[n_kept] = logit;
        n_kept += n_ties ? sample_cut_keeps(&s->row->cut, logit, n_ties) : agrees;
    }
    if (!s->aim->k)
        masses_with(s->row->kernels)(mass, kept, n_kept, s->row->max, s->row->params->temperature);
    for (uint32_t i = 0; i < n_kept; i++) {
        struct sample_bin *bin = &bins[sample_ordered(kept[i]) >> shift & (SAMPLE_BINS - 1)];
        bin->n++;
        bin->mass += mass[i];
    }
    s->n_left += n_kept;
}

/* Of this rank's ids, then of all ranks'. */
static int gather_bins(struct search *s, struct comm *tp, struct sample_bin *bins, uint32_t prefix, int shift)
{
    struct sample_bin *own = bins + (size_t)(tp ? comm_rank(tp) : 0) * SAMPLE_BINS;
    bool is_first = shift == 24;
    const float *from = is_first ? s->row->logits : s->left;
    uint32_t n = is_first ? s->row->n : s->n_left, n_ties = 0;
    memset(own, 0, SAMPLE_BINS * sizeof *own);
    s->n_left = 0;
    for (uint32_t i = 0; i < n; i += SAMPLE_RUN)
        count_run(s, from + i, MIN(SAMPLE_RUN, n - i), own, prefix, shift, is_first ? &n_ties : NULL);
    return tp ? comm_all_gather(tp, bins, own, SAMPLE_BINS * sizeof *own) : 0;
}

static struct sample_bin sum_of_bin(const struct sample_bin *bins, uint32_t n_ranks, uint32_t digit)
{
    struct sample_bin sum = { 0 };
    for (uint32_t r = 0; r < n_ranks; r++) {
        sum.n += bins[r * SAMPLE_BINS + digit].n;
        sum.mass += bins[r * SAMPLE_BINS + digit].mass;
    }
    return sum;
}

/* The digit in whose bin the aim is reached, coming down from `above`, to which the bins above it are added; the lowest that
 * has anything when it never is. */
static uint32_t find_digit(const struct aim *aim, struct sample_bin *above, const struct sample_bin *bins, uint32_t n_ranks)
{
    uint32_t lowest = 0;
    while (lowest < SAMPLE_BINS - 1 && !sum_of_bin(bins, n_ranks, lowest).n)
        lowest++;
    for (uint32_t digit = SAMPLE_BINS - 1;; digit--) {
        struct sample_bin bin = sum_of_bin(bins, n_ranks, digit);
        if (digit == lowest || is_reached(aim, *above, bin.n, bin.mass))
            return digit;
        above->n += bin.n;
        above->mass += bin.mass;
    }
}

/* How many of n ties of this mass in all are needed. */
static uint64_t count_ties(const struct aim *aim, struct sample_bin above, struct sample_bin ties)
{
    uint64_t lo = 1, hi = ties.n, each = ties.n ? ties.mass / ties.n : 0;
    while (lo < hi) {
        uint64_t mid = lo + (hi - lo) / 2;
        if (is_reached(aim, above, mid, mid * each))
            hi = mid;
        else
            lo = mid + 1;
    }
    return hi;
}

/* Lower ids are on lower ranks, so those take their ties first. */
static int cut_by(struct sample_row *row, struct comm *tp, struct sample_bin *bins, float *scratch, struct aim *aim)
{
    uint32_t n_ranks = tp ? (uint32_t)comm_size(tp) : 1, rank = tp ? (uint32_t)comm_rank(tp) : 0, threshold = 0;
    struct sample_bin above = { 0 };
    struct search search = { .row = row, .aim = aim, .left = scratch };
    for (int shift = 24; shift >= 0; shift -= 8) {
        int err = gather_bins(&search, tp, bins, threshold, shift);
        if (err < 0)
            return err;
        for (uint32_t b = 0; b < n_ranks * SAMPLE_BINS && shift == 24; b++)
            aim->mass += bins[b].mass;
        threshold = threshold << 8 | find_digit(aim, &above, bins, n_ranks);
    }
    uint32_t digit = threshold & (SAMPLE_BINS - 1);
    uint64_t n_ties = count_ties(aim, above, sum_of_bin(bins, n_ranks, digit));
    for (uint32_t r = 0; r < rank; r++)
        n_ties -= MIN(n_ties, bins[r * SAMPLE_BINS + digit].n);
    row->cut = (struct sample_cut){ threshold, (uint32_t)MIN(n_ties, bins[rank * SAMPLE_BINS + digit].n) };
    return 0;
}

int sample_find_cut(struct sample_row *row, struct comm *tp, struct sample_bin *bins, float *scratch)
{
    const struct sample_params *p = row->params;
    int err = 0;
    row->cut = (struct sample_cut){ 0, UINT32_MAX };
    row->is_cut = true;
    if (p->top_k && p->top_k < row->n_vocab)
        err = cut_by(row, tp, bins, scratch, &(struct aim){ .k = p->top_k });
    if (!err && p->top_p < 1)
        err = cut_by(row, tp, bins, scratch, &(struct aim){ .top_p = p->top_p });
    return err;
}
