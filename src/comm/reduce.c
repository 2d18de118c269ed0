/* reduce.c: partial sums to sums: parts travel, comm/tree.h adds. */
#include "comm/comm.h"

#include "base/base.h"
#include "comm/exchange.h"
#include "comm/transport.h"
#include "comm/tree.h"

enum {
    SLICE_ALIGN = 16,                   /* floats: slices and received parts begin on a cache line */
    LARGE_BYTES = 65536,                /* of all parts together: from here on each rank sums a slice */
};

/* Slices are chosen by bytes and ranks alone, so every rank chooses the same.  Between two ranks a slice moves as many bytes
 * as a whole part does, later. */
static bool by_slices(const struct comm *comm, uint32_t n_parts, size_t n)
{
    return comm->size > 2 && n * n_parts * sizeof(float) > LARGE_BYTES;
}

/* Floats of a slice; the last ones of the group may be shorter or empty. */
static size_t slice_length(const struct comm *comm, size_t n)
{
    return ROUND_UP(DIV_UP(n, (size_t)comm->size), (size_t)SLICE_ALIGN);
}

struct span {
    size_t begin, n;
};

/* The elements that `rank` sums: its slice, or all. */
static struct span span_of(const struct comm *comm, bool slices, size_t n, int rank)
{
    size_t length = slice_length(comm, n), begin = MIN(n, (size_t)rank * length);
    return slices ? (struct span){ begin, MIN(length, n - begin) } : (struct span){ 0, n };
}

size_t comm_all_reduce_scratch(const struct comm *comm, const struct comm_tree *tree, size_t n_max)
{
    uint32_t n_mine = tree->first[comm->rank + 1] - tree->first[comm->rank], n_others = tree->n_parts - n_mine;
    size_t longest = n_max;
    if (tree->n_parts > 0 && by_slices(comm, tree->n_parts, n_max))
        longest = MAX(LARGE_BYTES / (tree->n_parts * sizeof(float)), slice_length(comm, n_max));
    return MAX(n_others * ROUND_UP(longest, (size_t)SLICE_ALIGN) * sizeof(float), (size_t)CACHE_LINE);
}

/* Everybody's parts of my span, in part[]; what comes from others comes into scratch. */
static int exchange_parts(struct comm *comm, const float **part, const float *parts, size_t part_stride, size_t n, bool slices,
                          const struct comm_tree *tree, float *scratch)
{
    struct exchange exchange = exchange_begin(comm);
    struct span mine = span_of(comm, slices, n, comm->rank);
    uint32_t first = tree->first[comm->rank], end = tree->first[comm->rank + 1];

    for (uint32_t p = first; p < end; p++)
        part[p] = parts + (p - first) * part_stride + mine.begin;
    for (int step = 1; step < comm->size; step++) {
        int to = peer_to(comm, step), from = peer_from(comm, step);
        struct span theirs = span_of(comm, slices, n, to);
        for (uint32_t p = first; p < end && theirs.n > 0; p++)
            exchange_send(&exchange, comm, parts + (p - first) * part_stride + theirs.begin, theirs.n * sizeof(float), to);
        for (uint32_t p = tree->first[from]; p < tree->first[from + 1] && mine.n > 0; p++) {
            exchange_receive(comm, scratch, mine.n * sizeof(float), from);
            part[p] = scratch;
            scratch += ROUND_UP(mine.n, (size_t)SLICE_ALIGN);
        }
    }
    return exchange_finish(&exchange, comm, false);
}

static int exchange_sums(struct comm *comm, float *out, size_t n)
{
    struct exchange exchange = exchange_begin(comm);
    struct span mine = span_of(comm, true, n, comm->rank);
    for (int step = 1; step < comm->size; step++) {
        struct span theirs = span_of(comm, true, n, peer_from(comm, step));
        if (mine.n > 0)
            exchange_send(&exchange, comm, out + mine.begin, mine.n * sizeof(float), peer_to(comm, step));
        if (theirs.n > 0)
            exchange_receive(comm, out + theirs.begin, theirs.n * sizeof(float), peer_from(comm, step));
    }
    return exchange_finish(&exchange, comm, false);
}

int comm_all_reduce(struct comm *comm, float *out, const float *parts, size_t part_stride, size_t n,
                    const struct comm_tree *tree, void *scratch)
{
    const float *part[COMM_TREE_MAX_PARTS] = { NULL };
    bool slices = by_slices(comm, tree->n_parts, n);
    struct span mine = span_of(comm, slices, n, comm->rank);
    int err;

    assert(tree->n_parts <= COMM_TREE_MAX_PARTS && tree->first[0] == 0 && tree->first[comm->size] == tree->n_parts);
    if ((err = exchange_parts(comm, part, parts, part_stride, n, slices, tree, scratch)) < 0)
        return err;
    if (mine.n > 0)
        tree_sum_f32(out + mine.begin, part, tree->n_merges, tree->n_parts, mine.n);
    return slices ? exchange_sums(comm, out, n) : 0;
}
