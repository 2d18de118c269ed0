/* matmul_avxvnni.c: matmul_simd.h in 16 registers of 8 lanes, with VNNI's dot product of four bytes: CPUs that have it without AVX-512. */
#include "kernel/matmul.h"
#include "kernel/simd.h"

#define UNROLL _Pragma("GCC unroll 8")
#define TILE_ROWS 8
#define PLAIN_ROWS 1            /* none is made here */
#define TILE_PANELS 1
#define MAX_STRIPS 2
#define PASS_STRIPS(plain, n) ((n) == 1 ? 2 : 1)

#include "kernel/ints_avx2.h"
#include "kernel/panel_simd.h"

#define SIGNED_DOTS(type) false

/* Adds to dot[t] the products of n_steps times four quants, unsigned, with row t of x. */
INLINE void dots(enum dtype type, int step0, int n_steps, int n, ints *dot, const uint8_t *quants, size_t lane, const uint8_t *x,
                 size_t x_stride)
{
    UNROLL for (int j = 0; j < n_steps; j++) {
        ints w = load_quants(type, quants, lane, step0 + j);
        UNROLL for (int t = 0; t < n; t++)
            dot[t] = _mm256_dpbusd_avx_epi32(dot[t], w, quants_all(x + t * x_stride + 4 * (step0 + j)));
    }
}

#include "kernel/matmul_simd.h"

MATMUL_INT8_TYPES(DEFINE_INT8, avxvnni)
