#include "kernel/quantize.h"

#include <arm_neon.h>

/* |x| <= amax, so a product with 127 / amax rounds to 127 at most: the clamp of the definition never bites. */
static struct act_block quantize_block(const float *x)
{
    struct act_block block = { .d = 0 };
    float32x4_t v[8];
    uint32x4_t max = vdupq_n_u32(0);
    int32x4_t q[8], sums = vdupq_n_s32(0);
    union { uint32_t u; float f; } amax;

    for (int i = 0; i < 8; i++) {
        v[i] = vld1q_f32(x + 4 * i);
        max = vmaxq_u32(max, vreinterpretq_u32_f32(vabsq_f32(v[i])));
    }
    amax.u = vmaxvq_u32(max);
    if (amax.u >= 0x7f800000)
        return act_block_nan();
    if (amax.f < QUANTIZE_TINY)
        return block;
    float scale = 127.0f / amax.f;
    for (int i = 0; i < 8; i++) {
        q[i] = vcvtnq_s32_f32(vmulq_n_f32(v[i], scale));
        sums = vaddq_s32(sums, q[i]);
    }
    for (int i = 0; i < 8; i += 4) {
        int16x8_t low = vcombine_s16(vmovn_s32(q[i]), vmovn_s32(q[i + 1]));
        int16x8_t high = vcombine_s16(vmovn_s32(q[i + 2]), vmovn_s32(q[i + 3]));
        vst1q_s8(block.q + 4 * i, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
    }
    int32_t sum = vaddvq_s32(sums);
    block.d = amax.f / 127.0f;
    block.s = block.d * (float)sum;
    block.start8 = -8 * sum;
    block.start128 = -128 * sum;
    return block;
}

void quantize_neon(struct act_block *restrict to, const float *restrict from, size_t k)
{
    for (size_t b = 0; b < k / ACT_BLOCK; b++)
        to[b] = quantize_block(from + b * ACT_BLOCK);
}
