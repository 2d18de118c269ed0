/* matmul.h: what the variants of a matrix product share: their names, and the walk over tiles. */
#ifndef STOA_KERNEL_MATMUL_H
#define STOA_KERNEL_MATMUL_H

#include "kernel/panel.h"

/* Every variant has a matmul_int8_<type>_<isa> for each of these types ... */
#define MATMUL_INT8_TYPES(ROW, isa) \
    ROW(q8_0, Q8_0, isa) ROW(q4_0, Q4_0, isa) ROW(q4_1, Q4_1, isa) ROW(q5_0, Q5_0, isa) ROW(q5_1, Q5_1, isa) \
    ROW(q2_k, Q2_K, isa) ROW(q3_k, Q3_K, isa) ROW(q4_k, Q4_K, isa) ROW(q5_k, Q5_K, isa) ROW(q6_k, Q6_K, isa) \
    ROW(iq4_nl, IQ4_NL, isa) ROW(iq4_xs, IQ4_XS, isa) ROW(mxfp4, MXFP4, isa)
/* ... and a matmul_f32_<type>_<isa> for each of these. */
#define MATMUL_F32_TYPES(ROW, isa) \
    ROW(f32, F32, isa) ROW(f16, F16, isa) ROW(bf16, BF16, isa) MATMUL_INT8_TYPES(ROW, isa)

#define DECLARE_INT8(type, TYPE, isa) matmul_fn matmul_int8_##type##_##isa;
#define DECLARE_F32(type, TYPE, isa) matmul_fn matmul_f32_##type##_##isa;
MATMUL_INT8_TYPES(DECLARE_INT8, c)
MATMUL_F32_TYPES(DECLARE_F32, c)
MATMUL_INT8_TYPES(DECLARE_INT8, avx2)
MATMUL_F32_TYPES(DECLARE_F32, avx2)
MATMUL_INT8_TYPES(DECLARE_INT8, avxvnni)
MATMUL_INT8_TYPES(DECLARE_INT8, avx512)
MATMUL_F32_TYPES(DECLARE_F32, avx512)
MATMUL_INT8_TYPES(DECLARE_INT8, amx)
MATMUL_INT8_TYPES(DECLARE_INT8, neon)
MATMUL_F32_TYPES(DECLARE_F32, neon)
#undef DECLARE_INT8
#undef DECLARE_F32

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

/* The matrix products of all types, from the file's TILE_ROWS, PLAIN_ROWS (types not in blocks), TILE_PANELS and
 * tile_run(type, int8, tile, n_rows).  The constants type and int8 make each of them a kernel of its own. */
#define DEFINE_MATMUL(mode, int8, type, TYPE, isa) \
    static void tile_##mode##_##type(const struct tile *tile, uint32_t n_rows) \
    { \
        tile_run(DTYPE_##TYPE, int8, tile, n_rows); \
    } \
    void matmul_##mode##_##type##_##isa(const struct matmul_args *args) \
    { \
        matmul_walk(args, DTYPE_##TYPE, in_blocks(DTYPE_##TYPE) ? TILE_ROWS : PLAIN_ROWS, TILE_PANELS, tile_##mode##_##type); \
    }
#define DEFINE_INT8(type, TYPE, isa) DEFINE_MATMUL(int8, true, type, TYPE, isa)
#define DEFINE_F32(type, TYPE, isa) DEFINE_MATMUL(f32, false, type, TYPE, isa)
#define DEFINE_MATMULS(isa) MATMUL_INT8_TYPES(DEFINE_INT8, isa) MATMUL_F32_TYPES(DEFINE_F32, isa)

#endif
