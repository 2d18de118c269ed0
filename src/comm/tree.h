/* tree.h: the arithmetic of a reduction, apart from the wire: a stack machine over partial sums. */
#ifndef STOA_COMM_TREE_H
#define STOA_COMM_TREE_H

#include <stddef.h>
#include <stdint.h>

/* out[k][i], i in [0, n): after part p is pushed, n_merges[p] times the two topmost entries become (below + top).  Exactly
 * n_out >= 1 entries are left, bottom to top: the maximal subtrees of these parts.
 *
 * part[p] may be NULL: it is absent and takes no part in the sum.  A merge with one absent child is the other child, bit for
 * bit; of two it is absent; a result that is absent is -0.0f, which added to any number is that number.
 *
 * Parts either are the same place or do not overlap, and so do results, which are all different; a result may be the place
 * of any part.  n_parts <= COMM_TREE_MAX_PARTS. */
void tree_reduce_f32(float *const *out, uint32_t n_out, const float *const *part, const uint8_t *n_merges, uint32_t n_parts, size_t n);

/* With one result.  n_parts = 0 gives zeros. */
void tree_sum_f32(float *out, const float *const *part, const uint8_t *n_merges, uint32_t n_parts, size_t n);

#endif
