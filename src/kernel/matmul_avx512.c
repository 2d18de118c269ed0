/* matmul_avx512.c: matmul_simd.h in 32 registers of 16 lanes, with VNNI's dot product of four bytes. */
#include "kernel/matmul.h"
#include "kernel/simd.h"

#define UNROLL _Pragma("GCC unroll 8")
#define TILE_ROWS 8
#define TILE_PANELS 2
#define PASS_STRIPS(plain, n) ((plain) ? 2 : 1)

typedef __m512i ints;
INLINE ints ints_all(int x) { return _mm512_set1_epi32(x); }
INLINE ints ints_load(const uint8_t *from) { return _mm512_loadu_si512(from); }
INLINE ints ints_and(ints a, ints b) { return _mm512_and_si512(a, b); }
INLINE ints ints_sub(ints a, ints b) { return _mm512_sub_epi32(a, b); }
INLINE ints ints_add(ints a, ints b) { return _mm512_add_epi32(a, b); }
INLINE ints ints_or_and(ints a, ints b, ints c) { return _mm512_ternarylogic_epi32(a, b, c, 0xf8); }     /* a | (b & c) */
INLINE ints ints_shift16_left(ints a, int bits) { return _mm512_slli_epi16(a, (unsigned)bits); }
INLINE ints ints_shift16_right(ints a, int bits) { return _mm512_srli_epi16(a, (unsigned)bits); }
INLINE ints ints_shift_right(ints a, int bits) { return _mm512_srli_epi32(a, (unsigned)bits); }
/* The sum of two products of 16-bit halves. */
INLINE ints ints_madd16(ints a, ints b) { return _mm512_madd_epi16(a, b); }
INLINE ints ints_from_bytes(const uint8_t *from) { return _mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)from)); }
INLINE vec vec_from_ints(ints a) { return _mm512_cvtepi32_ps(a); }

/* values[q] + 128 for every byte. */
INLINE ints ints_look_up(const int8_t *values, ints q)
{
    ints table = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)values));
    return _mm512_shuffle_epi8(_mm512_xor_si512(table, _mm512_set1_epi8(-128)), q);
}

/* e8m0_half_to_f32(): below 2 the second is larger, from 2 on the first. */
INLINE vec vec_from_e8m0_half(const uint8_t *from)
{
    ints e = ints_and(ints_from_bytes(from), ints_all(255));
    return _mm512_castsi512_ps(_mm512_max_epi32(_mm512_slli_epi32(ints_sub(e, ints_all(1)), 23),
                                                _mm512_slli_epi32(ints_add(e, ints_all(1)), 21)));
}

/* Four quants of x for every lane. */
INLINE ints quants_all(const uint8_t *from)
{
    int v;
    memcpy(&v, from, sizeof v);
    return ints_all(v);
}

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

DEFINE_MATMULS(avx512)
