#include "kernel/probe.h"

#include <immintrin.h>

#define SIMD(name) name##_avx2
#define KEEP(x) __asm__ volatile("" : "+x"(x))

typedef __m256 floats;
static inline floats floats_all(float x) { return _mm256_set1_ps(x); }
static inline floats floats_fma(floats a, floats b, floats c) { return _mm256_fmadd_ps(a, b, c); }

typedef __m256i bytes, ints;
static inline bytes bytes_all(int8_t x) { return _mm256_set1_epi8(x); }
static inline bytes bytes_load(const uint8_t *from) { return _mm256_load_si256((const void *)from); }
static inline bytes bytes_xor(bytes a, bytes b) { return _mm256_xor_si256(a, b); }
static inline uint64_t bytes_sum(bytes a)
{
    return (uint64_t)(_mm256_extract_epi64(a, 0) ^ _mm256_extract_epi64(a, 1) ^ _mm256_extract_epi64(a, 2) ^ _mm256_extract_epi64(a, 3));
}
static inline ints ints_none(void) { return _mm256_setzero_si256(); }
/* In 16 bits; the matmul widens its sums now and then, which is not counted. */
static inline ints ints_dot(ints sum, bytes a, bytes b) { return _mm256_add_epi16(sum, _mm256_maddubs_epi16(a, b)); }
#define DOT_OPS 64

#include "kernel/probe_simd.h"
