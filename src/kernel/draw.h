/* draw.h: a draw for each id: a number from the generator, the Gumbel value that it stands for, and a bound of that without a logarithm.
 * Source of the Gumbel form: Maddison, Tarlow, Minka, "A* Sampling" (2014). */
#ifndef STOA_KERNEL_DRAW_H
#define STOA_KERNEL_DRAW_H

#include "base/random.h"
#include "kernel/kernel.h"
#include "kernel/math.h"

/* In (0, 1), from the top 23 bits: with 24 the largest would round to 1. */
static inline float draw_uniform(uint64_t random)
{
    return ((float)(int32_t)(random >> 41) + 0.5f) * 0x1p-23f;
}

#define DRAW_MOST 16.7f         /* no Gumbel value is larger: u is at most 1 - 2^-24 */
static inline float draw_gumbel(uint64_t random)
{
    return -math_log(-math_log(draw_uniform(random)));
}

/* Not less than draw_gumbel(): that is at most -log(1 - u), and a float's bits are its logarithm to base 2 but for a line between powers
 * of 2, which is below the real one. */
static inline float draw_bound(uint64_t random)
{
    union { float f; int32_t i; } rest = { .f = 1 - draw_uniform(random) };
    return (float)(0x3f800000 - rest.i) * (0x1p-23f * 0.6931472f) + 0.001f;
}

/* to[i] = logits[i] / temperature + draw_bound() of the id first_id + i's draw; rounding takes less than the bound has to spare. */
typedef void draw_bounds_fn(float *restrict to, const float *restrict logits, size_t n, uint64_t key, uint64_t first_id, float temperature);
draw_bounds_fn draw_bounds_c, draw_bounds_avx2, draw_bounds_avx512;
/* The one that goes with a set of kernels. */
draw_bounds_fn *draw_bounds_with(const struct kernels *kernels);

#endif
