/* matmul_avx2.c: matmul_simd.h in 16 registers of 8 lanes, with a dot product of bytes made of 16-bit steps. */
#include "kernel/matmul.h"
#include "kernel/simd.h"

#define UNROLL _Pragma("GCC unroll 8")
#define TILE_ROWS 8
#define PLAIN_ROWS 4
#define TILE_PANELS 1
#define MAX_STRIPS 2
#define PASS_STRIPS(plain, n) ((plain) || (n) == 1 ? 2 : 1)

#include "kernel/ints_avx2.h"
#include "kernel/panel_simd.h"

/* Products are made in 16 bits, two together, so the left one must be unsigned and both small.  Quants of at most five bits are
 * left unsigned; of the others magnitudes are taken, with their signs moved to x, whose quants are never -128 (their sign
 * could not be changed). */
#define SIGNED_DOTS(type) (quant_info[type].offset > 16 || (quant_info[type].offset && quant_info[type].n_scales == 2))

/* Pairs of products of the largest quants that 16 bits hold the sum of. */
INLINE int steps_in_16_bits(enum dtype type)
{
    return 32767 / (2 * 127 * (SIGNED_DOTS(type) ? quant_info[type].offset : (1 << quant_info[type].bits) - 1));
}

/* gcc would make a tree of the sums of 16 bits, multiply everything first, and spill what 16 registers cannot hold. */
#define KEEP_ORDER(sum) __asm__("" : "+x"(sum))

/* Adds to dot[t] the products of n_steps times four quants, as signed as SIGNED_DOTS says, with row t of x. */
INLINE void dots(enum dtype type, int step0, int n_steps, int n, ints *dot, const uint8_t *quants, size_t lane, const uint8_t *x,
                 size_t x_stride)
{
    const int n_together = MIN(steps_in_16_bits(type), n_steps);
    ints pairs[TILE_ROWS];
    UNROLL for (int j = 0; j < n_steps; j++) {
        ints w = load_quants(type, quants, lane, step0 + j), magnitude = w;
        if (SIGNED_DOTS(type)) {
            w = _mm256_sub_epi8(w, _mm256_set1_epi8((char)quant_info[type].offset));
            magnitude = _mm256_abs_epi8(w);
        }
        UNROLL for (int t = 0; t < n; t++) {
            ints q = quants_all(x + t * x_stride + 4 * (step0 + j));
            ints products = _mm256_maddubs_epi16(magnitude, SIGNED_DOTS(type) ? _mm256_sign_epi8(q, w) : q);
            pairs[t] = j % n_together ? _mm256_add_epi16(pairs[t], products) : products;
            KEEP_ORDER(pairs[t]);
            if ((j + 1) % n_together == 0) {
                dot[t] = ints_add(dot[t], _mm256_madd_epi16(pairs[t], _mm256_set1_epi16(1)));
                KEEP_ORDER(dot[t]);
            }
        }
    }
}

#include "kernel/matmul_simd.h"

DEFINE_MATMULS(avx2)
