/* tree.h: the arithmetic of a reduction, apart from the wire: a stack machine over partial sums. */
#ifndef STOA_COMM_TREE_H
#define STOA_COMM_TREE_H

#include <stddef.h>
#include <stdint.h>

/* out[i] = the sum over parts p of part[p][i], i in [0, n): after part p is pushed, n_merges[p] times the two topmost
 * entries become (below + top).  Exactly one entry is left.  out may be any of the parts; n_parts <= 16; n_parts = 0 gives
 * zeros. */
void tree_sum_f32(float *out, const float *const *part, const uint8_t *n_merges, uint32_t n_parts, size_t n);

#endif
