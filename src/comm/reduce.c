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

/* The bounds [size + 1] of everybody's slices of n floats, in floats (unit 1) or bytes (unit 4). */
static const size_t *slices(struct comm *comm, size_t n, size_t unit)
{
    for (int r = 0; r <= comm->size; r++)
        comm->slices[r] = MIN(n, (size_t)r * slice_length(comm, n)) * unit;
    return comm->slices;
}

static size_t scratch_bytes(const struct comm *comm, const struct comm_tree *tree, size_t longest)
{
    uint32_t n_mine = tree->first[comm->rank + 1] - tree->first[comm->rank], n_others = tree->n_parts - n_mine;
    return MAX(n_others * ROUND_UP(longest, (size_t)SLICE_ALIGN) * sizeof(float), (size_t)CACHE_LINE);
}

size_t comm_all_reduce_scratch(const struct comm *comm, const struct comm_tree *tree, size_t n_max)
{
    size_t longest = n_max;
    if (tree->n_parts > 0 && by_slices(comm, tree->n_parts, n_max))
        longest = MAX(LARGE_BYTES / (tree->n_parts * sizeof(float)), slice_length(comm, n_max));
    return scratch_bytes(comm, tree, longest);
}

size_t comm_reduce_scatter_scratch(const struct comm *comm, const struct comm_tree *tree, size_t n_max)
{
    return scratch_bytes(comm, tree, n_max);
}

struct span {
    size_t begin, n;
};

/* The elements that `rank` sums: its own of the bounds, or all when there are none. */
static struct span span_of(const size_t *bounds, size_t n, int rank)
{
    assert(!bounds || bounds[rank] <= bounds[rank + 1]);
    return bounds ? (struct span){ bounds[rank], bounds[rank + 1] - bounds[rank] } : (struct span){ 0, n };
}

/* Everybody's parts of my span, in part[]; what comes from others comes into scratch. */
static int exchange_parts(struct comm *comm, const float **part, const float *parts, size_t part_stride, const size_t *bounds,
                          size_t n, const struct comm_tree *tree, float *scratch)
{
    struct exchange exchange = exchange_begin(comm);
    struct span mine = span_of(bounds, n, comm->rank);
    uint32_t first = tree->first[comm->rank], end = tree->first[comm->rank + 1];

    for (uint32_t p = first; p < end; p++)
        part[p] = parts + (p - first) * part_stride + mine.begin;
    for (int step = 1; step < comm->size; step++) {
        int to = peer_to(comm, step), from = peer_from(comm, step);
        struct span theirs = span_of(bounds, n, to);
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

/* out[mine] = the sum of everybody's parts of my span. */
static int reduce_span(struct comm *comm, float *out, const float *parts, size_t part_stride, const size_t *bounds, size_t n,
                       const struct comm_tree *tree, void *scratch)
{
    const float *part[COMM_TREE_MAX_PARTS] = { NULL };
    size_t n_mine = span_of(bounds, n, comm->rank).n;
    int err;

    assert(tree->n_parts <= COMM_TREE_MAX_PARTS && tree->first[0] == 0 && tree->first[comm->size] == tree->n_parts);
    if ((err = exchange_parts(comm, part, parts, part_stride, bounds, n, tree, scratch)) < 0)
        return err;
    if (n_mine > 0)
        tree_sum_f32(out, part, tree->n_merges, tree->n_parts, n_mine);
    return 0;
}

int comm_reduce_scatter(struct comm *comm, float *out, const float *parts, size_t part_stride, const size_t *first,
                        const struct comm_tree *tree, void *scratch)
{
    return reduce_span(comm, out, parts, part_stride, first, 0, tree, scratch);
}

int comm_all_reduce(struct comm *comm, float *out, const float *parts, size_t part_stride, size_t n,
                    const struct comm_tree *tree, void *scratch)
{
    const size_t *first;
    int err;

    if (!by_slices(comm, tree->n_parts, n))
        return reduce_span(comm, out, parts, part_stride, NULL, n, tree, scratch);
    first = slices(comm, n, 1);
    if ((err = comm_reduce_scatter(comm, out + first[comm->rank], parts, part_stride, first, tree, scratch)) < 0)
        return err;
    return comm_all_gather_v(comm, out, slices(comm, n, sizeof(float)));
}
