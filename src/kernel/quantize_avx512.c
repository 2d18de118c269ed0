#include "kernel/quantize.h"

#include <immintrin.h>

/* |x| <= amax, so a product with 127 / amax rounds to 127 at most: the clamp of the definition never bites. */
static struct act_block quantize_block(const float *x)
{
    struct act_block block = { .d = 0 };
    __m512 v0 = _mm512_loadu_ps(x), v1 = _mm512_loadu_ps(x + 16);
    __m512i m0 = _mm512_castps_si512(_mm512_abs_ps(v0)), m1 = _mm512_castps_si512(_mm512_abs_ps(v1));
    union { uint32_t u; float f; } amax = { .u = _mm512_reduce_max_epu32(_mm512_max_epu32(m0, m1)) };

    if (amax.u >= 0x7f800000)
        return act_block_nan();
    if (amax.f < QUANTIZE_TINY)
        return block;
    __m512 scale = _mm512_set1_ps(127.0f / amax.f);
    __m512i q0 = _mm512_cvtps_epi32(_mm512_mul_ps(v0, scale)), q1 = _mm512_cvtps_epi32(_mm512_mul_ps(v1, scale));
    int32_t sum = _mm512_reduce_add_epi32(_mm512_add_epi32(q0, q1));
    _mm_storeu_si128((__m128i *)block.q, _mm512_cvtepi32_epi8(q0));
    _mm_storeu_si128((__m128i *)(block.q + 16), _mm512_cvtepi32_epi8(q1));
    block.d = amax.f / 127.0f;
    block.s = block.d * (float)sum;
    block.start8 = -8 * sum;
    block.start128 = -128 * sum;
    return block;
}

void quantize_avx512(struct act_block *restrict to, const float *restrict from, size_t k)
{
    for (size_t b = 0; b < k / ACT_BLOCK; b++)
        to[b] = quantize_block(from + b * ACT_BLOCK);
}
