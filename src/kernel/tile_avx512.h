/* tile_avx512.h: matmul_simd.h in 32 registers of 16 lanes, with VNNI's dot product of four bytes. */
#ifndef STOA_KERNEL_TILE_AVX512_H
#define STOA_KERNEL_TILE_AVX512_H

#include "kernel/matmul.h"
#include "kernel/simd.h"

#define UNROLL _Pragma("GCC unroll 16")
#define TILE_ROWS 8
#define PLAIN_ROWS 12
#define TILE_PANELS 2
#define MAX_STRIPS 2
#define PASS_STRIPS(plain, n) ((plain) ? 2 : 1)

#include "kernel/ints_avx512.h"
#include "kernel/panel_simd.h"

#define SIGNED_DOTS(type) false

/* Adds to dot[t] the products of n_steps times four quants, unsigned, with row t of x.  The rows take turns, so that a step
 * waits for none but its own row's. */
INLINE void dots(enum dtype type, int step0, int n_steps, int n, ints *dot, const uint8_t *quants, size_t lane, const uint8_t *x,
                 size_t x_stride)
{
    ints w[8];
    UNROLL for (int j = 0; j < n_steps; j++)
        w[j] = load_quants(type, quants, lane, step0 + j);
    UNROLL for (int j = 0; j < n_steps; j++)
        UNROLL for (int t = 0; t < n; t++)
            dot[t] = _mm512_dpbusd_epi32(dot[t], w[j], quants_all(x + t * x_stride + 4 * (step0 + j)));
}

#include "kernel/matmul_simd.h"

#endif
