#include "comm/tree.h"

#include "base/base.h"
#include "comm/comm.h"

#include <string.h>

enum {
    MAX_PARTS = COMM_TREE_MAX_PARTS,
    BLOCK = 256,        /* floats: 1 KiB for a level of the stack, of which few are in use: it stays in L1 */
};

/* to may be a or b: an element is read before it is written, and no element depends on another. */
static void add(float *to, const float *a, const float *b, size_t n)
{
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
    for (size_t i = 0; i < n; i++)
        to[i] = a[i] + b[i];
}

/* What below + top becomes, with `to` as the place of a sum and top_sums as the one that top has if it is a sum.  Both may
 * be absent. */
static const float *merge(float *to, const float *below, const float *top, const float *top_sums, size_t n)
{
    if (below && top)
        add(to, below, top, n);
    else if (top == top_sums)
        memcpy(to, top, n * sizeof *to);        /* its place is the next one's that is pushed */
    else
        return below ? below : top;
    return to;
}

/* One block, [begin, begin + n).  An entry is absent (NULL), a part as it came or a sum at its own level of `sums`, until all
 * parts have been read: then results are written, so that any of them may be the place of a part.  A sum of all parts goes
 * to its result at once, by the last addition. */
static void reduce_block(float *const *out, uint32_t n_out, const float *const *part, const uint8_t *n_merges, uint32_t n_parts,
                         size_t begin, size_t n)
{
    _Alignas(CACHE_LINE) float sums[MAX_PARTS][BLOCK];
    const float *stack[MAX_PARTS];
    uint32_t depth = 0;

    for (uint32_t p = 0; p < n_parts; p++) {
        stack[depth++] = part[p] ? part[p] + begin : NULL;
        assert(n_merges[p] < depth && "a merge takes two entries");
        for (uint32_t m = 0; m < n_merges[p]; m++) {
            bool last = p + 1 == n_parts && depth == 2;
            float *to = last ? out[0] + begin : sums[depth - 2];
            stack[depth - 2] = merge(to, stack[depth - 2], stack[depth - 1], sums[depth - 1], n);
            depth--;
        }
    }
    assert(depth == n_out && "one entry is left for each result");
    for (uint32_t k = 0; k < n_out && n_out > 1; k++)
        if (stack[k] && stack[k] != sums[k])
            stack[k] = memcpy(sums[k], stack[k], n * sizeof *sums[k]);
    for (uint32_t k = 0; k < n_out; k++) {
        for (size_t i = 0; i < n && !stack[k]; i++)
            out[k][begin + i] = -0.0f;
        if (stack[k] && stack[k] != out[k] + begin)
            memcpy(out[k] + begin, stack[k], n * sizeof *sums[k]);
    }
}

void tree_reduce_f32(float *const *out, uint32_t n_out, const float *const *part, const uint8_t *n_merges, uint32_t n_parts, size_t n)
{
    assert(n_parts <= MAX_PARTS && n_out <= n_parts);
    if (n_parts == 2 && n_out == 1 && part[0] && part[1]) {
        assert(n_merges[0] == 0 && n_merges[1] == 1);
        add(out[0], part[0], part[1], n);
        return;
    }
    for (size_t begin = 0; begin < n; begin += BLOCK)
        reduce_block(out, n_out, part, n_merges, n_parts, begin, MIN(n - begin, (size_t)BLOCK));
}

void tree_sum_f32(float *out, const float *const *part, const uint8_t *n_merges, uint32_t n_parts, size_t n)
{
    if (n_parts == 0)
        memset(out, 0, n * sizeof *out);
    else
        tree_reduce_f32(&out, 1, part, n_merges, n_parts, n);
}
