#include "comm/tree.h"

#include "base/base.h"

#include <string.h>

enum {
    MAX_PARTS = 16,
    BLOCK = 256,        /* floats: the stack of a block is at most 16 KiB and stays in L1 */
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

/* One block, [begin, begin + n).  An entry is a part as it came or a sum at its own level of `sums`; only the last addition
 * writes to out, when every part has been pushed, so that out may be a part. */
static void sum_block(float *out, const float *const *part, const uint8_t *n_merges, uint32_t n_parts, size_t begin, size_t n)
{
    _Alignas(CACHE_LINE) float sums[MAX_PARTS][BLOCK];
    const float *stack[MAX_PARTS];
    uint32_t depth = 0;

    for (uint32_t p = 0; p < n_parts; p++) {
        stack[depth++] = part[p] + begin;
        assert(n_merges[p] < depth && "a merge takes two entries");
        for (uint32_t m = 0; m < n_merges[p]; m++) {
            bool last = p + 1 == n_parts && depth == 2;
            float *to = last ? out + begin : sums[depth - 2];
            add(to, stack[depth - 2], stack[depth - 1], n);
            stack[--depth - 1] = to;
        }
    }
    assert(depth == 1 && "one entry is left");
}

void tree_sum_f32(float *out, const float *const *part, const uint8_t *n_merges, uint32_t n_parts, size_t n)
{
    assert(n_parts <= MAX_PARTS);
    if (n_parts == 0) {
        memset(out, 0, n * sizeof *out);
    } else if (n_parts == 1) {
        memmove(out, part[0], n * sizeof *out);
    } else if (n_parts == 2) {
        assert(n_merges[0] == 0 && n_merges[1] == 1);
        add(out, part[0], part[1], n);
    } else {
        for (size_t begin = 0; begin < n; begin += BLOCK)
            sum_block(out, part, n_merges, n_parts, begin, MIN(n - begin, (size_t)BLOCK));
    }
}
