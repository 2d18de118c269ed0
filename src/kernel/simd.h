/* simd.h: one set of names for a vector of f32 in each instruction set, chosen by the flags that a file is compiled with.
 *
 * A body written in these words (rows_simd.h, attention_simd.h) is compiled once per instruction set; the file that
 * includes it defines SIMD(name) as name_avx2 or the like.  Every word is one rounding, or exact, so that it gives the
 * same bits in every set, and the same as the portable C. */
#ifndef STOA_KERNEL_SIMD_H
#define STOA_KERNEL_SIMD_H

#include "base/dtype.h"
#include "kernel/math.h"

#include <math.h>
#include <string.h>

#define ALWAYS_INLINE inline __attribute__((always_inline))

#ifdef __x86_64__
#include <immintrin.h>
#else
#include "kernel/simd_neon.h"
#endif

#if defined __AVX512F__

#define LANES 16
typedef __m512 vec;

static ALWAYS_INLINE vec vec_all(float x) { return _mm512_set1_ps(x); }
static ALWAYS_INLINE vec vec_load(const float *from) { return _mm512_loadu_ps(from); }
static ALWAYS_INLINE void vec_store(float *to, vec x) { _mm512_storeu_ps(to, x); }
static ALWAYS_INLINE vec vec_add(vec a, vec b) { return _mm512_add_ps(a, b); }
static ALWAYS_INLINE vec vec_sub(vec a, vec b) { return _mm512_sub_ps(a, b); }
static ALWAYS_INLINE vec vec_mul(vec a, vec b) { return _mm512_mul_ps(a, b); }
static ALWAYS_INLINE vec vec_div(vec a, vec b) { return _mm512_div_ps(a, b); }
static ALWAYS_INLINE vec vec_neg(vec a) { return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f)); }
/* Bit by bit: the sign of x alone, what is left without it, and both together. */
static ALWAYS_INLINE vec vec_sign(vec x) { return _mm512_and_ps(x, _mm512_set1_ps(-0.0f)); }
static ALWAYS_INLINE vec vec_abs(vec x) { return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), x); }
static ALWAYS_INLINE vec vec_or(vec a, vec b) { return _mm512_or_ps(a, b); }
static ALWAYS_INLINE vec vec_fma(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }         /* a b + c */
static ALWAYS_INLINE vec vec_fms(vec a, vec b, vec c) { return _mm512_fmsub_ps(a, b, c); }         /* a b - c */
/* The larger; b where either is NaN. */
static ALWAYS_INLINE vec vec_max(vec a, vec b) { return _mm512_max_ps(a, b); }
/* if_true where a > b or a >= b, else if_false; a comparison with NaN is false */
static ALWAYS_INLINE vec vec_if_greater(vec a, vec b, vec if_true, vec if_false)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ), if_false, if_true);
}
static ALWAYS_INLINE vec vec_if_at_least(vec a, vec b, vec if_true, vec if_false)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_GE_OQ), if_false, if_true);
}
static ALWAYS_INLINE vec vec_if_nan(vec a, vec if_true, vec if_false)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), if_false, if_true);
}
/* p times 2^n, by adding the low 9 bits of `shifted`, which hold n, to the exponent */
static ALWAYS_INLINE vec vec_add_exponent(vec p, vec shifted)
{
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), _mm512_slli_epi32(_mm512_castps_si512(shifted), 23)));
}

/* Lanes 0 .. 7 and 8 .. 15 of 16 */
static ALWAYS_INLINE __m256 lanes_low(const vec *lanes) { return _mm512_castps512_ps256(lanes[0]); }
static ALWAYS_INLINE __m256 lanes_high(const vec *lanes) { return _mm512_extractf32x8_ps(lanes[0], 1); }

/* The first n of a vector, 0 <= n <= LANES: what follows in memory is not touched, what follows in the vector is +0. */
static ALWAYS_INLINE __mmask16 first_lanes(size_t n) { return (__mmask16)((1u << n) - 1); }
static ALWAYS_INLINE vec vec_load_part(const float *from, size_t n) { return _mm512_maskz_loadu_ps(first_lanes(n), from); }
static ALWAYS_INLINE void vec_store_part(float *to, vec x, size_t n) { _mm512_mask_storeu_ps(to, first_lanes(n), x); }

/* 16-bit elements */
typedef __m256i half_vec;
static ALWAYS_INLINE half_vec half_load(const uint16_t *from) { return _mm256_loadu_si256((const void *)from); }
static ALWAYS_INLINE half_vec half_load_part(const uint16_t *from, size_t n)
{
    return _mm256_maskz_loadu_epi16(first_lanes(n), from);
}
static ALWAYS_INLINE void half_store(uint16_t *to, half_vec x) { _mm256_storeu_si256((void *)to, x); }
static ALWAYS_INLINE vec vec_from_f16(half_vec x) { return _mm512_cvtph_ps(x); }
static ALWAYS_INLINE vec vec_from_bf16(half_vec x)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}
static ALWAYS_INLINE half_vec vec_to_f16(vec x) { return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT); }
static ALWAYS_INLINE half_vec vec_to_bf16(vec x)        /* to even, by carry; a NaN keeps its top and is made quiet */
{
    __m512i bits = _mm512_castps_si512(x), high = _mm512_srli_epi32(bits, 16);
    __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    __m512i even = _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
    __m512i quiet = _mm512_or_si512(high, _mm512_set1_epi32(0x40));
    return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(even, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), quiet));
}

static ALWAYS_INLINE vec vec_from_i8(const int8_t *from)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)from)));
}

/* Pairs x0 y0 x1 y1 .. in two vectors, to the xs and the ys, and back. */
static ALWAYS_INLINE void vec_unzip(vec a, vec b, vec *x, vec *y)
{
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    *x = _mm512_permutex2var_ps(a, even, b);
    *y = _mm512_permutex2var_ps(a, _mm512_add_epi32(even, _mm512_set1_epi32(1)), b);
}
static ALWAYS_INLINE void vec_zip(vec x, vec y, vec *a, vec *b)
{
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    *a = _mm512_permutex2var_ps(x, low, y);
    *b = _mm512_permutex2var_ps(x, _mm512_add_epi32(low, _mm512_set1_epi32(8)), y);
}

#elif defined __AVX2__ /* and FMA, F16C */

#define LANES 8
typedef __m256 vec;

static ALWAYS_INLINE vec vec_all(float x) { return _mm256_set1_ps(x); }
static ALWAYS_INLINE vec vec_load(const float *from) { return _mm256_loadu_ps(from); }
static ALWAYS_INLINE void vec_store(float *to, vec x) { _mm256_storeu_ps(to, x); }
static ALWAYS_INLINE vec vec_add(vec a, vec b) { return _mm256_add_ps(a, b); }
static ALWAYS_INLINE vec vec_sub(vec a, vec b) { return _mm256_sub_ps(a, b); }
static ALWAYS_INLINE vec vec_mul(vec a, vec b) { return _mm256_mul_ps(a, b); }
static ALWAYS_INLINE vec vec_div(vec a, vec b) { return _mm256_div_ps(a, b); }
static ALWAYS_INLINE vec vec_neg(vec a) { return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f)); }
static ALWAYS_INLINE vec vec_sign(vec x) { return _mm256_and_ps(x, _mm256_set1_ps(-0.0f)); }
static ALWAYS_INLINE vec vec_abs(vec x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }
static ALWAYS_INLINE vec vec_or(vec a, vec b) { return _mm256_or_ps(a, b); }
static ALWAYS_INLINE vec vec_fma(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); }
static ALWAYS_INLINE vec vec_fms(vec a, vec b, vec c) { return _mm256_fmsub_ps(a, b, c); }
static ALWAYS_INLINE vec vec_max(vec a, vec b) { return _mm256_max_ps(a, b); }
static ALWAYS_INLINE vec vec_if_greater(vec a, vec b, vec if_true, vec if_false)
{
    return _mm256_blendv_ps(if_false, if_true, _mm256_cmp_ps(a, b, _CMP_GT_OQ));
}
static ALWAYS_INLINE vec vec_if_at_least(vec a, vec b, vec if_true, vec if_false)
{
    return _mm256_blendv_ps(if_false, if_true, _mm256_cmp_ps(a, b, _CMP_GE_OQ));
}
static ALWAYS_INLINE vec vec_if_nan(vec a, vec if_true, vec if_false)
{
    return _mm256_blendv_ps(if_false, if_true, _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
}
static ALWAYS_INLINE vec vec_add_exponent(vec p, vec shifted)
{
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), _mm256_slli_epi32(_mm256_castps_si256(shifted), 23)));
}

static ALWAYS_INLINE __m256 lanes_low(const vec *lanes) { return lanes[0]; }
static ALWAYS_INLINE __m256 lanes_high(const vec *lanes) { return lanes[1]; }

static ALWAYS_INLINE __m256i first_lanes(size_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static ALWAYS_INLINE vec vec_load_part(const float *from, size_t n) { return _mm256_maskload_ps(from, first_lanes(n)); }
static ALWAYS_INLINE void vec_store_part(float *to, vec x, size_t n) { _mm256_maskstore_ps(to, first_lanes(n), x); }

typedef __m128i half_vec;
static ALWAYS_INLINE half_vec half_load(const uint16_t *from) { return _mm_loadu_si128((const void *)from); }
static ALWAYS_INLINE half_vec half_load_part(const uint16_t *from, size_t n)
{
    uint16_t part[LANES] = { 0 };
    memcpy(part, from, n * sizeof *from);
    return half_load(part);
}
static ALWAYS_INLINE void half_store(uint16_t *to, half_vec x) { _mm_storeu_si128((void *)to, x); }
static ALWAYS_INLINE vec vec_from_f16(half_vec x) { return _mm256_cvtph_ps(x); }
static ALWAYS_INLINE vec vec_from_bf16(half_vec x)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}
static ALWAYS_INLINE half_vec vec_to_f16(vec x) { return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT); }
static ALWAYS_INLINE half_vec vec_to_bf16(vec x)
{
    __m256i bits = _mm256_castps_si256(x), high = _mm256_srli_epi32(bits, 16);
    __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    __m256i even = _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
    __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    __m256i words = _mm256_blendv_epi8(even, quiet, _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
    return _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}

static ALWAYS_INLINE vec vec_from_i8(const int8_t *from)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)from)));
}

static ALWAYS_INLINE void vec_unzip(vec a, vec b, vec *x, vec *y)
{
    __m256 low = _mm256_permute2f128_ps(a, b, 0x20), high = _mm256_permute2f128_ps(a, b, 0x31);    /* a0-3 b0-3; a4-7 b4-7 */
    *x = _mm256_shuffle_ps(low, high, 0x88);        /* a0 a2 a4 a6 b0 b2 b4 b6 */
    *y = _mm256_shuffle_ps(low, high, 0xdd);
}
static ALWAYS_INLINE void vec_zip(vec x, vec y, vec *a, vec *b)
{
    __m256 low = _mm256_unpacklo_ps(x, y), high = _mm256_unpackhi_ps(x, y);    /* pairs 0 1 4 5; pairs 2 3 6 7 */
    *a = _mm256_permute2f128_ps(low, high, 0x20);
    *b = _mm256_permute2f128_ps(low, high, 0x31);
}

#endif

#define VECS_16 (16 / LANES)            /* vectors that hold the 16 virtual lanes of a reduction, or the 16 keys of a tile */

#ifdef __x86_64__

/* The fixed tree over 16 lanes: gap 8, 4, 2, 1; what the upper lanes of a step hold does not matter. */
static ALWAYS_INLINE float lanes_sum(const vec lanes[VECS_16])
{
    __m256 eight = _mm256_add_ps(lanes_low(lanes), lanes_high(lanes));
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

static ALWAYS_INLINE float lanes_max(const vec lanes[VECS_16])
{
    __m256 eight = _mm256_max_ps(lanes_low(lanes), lanes_high(lanes));
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

/* What the halves of four runs of 32 bytes add up to, times `factor`, -127 .. 127: to[i] of the first half of the run at q + i * stride,
 * to[4 + i] of the second.  No byte is -128. */
static ALWAYS_INLINE void sum_halves(int32_t to[8], const int8_t *q, size_t stride, int factor)
{
    __m256i sums[4];
    for (int i = 0; i < 4; i++) {
        __m256i bytes = _mm256_loadu_si256((const void *)(q + i * stride));
        __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8((char)(factor < 0 ? -factor : factor)), bytes);
        sums[i] = _mm256_madd_epi16(pairs, _mm256_set1_epi16(factor < 0 ? -1 : 1));
    }
    sums[0] = _mm256_hadd_epi32(_mm256_hadd_epi32(sums[0], sums[1]), _mm256_hadd_epi32(sums[2], sums[3]));
    _mm256_storeu_si256((void *)to, sums[0]);
}

#endif

/* ---- made of the words above ---- */

/* exp(x) for x <= EXP_HIGHEST or NaN, step by step as math_exp(). */
static ALWAYS_INLINE vec vec_exp_below_highest(vec x)
{
    vec shifted = vec_fma(x, vec_all(EXP_LOG2_E), vec_all(EXP_SHIFTER));
    vec n = vec_sub(shifted, vec_all(EXP_SHIFTER));
    vec r = vec_fma(n, vec_all(-EXP_LN2_HIGH), x);
    r = vec_fma(n, vec_all(-EXP_LN2_LOW), r);
    vec p = vec_fma(vec_all(EXP_C6), r, vec_all(EXP_C5));
    p = vec_fma(p, r, vec_all(EXP_C4));
    p = vec_fma(p, r, vec_all(EXP_C3));
    p = vec_fma(p, r, vec_all(EXP_C2));
    p = vec_fma(p, r, vec_all(1.0f));
    p = vec_fma(p, r, vec_all(1.0f));
    return vec_if_at_least(x, vec_all(EXP_LOWEST), vec_add_exponent(p, shifted), vec_max(vec_all(0.0f), x));    /* 0, or NaN */
}
static ALWAYS_INLINE vec vec_exp(vec x)
{
    return vec_if_greater(x, vec_all(EXP_HIGHEST), vec_all(INFINITY), vec_exp_below_highest(x));
}

/* tanh(x), step by step as math_tanh(). */
static ALWAYS_INLINE vec vec_tanh(vec x)
{
    vec a = vec_abs(x), two = vec_all(2.0f);
    vec t = vec_mul(two, vec_if_greater(a, vec_all(TANH_HIGHEST), vec_all(TANH_HIGHEST), a));
    vec shifted = vec_fma(t, vec_all(EXP_LOG2_E), vec_all(EXP_SHIFTER));
    vec n = vec_sub(shifted, vec_all(EXP_SHIFTER));
    vec r = vec_fma(n, vec_all(-EXP_LN2_HIGH), t);
    r = vec_fma(n, vec_all(-EXP_LN2_LOW), r);
    vec p = vec_fma(vec_all(EXP_C6), r, vec_all(EXP_C5));
    p = vec_fma(p, r, vec_all(EXP_C4));
    p = vec_fma(p, r, vec_all(EXP_C3));
    p = vec_fma(p, r, vec_all(EXP_C2));
    p = vec_fma(vec_mul(p, r), r, r);
    vec power = vec_add_exponent(vec_all(1.0f), shifted);
    vec e = vec_fma(power, p, vec_sub(power, vec_all(1.0f)));
    return vec_or(vec_div(e, vec_add(e, two)), vec_sign(x));
}

static ALWAYS_INLINE vec vec_softcap(vec x, vec cap) { return vec_mul(cap, vec_tanh(vec_div(x, cap))); }

#endif
