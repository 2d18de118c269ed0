#include "base/dtype.h"

#include "base/base.h"
#include "base/quant.h"

#include <string.h>

const struct dtype_info dtype_info[N_DTYPES] = {
    [DTYPE_F32] = { "F32", 1, 4, true },
    [DTYPE_F16] = { "F16", 1, 2, true },
    [DTYPE_BF16] = { "BF16", 1, 2, true },
    [DTYPE_Q8_0] = { "Q8_0", 32, 34, true },
    [DTYPE_Q4_0] = { "Q4_0", 32, 18, true },
    [DTYPE_Q4_1] = { "Q4_1", 32, 20, true },
    [DTYPE_Q5_0] = { "Q5_0", 32, 22, true },
    [DTYPE_Q5_1] = { "Q5_1", 32, 24, true },
    [DTYPE_Q2_K] = { "Q2_K", 256, 84, true },
    [DTYPE_Q3_K] = { "Q3_K", 256, 110, true },
    [DTYPE_Q4_K] = { "Q4_K", 256, 144, true },
    [DTYPE_Q5_K] = { "Q5_K", 256, 176, true },
    [DTYPE_Q6_K] = { "Q6_K", 256, 210, true },
    [DTYPE_IQ4_NL] = { "IQ4_NL", 32, 18, true },
    [DTYPE_IQ4_XS] = { "IQ4_XS", 256, 136, true },
    [DTYPE_MXFP4] = { "MXFP4", 32, 17, true },
    [DTYPE_I32] = { "I32", 1, 4, false },
    [DTYPE_ACT8] = { "ACT8", 32, 48, false },
};

float f16_to_f32(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16, exponent = bits >> 10 & 31, fraction = bits & 1023;
    union { uint32_t u; float f; } v;
    if (exponent == 31) {
        v.u = sign | 0x7f800000 | fraction << 13 | (fraction ? 0x400000 : 0);       /* a NaN comes out quiet, as in hardware */
    } else if (exponent) {
        v.u = sign | (exponent + 112) << 23 | fraction << 13;
    } else {
        v.f = (float)fraction * 0x1p-24f;
        v.u |= sign;
    }
    return v.f;
}

uint16_t f32_to_f16(float value)
{
    union { float f; uint32_t u; } v = { .f = value };
    uint32_t sign = v.u >> 16 & 0x8000, magnitude = v.u & 0x7fffffff;
    if (magnitude > 0x7f800000)                                         /* NaN: keep the payload's top, quiet */
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    if (magnitude >= 0x47800000)                                        /* 2^16 and more; 65520 to there rounds up below */
        return (uint16_t)(sign | 0x7c00);
    if (magnitude < 0x38800000) {                                       /* subnormal in f16: let the adder round */
        v.u = magnitude;
        v.f += 0.5f;                                                    /* 0.5 has an ulp of 2^-24, f16's smallest step */
        return (uint16_t)(sign | (v.u - 0x3f000000));
    }
    magnitude += 0xfff + (magnitude >> 13 & 1);
    return (uint16_t)(sign | ((magnitude - 0x38000000) >> 13));
}

uint16_t f32_to_bf16(float value)
{
    union { float f; uint32_t u; } v = { .f = value };
    if ((v.u & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(v.u >> 16 | 0x40);
    return (uint16_t)((v.u + 0x7fff + (v.u >> 16 & 1)) >> 16);
}

static uint16_t load_u16(const uint8_t *from)
{
    uint16_t v;
    memcpy(&v, from, sizeof v);
    return v;
}

/* One block as quant.h says, each step rounded to f32. */
static void dequantize_block(float *to, const uint8_t *from, enum dtype type)
{
    const struct quant_info info = quant_info[type];
    struct quant_block block;
    quant_unpack(&block, from, type);
    const float d = type == DTYPE_MXFP4 ? e8m0_half_to_f32((uint8_t)block.d) : f16_to_f32(block.d);
    const float m = info.has_minimum ? f16_to_f32(block.m) : 0;
    const uint32_t n_sub = info.n_scales == 2 ? 16 : 32;

    for (uint32_t j = 0; j * n_sub < dtype_info[type].block; j++) {
        float scale = info.n_scales ? d * (float)block.scale[j] : d;
        float minimum = info.n_scales && info.has_minimum ? -(m * (float)block.minimum[j]) : m;
        for (uint32_t i = j * n_sub; i < (j + 1) * n_sub; i++) {
            to[i] = scale * (float)(info.values ? info.values[block.q[i]] : block.q[i] - info.offset);
            if (info.has_minimum)
                to[i] += minimum;
        }
    }
}

void dequantize_row(float *restrict to, const void *restrict from, enum dtype type, size_t n)
{
    const uint8_t *bytes = from;
    if (type == DTYPE_F32)
        memcpy(to, from, n * sizeof *to);
    else if (type == DTYPE_F16)
        for (size_t i = 0; i < n; i++)
            to[i] = f16_to_f32(load_u16(bytes + 2 * i));
    else if (type == DTYPE_BF16)
        for (size_t i = 0; i < n; i++)
            to[i] = bf16_to_f32(load_u16(bytes + 2 * i));
    else
        for (size_t i = 0; i < n; i += dtype_info[type].block, bytes += dtype_info[type].bytes)
            dequantize_block(to + i, bytes, type);
}
