/* probe_avxvnni.c: the dot product that AVX2 lacks. */
#include "kernel/probe.h"

#include <immintrin.h>

#define N_CHAINS 12             /* as in probe_simd.h */
#define DOT_OPS 64

double probe_int8_avxvnni(uint32_t n_rounds)
{
    __m256i sum[N_CHAINS], a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(5);
    _Pragma("GCC unroll 16") for (int i = 0; i < N_CHAINS; i++)
        sum[i] = _mm256_setzero_si256();
    for (uint32_t round = 0; round < n_rounds; round++)
        _Pragma("GCC unroll 16") for (int i = 0; i < N_CHAINS; i++) {
            sum[i] = _mm256_dpbusd_avx_epi32(sum[i], a, b);
            __asm__ volatile("" : "+x"(sum[i]));
        }
    return (double)n_rounds * N_CHAINS * DOT_OPS;
}
