/* quantize.h: the variants of quantize_fn (kernel.h says what they compute). */
#ifndef STOA_KERNEL_QUANTIZE_H
#define STOA_KERNEL_QUANTIZE_H

#include "kernel/kernel.h"

/* A block whose largest magnitude is below this is zero: 127 / amax stays finite. */
#define QUANTIZE_TINY 1e-30f

quantize_fn quantize_c, quantize_avx2, quantize_avx512, quantize_neon;

/* The block of 32 values of which one is not finite. */
static inline struct act_block act_block_nan(void)
{
    return (struct act_block) { .d = __builtin_nanf(""), .s = __builtin_nanf("") };
}

#endif
