/* ints_avx512.h: a register of LANES int32, for panel_simd.h and what multiplies with it. */
#ifndef STOA_KERNEL_INTS_AVX512_H
#define STOA_KERNEL_INTS_AVX512_H

#include "kernel/simd.h"

typedef __m512i ints;
INLINE ints ints_all(int x) { return _mm512_set1_epi32(x); }
INLINE ints ints_load(const void *from) { return _mm512_loadu_si512(from); }
INLINE void ints_store(void *to, ints a) { _mm512_storeu_si512(to, a); }
INLINE ints ints_and(ints a, ints b) { return _mm512_and_si512(a, b); }
INLINE ints ints_sub(ints a, ints b) { return _mm512_sub_epi32(a, b); }
INLINE ints ints_add(ints a, ints b) { return _mm512_add_epi32(a, b); }
INLINE ints ints_or_and(ints a, ints b, ints c) { return _mm512_ternarylogic_epi32(a, b, c, 0xf8); }     /* a | (b & c) */
INLINE ints ints_shift16_left(ints a, int bits) { return _mm512_slli_epi16(a, (unsigned)bits); }
INLINE ints ints_shift16_right(ints a, int bits) { return _mm512_srli_epi16(a, (unsigned)bits); }
INLINE ints ints_shift_right(ints a, int bits) { return _mm512_srli_epi32(a, (unsigned)bits); }
INLINE ints bytes_sub(ints a, int b) { return _mm512_sub_epi8(a, _mm512_set1_epi8((char)b)); }
/* Products of ints that 16 bits hold, the left ones not negative. */
INLINE ints ints_mul16(ints a, ints b) { return _mm512_madd_epi16(a, b); }
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

#endif
