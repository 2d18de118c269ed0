/* ints_avx2.h: a register of LANES int32, for panel_simd.h and what multiplies with it. */
#ifndef STOA_KERNEL_INTS_AVX2_H
#define STOA_KERNEL_INTS_AVX2_H

#include "kernel/simd.h"

typedef __m256i ints;
INLINE ints ints_all(int x) { return _mm256_set1_epi32(x); }
INLINE ints ints_load(const uint8_t *from) { return _mm256_loadu_si256((const void *)from); }
INLINE ints ints_and(ints a, ints b) { return _mm256_and_si256(a, b); }
INLINE ints ints_sub(ints a, ints b) { return _mm256_sub_epi32(a, b); }
INLINE ints ints_add(ints a, ints b) { return _mm256_add_epi32(a, b); }
INLINE ints ints_or_and(ints a, ints b, ints c) { return _mm256_or_si256(a, _mm256_and_si256(b, c)); }
INLINE ints ints_shift16_left(ints a, int bits) { return _mm256_slli_epi16(a, bits); }
INLINE ints ints_shift16_right(ints a, int bits) { return _mm256_srli_epi16(a, bits); }
INLINE ints ints_shift_right(ints a, int bits) { return _mm256_srli_epi32(a, bits); }
/* Products of ints that 16 bits hold, the left ones not negative. */
INLINE ints ints_mul16(ints a, ints b) { return _mm256_madd_epi16(a, b); }
INLINE ints ints_from_bytes(const uint8_t *from) { return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)from)); }
INLINE vec vec_from_ints(ints a) { return _mm256_cvtepi32_ps(a); }

/* values[q] + 128 for every byte. */
INLINE ints ints_look_up(const int8_t *values, ints q)
{
    ints table = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)values));
    return _mm256_shuffle_epi8(_mm256_xor_si256(table, _mm256_set1_epi8(-128)), q);
}

/* e8m0_half_to_f32(): below 2 the second is larger, from 2 on the first. */
INLINE vec vec_from_e8m0_half(const uint8_t *from)
{
    ints e = ints_and(ints_from_bytes(from), ints_all(255));
    return _mm256_castsi256_ps(_mm256_max_epi32(_mm256_slli_epi32(ints_sub(e, ints_all(1)), 23),
                                                _mm256_slli_epi32(ints_add(e, ints_all(1)), 21)));
}

#endif
