/* matmul.h: what the variants of a matrix product share: packed panels, their names, and the walk over tiles.
 *
 * A panel is 16 rows of weights (kernel.h), so that a SIMD lane is a row.  Inside:
 *   F32 F16 BF16   [K][16] elements
 *   Q8_0           K/32 blocks of 544 bytes: quants [8][16][4] as q + 128, f16 d[16]
 *   Q4_0           K/32 blocks of 288 bytes: nibbles [4][16][4], f16 d[16]
 *   Q4_1           K/32 blocks of 320 bytes: nibbles [4][16][4], f16 d[16], f16 m[16]
 * Quants [j][row][i] are those of k = 4 j + i: 64 bytes are one step of four k for 16 rows, as VNNI wants them.  The low
 * nibbles are k 0 to 15 of the block, the high ones 16 to 31.  Padding to 64 bytes follows the last block. */
#ifndef STOA_KERNEL_MATMUL_H
#define STOA_KERNEL_MATMUL_H

#include "base/base.h"
#include "kernel/kernel.h"

#define INLINE static inline __attribute__((always_inline))

/* Every variant has a matmul_int8_<type>_<isa> for each of these types ... */
#define MATMUL_INT8_TYPES(ROW, isa) ROW(q8_0, Q8_0, isa) ROW(q4_0, Q4_0, isa) ROW(q4_1, Q4_1, isa)
/* ... and a matmul_f32_<type>_<isa> for each of these. */
#define MATMUL_F32_TYPES(ROW, isa) \
    ROW(f32, F32, isa) ROW(f16, F16, isa) ROW(bf16, BF16, isa) MATMUL_INT8_TYPES(ROW, isa)

#define DECLARE_INT8(type, TYPE, isa) matmul_fn matmul_int8_##type##_##isa;
#define DECLARE_F32(type, TYPE, isa) matmul_fn matmul_f32_##type##_##isa;
MATMUL_INT8_TYPES(DECLARE_INT8, c)
MATMUL_F32_TYPES(DECLARE_F32, c)
MATMUL_INT8_TYPES(DECLARE_INT8, avx2)
MATMUL_F32_TYPES(DECLARE_F32, avx2)
MATMUL_INT8_TYPES(DECLARE_INT8, avx512)
MATMUL_F32_TYPES(DECLARE_F32, avx512)
#undef DECLARE_INT8
#undef DECLARE_F32

/* Bytes of a block of 16 rows, and of its quants, which come first. */
INLINE size_t block_bytes(enum dtype type)
{
    return type == DTYPE_Q8_0 ? 544 : type == DTYPE_Q4_0 ? 288 : 320;
}

INLINE size_t quant_bytes(enum dtype type)
{
    return type == DTYPE_Q8_0 ? 512 : 256;
}

static inline size_t panel_bytes(enum dtype type, uint32_t k)
{
    return ROUND_UP(PANEL_ROWS * dtype_bytes(type, k), 64);
}

/* One or more panels against a few rows of x. */
struct tile {
    const uint8_t *panel;
    size_t panel_bytes;             /* from a panel to the next */
    const uint8_t *x;               /* the first row */
    size_t x_stride;
    float *y;                       /* the first row, the first column of the panels, part 0 */
    size_t y_stride, part_stride;
    uint32_t n_columns;             /* that are written: 16 for a panel, fewer in the last one */
    const struct sum_tree *tree;    /* never NULL */
};
typedef void matmul_tile_fn(const struct tile *tile, uint32_t n_rows);

/* Runs `run` over all that args asks for, in tiles of at most max_rows rows of x and max_panels panels. */
void matmul_walk(const struct matmul_args *args, enum dtype type, uint32_t max_rows, uint32_t max_panels,
                 matmul_tile_fn *run);

/* The matrix products of all types, from the file's TILE_ROWS, TILE_PANELS and tile_run(type, int8, tile, n_rows).  The
 * constants type and int8 make each of them a kernel of its own. */
#define DEFINE_MATMUL(mode, int8, type, TYPE, isa) \
    static void tile_##mode##_##type(const struct tile *tile, uint32_t n_rows) \
    { \
        tile_run(DTYPE_##TYPE, int8, tile, n_rows); \
    } \
    void matmul_##mode##_##type##_##isa(const struct matmul_args *args) \
    { \
        matmul_walk(args, DTYPE_##TYPE, TILE_ROWS, TILE_PANELS, tile_##mode##_##type); \
    }
#define DEFINE_INT8(type, TYPE, isa) DEFINE_MATMUL(int8, true, type, TYPE, isa)
#define DEFINE_F32(type, TYPE, isa) DEFINE_MATMUL(f32, false, type, TYPE, isa)
#define DEFINE_MATMULS(isa) MATMUL_INT8_TYPES(DEFINE_INT8, isa) MATMUL_F32_TYPES(DEFINE_F32, isa)

#endif
