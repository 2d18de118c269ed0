#include "kernel/probe.h"

#include <arm_neon.h>

#define SIMD(name) name##_neon
#define KEEP(x) __asm__ volatile("" : "+w"(x))

typedef float32x4_t floats;
static inline floats floats_all(float x) { return vdupq_n_f32(x); }
static inline floats floats_fma(floats a, floats b, floats c) { return vfmaq_f32(c, a, b); }

typedef int8x16_t bytes;
typedef int32x4_t ints;
static inline bytes bytes_all(int8_t x) { return vdupq_n_s8(x); }
static inline bytes bytes_load(const uint8_t *from) { return vreinterpretq_s8_u8(vld1q_u8(from)); }
static inline bytes bytes_xor(bytes a, bytes b) { return veorq_s8(a, b); }
static inline uint64_t bytes_sum(bytes a) { return vaddvq_u64(vreinterpretq_u64_s8(a)); }
static inline ints ints_none(void) { return vdupq_n_s32(0); }
static inline ints ints_dot(ints sum, bytes a, bytes b) { return vdotq_s32(sum, a, b); }
#define DOT_OPS 32

#include "kernel/probe_simd.h"
