/* panel.h: how a panel of packed weights, 16 rows, stands in memory, so that a SIMD lane is a row.
 *
 *   F32 F16 BF16   [K][16] elements
 *   in blocks      [K / block] heads, each with the quants of its block (32 or 256 k) after it
 *
 * A head has, as the type has them (quant.h): f16 d[16] (MXFP4: the E8M0 byte), f16 m[16], int8 scale[..][16], uint8 minimum[8][16];
 * in Q2_K, a scale and a minimum share a byte, as in the file.  Blocks of 256 have heads of whole cache lines, so that quants
 * do not straddle two.  These heads cost what the file saves with scales of six bits, and the padding:
 *   bytes of a block of 16 rows    Q3_K 1856 for 1760   Q4_K 2368 for 2304   Q5_K 2880 for 2816   Q6_K 3392 for 3360
 *   other types as in the file     IQ4_XS 2240 for 2176
 *
 * Quants are in planes for each 32 k: 8, 4 or 2 low bits of each, then a plane of the other 1 or 2.  Plane [word][row][i] of b bits
 * has b words to a row: the quant of k = 4 j + i is in word j % b, above j / b others.  So 64 bytes are steps of four k for 16
 * rows, as VNNI wants them.  Padding to 64 bytes follows the last block of a panel. */
#ifndef STOA_KERNEL_PANEL_H
#define STOA_KERNEL_PANEL_H

#include "base/base.h"
#include "base/quant.h"
#include "kernel/kernel.h"

/* Packed weights may lie in files (run/packed_file.h): raise this whenever their bytes change.  test_pack.c knows when they do. */
#define PANEL_LAYOUT_VERSION 1

#define INLINE static inline __attribute__((always_inline))

INLINE bool in_blocks(enum dtype type)
{
    return quant_info[type].bits > 0;
}

INLINE int low_bits(enum dtype type)
{
    const int bits = quant_info[type].bits;
    return bits == 8 ? 8 : bits >= 4 ? 4 : 2;
}

/* Bytes of the quants of 32 k. */
INLINE size_t quant_bytes(enum dtype type)
{
    return PANEL_ROWS * 4 * (size_t)quant_info[type].bits;
}

INLINE uint32_t block_k(enum dtype type)
{
    return quant_info[type].n_scales ? 256 : 32;
}

/* Where the parts of a head are. */
INLINE size_t head_m(enum dtype type)
{
    return type == DTYPE_MXFP4 ? PANEL_ROWS : 2 * PANEL_ROWS;
}

INLINE size_t head_scales(enum dtype type)
{
    return head_m(type) + (quant_info[type].has_minimum ? 2 * PANEL_ROWS : 0);
}

INLINE size_t head_minimums(enum dtype type)
{
    return head_scales(type) + quant_info[type].n_scales * 8u * PANEL_ROWS;
}

INLINE size_t head_bytes(enum dtype type)
{
    if (!quant_info[type].n_scales)
        return head_scales(type);
    size_t with_minimums = quant_info[type].has_minimum && quant_info[type].n_scales == 1 ? 8 * PANEL_ROWS : 0;
    return ROUND_UP(head_minimums(type) + with_minimums, CACHE_LINE);
}

INLINE size_t block_bytes(enum dtype type)
{
    return head_bytes(type) + block_k(type) / 32 * quant_bytes(type);
}

static inline size_t panel_bytes(enum dtype type, uint32_t k)
{
    return ROUND_UP(in_blocks(type) ? k / block_k(type) * block_bytes(type) : PANEL_ROWS * dtype_bytes(type, k), 64);
}

#endif
