/* probe_c.c: what the compiler makes of portable C, in the form that the portable kernels have. */
#include "kernel/probe.h"

#include <math.h>

#define LANES 16

double probe_int8_c(uint32_t n_rounds)
{
    static const volatile int8_t seed = 3;
    int32_t sum[LANES] = { 0 };
    int8_t a[LANES];
    for (int i = 0; i < LANES; i++)
        a[i] = seed;
    for (uint32_t round = 0; round < n_rounds; round++) {
        int32_t b = (int8_t)round;
        for (int i = 0; i < LANES; i++)
            sum[i] += a[i] * b;
    }
    volatile int32_t keep = 0;
    for (int i = 0; i < LANES; i++)
        keep = keep + sum[i];
    return (double)n_rounds * LANES * 2;
}

double probe_f32_c(uint32_t n_rounds)
{
    static const volatile float seed = 0.5f;
    float sum[LANES] = { 0 }, a = seed;
    for (uint32_t round = 0; round < n_rounds; round++)
        for (int i = 0; i < LANES; i++)
            sum[i] = fmaf(sum[i], a, 1);
    volatile float keep = 0;
    for (int i = 0; i < LANES; i++)
        keep = keep + sum[i];
    return (double)n_rounds * LANES * 2;
}

uint64_t probe_read_c(const void *from, size_t n_bytes)
{
    const uint64_t *at = from, *end = at + n_bytes / sizeof *at;
    uint64_t sum[8] = { 0 };
    for (; at < end; at += 8)
        for (int i = 0; i < 8; i++)
            sum[i] += at[i];
    return sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}
