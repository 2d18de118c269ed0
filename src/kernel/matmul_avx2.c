/* matmul_avx2.c: matmul_simd.h in 16 registers of 8 lanes, with a dot product of bytes made of 16-bit steps. */
#include "kernel/matmul.h"
#include "kernel/simd.h"

#define UNROLL _Pragma("GCC unroll 8")
#define TILE_ROWS 4
#define TILE_PANELS 1
#define PASS_STRIPS(plain, n) ((plain) || (n) == 1 ? 2 : 1)

typedef __m256i ints;
INLINE ints ints_all(int x) { return _mm256_set1_epi32(x); }
INLINE ints ints_load(const uint8_t *from) { return _mm256_loadu_si256((const void *)from); }
INLINE ints ints_and(ints a, ints b) { return _mm256_and_si256(a, b); }
INLINE ints ints_sub(ints a, ints b) { return _mm256_sub_epi32(a, b); }
INLINE ints ints_shift_right(ints a, int bits) { return _mm256_srli_epi32(a, bits); }
INLINE vec vec_from_ints(ints a) { return _mm256_cvtepi32_ps(a); }

/* Four quants of x for every lane. */
INLINE ints quants_all(const uint8_t *from)
{
    int v;
    memcpy(&v, from, sizeof v);
    return ints_all(v);
}

/* Four products of unsigned nibbles, in pairs of 16 bits.  A block's eight sums stay below 2^15: 8 * 2 * 15 * 127 = 30,480. */
INLINE ints nibbles_step(ints dot, ints w, ints q)
{
    return _mm256_add_epi16(dot, _mm256_maddubs_epi16(w, q));
}

/* Four products of bytes, in 32 bits.  Two products of unsigned bytes would not fit in 16 bits (2 * 255 * 127); magnitudes
 * of w do (2 * 128 * 127), with the signs of w moved to q.  q is never -128, whose sign could not be changed. */
INLINE ints bytes_step(ints dot, ints w, ints q)
{
    ints pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(q, w));
    return _mm256_add_epi32(dot, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

/* dot[t] = the dot products of a block's quants, as signed as the type says, with row t of x. */
INLINE void dots(enum dtype type, int n, ints *dot, const uint8_t *quants, const uint8_t *x, size_t x_stride)
{
    UNROLL for (int t = 0; t < n; t++)
        dot[t] = _mm256_setzero_si256();
    UNROLL for (int j = 0; j < 8; j++) {
        ints w = ints_load(quants + (type == DTYPE_Q8_0 ? j : j % 4) * 64);
        if (type == DTYPE_Q8_0)
            w = _mm256_xor_si256(w, _mm256_set1_epi8(-128));
        else
            w = _mm256_and_si256(j < 4 ? w : _mm256_srli_epi16(w, 4), _mm256_set1_epi8(15));
        UNROLL for (int t = 0; t < n; t++) {
            ints q = quants_all(x + t * x_stride + 4 * j);
            dot[t] = type == DTYPE_Q8_0 ? bytes_step(dot[t], w, q) : nibbles_step(dot[t], w, q);
        }
    }
    UNROLL for (int t = 0; t < n; t++) {
        if (type != DTYPE_Q8_0)
            dot[t] = _mm256_madd_epi16(dot[t], _mm256_set1_epi16(1));
        if (type == DTYPE_Q4_0)
            dot[t] = _mm256_add_epi32(dot[t], ints_all(((const struct act_block *)(const void *)(x + t * x_stride))->start8));
    }
}

#include "kernel/matmul_simd.h"

DEFINE_MATMULS(avx2)
