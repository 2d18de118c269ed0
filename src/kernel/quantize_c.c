#include "kernel/quantize.h"

#include "base/base.h"

#include <math.h>
#include <string.h>

/* The largest magnitude of a block as bits, which order as the values do; a NaN is above infinity. */
static uint32_t max_magnitude(const float x[ACT_BLOCK])
{
    uint32_t max = 0;
    for (int i = 0; i < ACT_BLOCK; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        max = MAX(max, bits & 0x7fffffff);
    }
    return max;
}

static struct act_block quantize_block(const float x[ACT_BLOCK])
{
    struct act_block block = { .d = 0 };
    union { uint32_t u; float f; } amax = { .u = max_magnitude(x) };
    int32_t sum = 0;

    if (amax.u >= 0x7f800000)
        return act_block_nan();
    if (amax.f < QUANTIZE_TINY)
        return block;
    float scale = 127.0f / amax.f;
    for (int i = 0; i < ACT_BLOCK; i++) {
        float q = rintf(x[i] * scale);
        block.q[i] = (int8_t)MAX(-127.0f, MIN(127.0f, q));
        sum += block.q[i];
    }
    block.d = amax.f / 127.0f;
    block.s = block.d * (float)sum;
    block.start8 = -8 * sum;
    block.start128 = -128 * sum;
    return block;
}

void quantize_c(struct act_block *restrict to, const float *restrict from, size_t k)
{
    for (size_t b = 0; b < k / ACT_BLOCK; b++)
        to[b] = quantize_block(from + b * ACT_BLOCK);
}
