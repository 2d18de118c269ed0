/* route.h: from a router's logits to the experts that a token uses.
 *
 * Portable C only and not in the table of kernel.h: a row has some hundred logits, a ten-thousandth of what its experts cost. */
#ifndef STOA_KERNEL_ROUTE_H
#define STOA_KERNEL_ROUTE_H

#include <stdbool.h>
#include <stdint.h>

#define ROUTE_MAX_EXPERTS 1024

/* One row.  p[e] = exp(l[e] - max) / sum over all e of exp(l[e] - max), the sum in 16 lanes and their fixed tree (kernel.h).
 *
 * The n_used experts of the largest logits are chosen, of equal ones those of lower id (-0 and +0 are equal); ids[n_used] has
 * them in descending order.  weights[i] = p[ids[i]]; with `normalise` divided by the sum of the chosen p, which starts with
 * weights[0] and adds the others in this order; then times `scale`, unless that is 1.
 *
 * A NaN among the logits: all weights are NaN and ids are 0 .. n_used - 1.  An infinite maximum: all weights are NaN, ids are
 * as ever.  1 <= n_used <= n_experts <= ROUTE_MAX_EXPERTS. */
void route_row(int32_t *ids, float *weights, const float *logits, uint32_t n_experts, uint32_t n_used, bool normalise, float scale);

#endif
