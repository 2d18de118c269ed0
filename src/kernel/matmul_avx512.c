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
INLINE ints ints_shift_right(ints a, int bits) { return _mm512_srli_epi32(a, (unsigned)bits); }
INLINE vec vec_from_ints(ints a) { return _mm512_cvtepi32_ps(a); }

/* Four quants of x for every lane. */
INLINE ints quants_all(const uint8_t *from)
{
    int v;
    memcpy(&v, from, sizeof v);
    return ints_all(v);
}

/* w[j] = quants of k = 4 j to 4 j + 3, unsigned. */
INLINE void unpack(enum dtype type, ints w[8], const uint8_t *quants)
{
    const ints low = _mm512_set1_epi8(15);
    if (type == DTYPE_Q8_0)
        UNROLL for (int j = 0; j < 8; j++)
            w[j] = ints_load(quants + 64 * j);
    else
        UNROLL for (int j = 0; j < 4; j++) {
            ints nibbles = ints_load(quants + 64 * j);
            w[j] = ints_and(nibbles, low);
            w[j + 4] = ints_and(_mm512_srli_epi16(nibbles, 4), low);
        }
}

/* dot[t] = the dot products of a block's quants, as signed as the type says, with row t of x.  The rows take turns, so
 * that a step waits for none but its own row's. */
INLINE void dots(enum dtype type, int n, ints *dot, const uint8_t *quants, const uint8_t *x, size_t x_stride)
{
    ints w[8];
    unpack(type, w, quants);
    UNROLL for (int t = 0; t < n; t++) {
        const struct act_block *a = (const void *)(x + t * x_stride);
        dot[t] = type == DTYPE_Q8_0 ? ints_all(a->start128) : type == DTYPE_Q4_0 ? ints_all(a->start8) : ints_all(0);
    }
    UNROLL for (int j = 0; j < 8; j++)
        UNROLL for (int t = 0; t < n; t++)
            dot[t] = _mm512_dpbusd_epi32(dot[t], w[j], quants_all(x + t * x_stride + 4 * j));
}

#include "kernel/matmul_simd.h"

DEFINE_MATMULS(avx512)
