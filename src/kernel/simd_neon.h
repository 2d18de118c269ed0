/* simd_neon.h: the words of simd.h for aarch64; simd.h says what they mean. */
#ifndef STOA_KERNEL_SIMD_NEON_H
#define STOA_KERNEL_SIMD_NEON_H

#include <arm_neon.h>

#define LANES 4
typedef float32x4_t vec;

static ALWAYS_INLINE vec vec_all(float x) { return vdupq_n_f32(x); }
static ALWAYS_INLINE vec vec_load(const float *from) { return vld1q_f32(from); }
static ALWAYS_INLINE void vec_store(float *to, vec x) { vst1q_f32(to, x); }
static ALWAYS_INLINE vec vec_add(vec a, vec b) { return vaddq_f32(a, b); }
static ALWAYS_INLINE vec vec_sub(vec a, vec b) { return vsubq_f32(a, b); }
static ALWAYS_INLINE vec vec_mul(vec a, vec b) { return vmulq_f32(a, b); }
static ALWAYS_INLINE vec vec_div(vec a, vec b) { return vdivq_f32(a, b); }
static ALWAYS_INLINE vec vec_neg(vec a) { return vnegq_f32(a); }
static ALWAYS_INLINE uint32x4_t vec_bits(vec x) { return vreinterpretq_u32_f32(x); }
static ALWAYS_INLINE vec vec_of_bits(uint32x4_t x) { return vreinterpretq_f32_u32(x); }
static ALWAYS_INLINE vec vec_sign(vec x) { return vec_of_bits(vandq_u32(vec_bits(x), vdupq_n_u32(0x80000000))); }
static ALWAYS_INLINE vec vec_abs(vec x) { return vabsq_f32(x); }
static ALWAYS_INLINE vec vec_or(vec a, vec b) { return vec_of_bits(vorrq_u32(vec_bits(a), vec_bits(b))); }
static ALWAYS_INLINE vec vec_fma(vec a, vec b, vec c) { return vfmaq_f32(c, a, b); }
static ALWAYS_INLINE vec vec_fms(vec a, vec b, vec c) { return vfmaq_f32(vnegq_f32(c), a, b); }
static ALWAYS_INLINE vec vec_if_greater(vec a, vec b, vec if_true, vec if_false)
{
    return vbslq_f32(vcgtq_f32(a, b), if_true, if_false);
}
static ALWAYS_INLINE vec vec_if_at_least(vec a, vec b, vec if_true, vec if_false)
{
    return vbslq_f32(vcgeq_f32(a, b), if_true, if_false);
}
static ALWAYS_INLINE vec vec_if_nan(vec a, vec if_true, vec if_false)
{
    return vbslq_f32(vceqq_f32(a, a), if_false, if_true);
}
/* FMAX would give the NaN. */
static ALWAYS_INLINE vec vec_max(vec a, vec b) { return vec_if_greater(a, b, a, b); }
static ALWAYS_INLINE vec vec_add_exponent(vec p, vec shifted)
{
    return vec_of_bits(vaddq_u32(vec_bits(p), vshlq_n_u32(vec_bits(shifted), 23)));
}

static ALWAYS_INLINE vec vec_load_part(const float *from, size_t n)
{
    if (n == LANES)
        return vec_load(from);
    vec x = vec_all(0.0f);
    if (n & 1)
        x = vld1q_lane_f32(from + (n & 2), x, 0);
    return n & 2 ? vcombine_f32(vld1_f32(from), vget_low_f32(x)) : x;
}
static ALWAYS_INLINE void vec_store_part(float *to, vec x, size_t n)
{
    if (n == LANES)
        vec_store(to, x);
    if (n & 2)
        vst1_f32(to, vget_low_f32(x));
    if (n & 1)
        vst1q_lane_f32(to + (n & 2), n & 2 ? vextq_f32(x, x, 2) : x, 0);
}

typedef uint16x4_t half_vec;
static ALWAYS_INLINE half_vec half_load(const uint16_t *from) { return vld1_u16(from); }
static ALWAYS_INLINE half_vec half_load_part(const uint16_t *from, size_t n)
{
    uint16_t part[LANES] = { 0 };
    for (size_t i = 0; i < n; i++)
        part[i] = from[i];
    return half_load(part);
}
static ALWAYS_INLINE void half_store(uint16_t *to, half_vec x) { vst1_u16(to, x); }
static ALWAYS_INLINE vec vec_from_f16(half_vec x) { return vcvt_f32_f16(vreinterpret_f16_u16(x)); }
static ALWAYS_INLINE vec vec_from_bf16(half_vec x) { return vec_of_bits(vshll_n_u16(x, 16)); }
static ALWAYS_INLINE half_vec vec_to_f16(vec x) { return vreinterpret_u16_f16(vcvt_f16_f32(x)); }
static ALWAYS_INLINE half_vec vec_to_bf16(vec x)
{
    uint32x4_t bits = vec_bits(x), odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    uint32x4_t even = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
    return vshrn_n_u32(vbslq_u32(vceqq_f32(x, x), even, quiet), 16);
}

static ALWAYS_INLINE vec vec_from_i8(const int8_t *from)
{
    int32_t four;
    memcpy(&four, from, sizeof four);
    int8x8_t x = vreinterpret_s8_s32(vdup_n_s32(four));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(x))));
}

static ALWAYS_INLINE void vec_unzip(vec a, vec b, vec *x, vec *y)
{
    *x = vuzp1q_f32(a, b);
    *y = vuzp2q_f32(a, b);
}
static ALWAYS_INLINE void vec_zip(vec x, vec y, vec *a, vec *b)
{
    *a = vzip1q_f32(x, y);
    *b = vzip2q_f32(x, y);
}

static ALWAYS_INLINE float lanes_sum(const vec lanes[4])
{
    vec four = vec_add(vec_add(lanes[0], lanes[2]), vec_add(lanes[1], lanes[3]));
    return vaddv_f32(vadd_f32(vget_low_f32(four), vget_high_f32(four)));
}

static ALWAYS_INLINE float lanes_max(const vec lanes[4])
{
    vec four = vec_max(vec_max(lanes[0], lanes[2]), vec_max(lanes[1], lanes[3]));
    vec two = vec_max(four, vextq_f32(four, four, 2));
    return vgetq_lane_f32(vec_max(two, vextq_f32(two, two, 1)), 0);
}

#ifdef __ARM_FEATURE_DOTPROD
static ALWAYS_INLINE void sum_halves(int32_t to[8], const int8_t *q, size_t stride, int factor)
{
    const int8x16_t factors = vdupq_n_s8((int8_t)factor);
    for (int half = 0; half < 2; half++, q += 16) {
        int32x4_t sums[4];
        for (int i = 0; i < 4; i++)
            sums[i] = vdotq_s32(vdupq_n_s32(0), vld1q_s8(q + i * stride), factors);
        vst1q_s32(to + 4 * half, vpaddq_s32(vpaddq_s32(sums[0], sums[1]), vpaddq_s32(sums[2], sums[3])));
    }
}
#endif

#endif
