#include "kernel/probe.h"

#include <immintrin.h>

#define SIMD(name) name##_avx512
#define KEEP(x) __asm__ volatile("" : "+v"(x))

typedef __m512 floats;
static inline floats floats_all(float x) { return _mm512_set1_ps(x); }
static inline floats floats_fma(floats a, floats b, floats c) { return _mm512_fmadd_ps(a, b, c); }

typedef __m512i bytes, ints;
static inline bytes bytes_all(int8_t x) { return _mm512_set1_epi8(x); }
static inline bytes bytes_load(const uint8_t *from) { return _mm512_load_si512(from); }
static inline bytes bytes_xor(bytes a, bytes b) { return _mm512_xor_si512(a, b); }
static inline uint64_t bytes_sum(bytes a) { return (uint64_t)_mm512_reduce_add_epi64(a); }
static inline ints ints_none(void) { return _mm512_setzero_si512(); }
static inline ints ints_dot(ints sum, bytes a, bytes b) { return _mm512_dpbusd_epi32(sum, a, b); }
#define DOT_OPS 128

#include "kernel/probe_simd.h"
