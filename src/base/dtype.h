/* dtype.h: the element types of tensors, in files and in memory.
 *
 * A block type stores `block` consecutive elements of a row in `bytes` bytes:
 *   Q8_0          f16 d, int8 q[32]                                  value = d * q
 *   Q4_0          f16 d, 16 bytes; element i is the low nibble of byte i, i + 16 the high one       value = d * (q - 8)
 *   Q4_1          f16 d, f16 m, 16 bytes as in Q4_0                  value = d * q + m, each step rounded to f32
 *   Q5_0, Q5_1    the same with a fifth bit for each element         value = d * (q - 16), d * q + m
 *   Q2_K .. Q6_K  256 elements: f16 d, and a scale of a few bits for each 16 or 32; in Q2_K, Q4_K, Q5_K an f16 m and a
 *                 minimum as well                                    value = (d * scale) * q - m * minimum
 *   IQ4_NL, MXFP4 as Q4_0 with a table of 16 values; MXFP4's d is a power of two in a byte          value = d * table[q]
 *   IQ4_XS        256 elements: f16 d, a scale for each 32           value = (d * scale) * table[q]
 * base/quant.h and quant.c say where each part is.
 * Formats as the GGUF specification (ggml) gives them. */
#ifndef STOA_BASE_DTYPE_H
#define STOA_BASE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum dtype {
    DTYPE_F32,
    DTYPE_F16,
    DTYPE_BF16,
    DTYPE_Q8_0,
    DTYPE_Q4_0,
    DTYPE_Q4_1,
    DTYPE_Q5_0,
    DTYPE_Q5_1,
    DTYPE_Q2_K,
    DTYPE_Q3_K,
    DTYPE_Q4_K,
    DTYPE_Q5_K,
    DTYPE_Q6_K,
    DTYPE_IQ4_NL,
    DTYPE_IQ4_XS,
    DTYPE_MXFP4,
    DTYPE_I32,
    DTYPE_ACT8,         /* activations in int8 blocks, see kernel/quantize.h; never in a file */
    N_DTYPES
};

struct dtype_info {
    const char *name;   /* as GGUF tools print it: "F32", "Q4_1" */
    uint32_t block;     /* elements in a block; 1 for plain types */
    uint32_t bytes;     /* bytes of a block */
    bool weight;        /* a matmul can take it as weights */
};
extern const struct dtype_info dtype_info[N_DTYPES];

/* Bytes of n consecutive elements; n must be a multiple of the block. */
static inline size_t dtype_bytes(enum dtype type, size_t n)
{
    return n / dtype_info[type].block * dtype_info[type].bytes;
}

float f16_to_f32(uint16_t bits);
uint16_t f32_to_f16(float value);       /* round to nearest even */
static inline float bf16_to_f32(uint16_t bits)
{
    union { uint32_t u; float f; } v = { .u = (uint32_t)bits << 16 };
    return v.f;
}
uint16_t f32_to_bf16(float value);      /* round to nearest even */

/* n elements of type `type` at `from` as f32; n a multiple of the block.  The definition of what a stored weight is. */
void dequantize_row(float *restrict to, const void *restrict from, enum dtype type, size_t n);

#endif
