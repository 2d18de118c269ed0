/* probe_simd.h: the probes of every vector instruction set.  The file that includes it has defined
 *   SIMD(name)                  the name of its variant
 *   floats, floats_all, floats_fma(a, b, c)
 *   bytes, bytes_all, bytes_load, bytes_xor, bytes_sum
 *   ints, ints_none, ints_dot(sum, a, b)         products of bytes, added up as its matmul does
 *   DOT_OPS                     multiplications and additions of one ints_dot()
 *   KEEP(x)                     the compiler must have x in a register here, and knows no more what it is */
#ifndef STOA_KERNEL_PROBE_SIMD_H
#define STOA_KERNEL_PROBE_SIMD_H

#define N_CHAINS 12             /* more than latency times ports; with two operands they fit 16 registers */
#define UNROLL _Pragma("GCC unroll 16")

double SIMD(probe_int8)(uint32_t n_rounds)
{
    ints sum[N_CHAINS];
    bytes a = bytes_all(3), b = bytes_all(5);
    UNROLL for (int i = 0; i < N_CHAINS; i++)
        sum[i] = ints_none();
    for (uint32_t round = 0; round < n_rounds; round++) {
        KEEP(a);
        UNROLL for (int i = 0; i < N_CHAINS; i++) {
            sum[i] = ints_dot(sum[i], a, b);
            KEEP(sum[i]);
        }
    }
    return (double)n_rounds * N_CHAINS * DOT_OPS;
}

double SIMD(probe_f32)(uint32_t n_rounds)
{
    floats sum[N_CHAINS], a = floats_all(0.5f), b = floats_all(1);
    UNROLL for (int i = 0; i < N_CHAINS; i++)
        sum[i] = b;
    for (uint32_t round = 0; round < n_rounds; round++)
        UNROLL for (int i = 0; i < N_CHAINS; i++) {
            sum[i] = floats_fma(sum[i], a, b);
            KEEP(sum[i]);
        }
    return (double)n_rounds * N_CHAINS * 2 * (sizeof(floats) / sizeof(float));
}

/* Fetches ahead as matmul_simd.h does: the hardware's own prefetch stops at each page. */
uint64_t SIMD(probe_read)(const void *from, size_t n_bytes)
{
    const uint8_t *at = from, *end = at + n_bytes;
    bytes sum[4] = { bytes_all(0), bytes_all(0), bytes_all(0), bytes_all(0) };
    for (; at < end; at += 256) {
        for (int i = 0; i < 256; i += 64) {
            __builtin_prefetch(at + 4096 + i, 0, 2);
            __builtin_prefetch(at + 640 + i, 0, 3);
        }
        for (size_t i = 0; i < 256; i += 4 * sizeof(bytes))
            for (size_t c = 0; c < 4; c++)
                sum[c] = bytes_xor(sum[c], bytes_load(at + i + c * sizeof(bytes)));
    }
    return bytes_sum(bytes_xor(bytes_xor(sum[0], sum[1]), bytes_xor(sum[2], sum[3])));
}

#endif
