/* matmul_neon.c: matmul_simd.h in 32 registers of 4 lanes, with FEAT_DotProd's dot product of four bytes, whose right side is
 * four of the sixteen bytes of another register: so a row of x is loaded once for four steps. */
#include "kernel/matmul.h"
#include "kernel/simd.h"

#define UNROLL _Pragma("GCC unroll 16")
#define TILE_ROWS 4
#define PLAIN_ROWS 4
#define TILE_PANELS 1
#define MAX_STRIPS 4
#define PASS_STRIPS(plain, n) ((plain) || (n) <= 2 ? 4 : 2)

typedef int32x4_t ints;
INLINE ints ints_of_bytes(int8x16_t a) { return vreinterpretq_s32_s8(a); }
INLINE int8x16_t bytes_of_ints(ints a) { return vreinterpretq_s8_s32(a); }
INLINE ints ints_all(int x) { return vdupq_n_s32(x); }
INLINE ints ints_load(const uint8_t *from) { return vreinterpretq_s32_u8(vld1q_u8(from)); }
INLINE ints ints_and(ints a, ints b) { return vandq_s32(a, b); }
INLINE ints ints_sub(ints a, ints b) { return vsubq_s32(a, b); }
INLINE ints ints_add(ints a, ints b) { return vaddq_s32(a, b); }
INLINE ints ints_or_and(ints a, ints b, ints c) { return vorrq_s32(a, vandq_s32(b, c)); }
INLINE ints ints_shift16_left(ints a, int bits)
{
    return vreinterpretq_s32_u16(vshlq_u16(vreinterpretq_u16_s32(a), vdupq_n_s16((int16_t)bits)));
}
INLINE ints ints_shift16_right(ints a, int bits) { return ints_shift16_left(a, -bits); }
INLINE ints ints_shift_right(ints a, int bits)
{
    return vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a), vdupq_n_s32(-bits)));
}
/* Products of ints that 16 bits hold, the left ones not negative. */
INLINE ints ints_mul16(ints a, ints b) { return vmulq_s32(a, b); }
INLINE vec vec_from_ints(ints a) { return vcvtq_f32_s32(a); }

INLINE ints ints_from_bytes(const uint8_t *from)
{
    int32_t bytes;
    memcpy(&bytes, from, sizeof bytes);
    return vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8((uint32_t)bytes))));
}

/* values[q] + 128 for every byte. */
INLINE ints ints_look_up(const int8_t *values, ints q)
{
    int8x16_t table = veorq_s8(vld1q_s8(values), vdupq_n_s8(-128));
    return ints_of_bytes(vqtbl1q_s8(table, vreinterpretq_u8_s32(q)));
}

/* e8m0_half_to_f32(): below 2 the second is larger, from 2 on the first. */
INLINE vec vec_from_e8m0_half(const uint8_t *from)
{
    ints e = ints_and(ints_from_bytes(from), ints_all(255));
    return vreinterpretq_f32_s32(vmaxq_s32(vshlq_n_s32(ints_sub(e, ints_all(1)), 23), vshlq_n_s32(ints_add(e, ints_all(1)), 21)));
}

#include "kernel/panel_simd.h"

/* Both sides of a product are signed.  Quants of up to six bits are so as they are; eight bits, a table's values too, are 128
 * too large until this takes it off. */
#define SIGNED_DOTS(type) (quant_info[type].offset == 128)

INLINE int8x16_t load_signed(enum dtype type, const uint8_t *quants, size_t lane, int j)
{
    int8x16_t q = bytes_of_ints(load_quants(type, quants, lane, j));
    return SIGNED_DOTS(type) ? veorq_s8(q, vdupq_n_s8(-128)) : q;
}

/* Adds to dot[t] the products of n_steps times four quants with row t of x; step0 and n_steps are multiples of four. */
INLINE void dots(enum dtype type, int step0, int n_steps, int n, ints *dot, const uint8_t *quants, size_t lane, const uint8_t *x,
                 size_t x_stride)
{
    UNROLL for (int j = step0; j < step0 + n_steps; j += 4) {
        const int8x16_t w0 = load_signed(type, quants, lane, j), w1 = load_signed(type, quants, lane, j + 1);
        const int8x16_t w2 = load_signed(type, quants, lane, j + 2), w3 = load_signed(type, quants, lane, j + 3);
        UNROLL for (int t = 0; t < n; t++) {
            const int8x16_t q = vld1q_s8((const int8_t *)x + t * x_stride + 4 * j);
            dot[t] = vdotq_laneq_s32(dot[t], w0, q, 0);
            dot[t] = vdotq_laneq_s32(dot[t], w1, q, 1);
            dot[t] = vdotq_laneq_s32(dot[t], w2, q, 2);
            dot[t] = vdotq_laneq_s32(dot[t], w3, q, 3);
        }
    }
}

#include "kernel/matmul_simd.h"

DEFINE_MATMULS(neon)
