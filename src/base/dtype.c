#include "base/dtype.h"

#include "base/base.h"

#include <string.h>

const struct dtype_info dtype_info[N_DTYPES] = {
    [DTYPE_F32] = { "F32", 1, 4, true },
    [DTYPE_F16] = { "F16", 1, 2, true },
    [DTYPE_BF16] = { "BF16", 1, 2, true },
    [DTYPE_Q8_0] = { "Q8_0", 32, 34, true },
    [DTYPE_Q4_0] = { "Q4_0", 32, 18, true },
    [DTYPE_Q4_1] = { "Q4_1", 32, 20, true },
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

static void dequantize_q8_0(float *to, const uint8_t *block)
{
    float d = f16_to_f32(load_u16(block));
    for (int i = 0; i < 32; i++)
        to[i] = d * (float)(int8_t)block[2 + i];
}

static void dequantize_q4_0(float *to, const uint8_t *block)
{
    float d = f16_to_f32(load_u16(block));
    for (int i = 0; i < 16; i++) {
        to[i] = d * (float)((block[2 + i] & 15) - 8);
        to[i + 16] = d * (float)((block[2 + i] >> 4) - 8);
    }
}

static void dequantize_q4_1(float *to, const uint8_t *block)
{
    float d = f16_to_f32(load_u16(block)), m = f16_to_f32(load_u16(block + 2));
    for (int i = 0; i < 16; i++) {
        to[i] = d * (float)(block[4 + i] & 15) + m;
        to[i + 16] = d * (float)(block[4 + i] >> 4) + m;
    }
}

void dequantize_row(float *restrict to, const void *restrict from, enum dtype type, size_t n)
{
    static void (*const block_of[N_DTYPES])(float *, const uint8_t *) = {
        [DTYPE_Q8_0] = dequantize_q8_0, [DTYPE_Q4_0] = dequantize_q4_0, [DTYPE_Q4_1] = dequantize_q4_1,
    };
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
            block_of[type](to + i, bytes);
}
