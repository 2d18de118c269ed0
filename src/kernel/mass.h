/* mass.h: exp((logit - max) / t) in fixed point: integers, so that a sum of them is the same in any order and any split.
 *
 * One formula in f64 without fused steps, and without a branch, which compilers put into vectors of any width without changing a bit:
 *   x = (max - logit) / t in f32, 0 or more; -x = n ln 2 + r, |r| <= ln(2) / 2; exp(-x) = 2^n (1 + r + r^2 / 2! + .. + r^8 / 8!)
 * relative error below 1e-9; then down to a multiple of 2^-40, so that many small ones are not more than they are.  From MASS_FLOOR on,
 * where there is nothing left of it, 0. */
#ifndef STOA_KERNEL_MASS_H
#define STOA_KERNEL_MASS_H

#include "kernel/kernel.h"

#define MASS_ONE 0x1p40         /* 2^18 ids of mass 1 still fit 64 bits with room */
#define MASS_FLOOR 28.0f        /* exp(-28) is under 2^-40 */

/* No logit is above max. */
static inline uint64_t mass_of(float logit, float max, float temperature)
{
    const double shifter = 0x1.8p52, fixed = 0x1p52;        /* either leaves an integer in the low bits of a sum */
    union { float f; uint32_t u; } x = { .f = (max - logit) / temperature }, most = { .f = MASS_FLOOR };
    union { double f; uint64_t u; } n, power, mass;
    x.u = x.u < most.u ? x.u : most.u;                      /* positive floats and their bits have one order, above which NaN is */
    double below = -(double)x.f, r, p;
    n.f = below * 0x1.71547652b82fep+0 + shifter;
    r = below - (n.f - shifter) * 0x1.62e42fefa39efp-1;
    p = 1 + r * (1 + r * (1.0 / 2 + r * (1.0 / 6 + r * (1.0 / 24 + r * (1.0 / 120 + r * (1.0 / 720 + r * (1.0 / 5040 + r * (1.0 / 40320))))))));
    power.f = p;
    power.u += n.u << 52;
    mass.f = power.f * MASS_ONE - 0.5 + fixed;
    mass.u -= 0x4330000000000000u;                          /* the bits of `fixed` */
    return mass.u;
}

/* to[i] = mass_of(logits[i], max, temperature) */
typedef void masses_fn(uint64_t *restrict to, const float *restrict logits, size_t n, float max, float temperature);
masses_fn masses_c, masses_avx2, masses_avx512;
/* The one that goes with a set of kernels. */
masses_fn *masses_with(const struct kernels *kernels);

#endif
