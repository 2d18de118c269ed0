/* quant.h: blocks of quantized weights, taken apart the same way whatever their type.
 *
 *   weight = value(q) * scale               scale: d, or d * scale[j], which f32 holds exactly
 *   weight = value(q) * scale + minimum     minimum: m, or -(m * minimum[j]), rounded to f32
 *
 * value(q) is q - offset, or values[q].  A sub-block j is 32 weights, or 16 where there are two scales for each 32.  Types of
 * the last kind (K, and IQ4_XS) have blocks of 256, all others of 32.  The table is in the header so that a kernel for a
 * constant type is compiled for that type. */
#ifndef STOA_BASE_QUANT_H
#define STOA_BASE_QUANT_H

#include "base/dtype.h"

#define QUANT_BLOCK_MAX 256

struct quant_info {
    uint8_t bits;               /* of a quant; 0 where a type has none */
    uint8_t offset;             /* with a table: 128, what makes its values unsigned */
    uint8_t n_scales;           /* for each 32 weights, beside d: 0, 1 or 2 */
    bool has_minimum;
    const int8_t *values;       /* [16], or NULL */
};

/* What four bits stand for in IQ4_NL and IQ4_XS; and in MXFP4, where they are E2M1 floats, doubled. */
static const int8_t quant_values_iq4[16] = { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 };
static const int8_t quant_values_mxfp4[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };

static const struct quant_info quant_info[N_DTYPES] = {
    [DTYPE_Q8_0]   = { 8, 128, 0, false, NULL },
    [DTYPE_Q4_0]   = { 4, 8,   0, false, NULL },
    [DTYPE_Q4_1]   = { 4, 0,   0, true,  NULL },
    [DTYPE_Q5_0]   = { 5, 16,  0, false, NULL },
    [DTYPE_Q5_1]   = { 5, 0,   0, true,  NULL },
    [DTYPE_Q2_K]   = { 2, 0,   2, true,  NULL },
    [DTYPE_Q3_K]   = { 3, 4,   2, false, NULL },
    [DTYPE_Q4_K]   = { 4, 0,   1, true,  NULL },
    [DTYPE_Q5_K]   = { 5, 0,   1, true,  NULL },
    [DTYPE_Q6_K]   = { 6, 32,  2, false, NULL },
    [DTYPE_IQ4_NL] = { 4, 128, 0, false, quant_values_iq4 },
    [DTYPE_IQ4_XS] = { 4, 128, 1, false, quant_values_iq4 },
    [DTYPE_MXFP4]  = { 4, 128, 0, false, quant_values_mxfp4 },
};

/* One block of one row.  Sub-scales are in the order of the weights; what a type does not have is not set. */
struct quant_block {
    uint8_t q[QUANT_BLOCK_MAX];
    uint16_t d, m;              /* the bits of f16; MXFP4's d is a byte, E8M0 */
    int8_t scale[16];
    uint8_t minimum[16];
};
void quant_unpack(struct quant_block *to, const uint8_t *from, enum dtype type);
/* The way back: the bytes that quant_unpack() takes apart into the same parts, each of which must be in its range. */
void quant_pack(uint8_t *to, const struct quant_block *from, enum dtype type);

/* Half the power of two that an E8M0 byte stands for (MXFP4's values are doubled): 2^(e - 128), exact, also where subnormal. */
static inline float e8m0_half_to_f32(uint8_t e)
{
    union { uint32_t u; float f; } v = { .u = e < 2 ? UINT32_C(0x200000) << e : (uint32_t)(e - 1) << 23 };
    return v.f;
}

#endif
