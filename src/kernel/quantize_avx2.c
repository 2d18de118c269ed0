#include "kernel/quantize.h"

#include <immintrin.h>

static uint32_t max_u32(__m256i v)
{
    __m128i m = _mm_max_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, _MM_SHUFFLE(1, 0, 3, 2)));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, _MM_SHUFFLE(2, 3, 0, 1)));
    return (uint32_t)_mm_cvtsi128_si32(m);
}

static int32_t sum_i32(__m256i v)
{
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, _MM_SHUFFLE(1, 0, 3, 2)));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, _MM_SHUFFLE(2, 3, 0, 1)));
    return _mm_cvtsi128_si32(s);
}

/* |x| <= amax, so a product with 127 / amax rounds to 127 at most: the clamp of the definition never bites. */
static struct act_block quantize_block(const float *x)
{
    struct act_block block = { .d = 0 };
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256 v[4];
    __m256i max = _mm256_setzero_si256(), q[4];
    union { uint32_t u; float f; } amax;

    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_loadu_ps(x + 8 * i);
        max = _mm256_max_epu32(max, _mm256_and_si256(_mm256_castps_si256(v[i]), magnitude));
    }
    amax.u = max_u32(max);
    if (amax.u >= 0x7f800000)
        return act_block_nan();
    if (amax.f < QUANTIZE_TINY)
        return block;
    __m256 scale = _mm256_set1_ps(127.0f / amax.f);
    for (int i = 0; i < 4; i++)
        q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], scale));
    int32_t sum = sum_i32(_mm256_add_epi32(_mm256_add_epi32(q[0], q[1]), _mm256_add_epi32(q[2], q[3])));
    /* The packs interleave their operands' halves; the permutation puts the groups of four back in order. */
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)block.q, bytes);
    block.d = amax.f / 127.0f;
    block.s = block.d * (float)sum;
    block.start8 = -8 * sum;
    block.start128 = -128 * sum;
    return block;
}

void quantize_avx2(struct act_block *restrict to, const float *restrict from, size_t k)
{
    for (size_t b = 0; b < k / ACT_BLOCK; b++)
        to[b] = quantize_block(from + b * ACT_BLOCK);
}
