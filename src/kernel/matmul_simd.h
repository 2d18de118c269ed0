/* matmul_simd.h: the tile of every instruction set, in the words of simd.h.
 *
 * A strip is LANES rows of weights, a whole panel or half of one, so that a register is a strip's sums with one row of x.
 * A pass takes n_strips strips and n rows of x; both are constants in every caller, and then acc[] is registers.
 *
 * The file that includes this has defined
 *   TILE_ROWS, TILE_PANELS     the most that a tile has
 *   PASS_STRIPS(plain, n)      strips in a pass of n rows, so that acc[] and w fit in registers; plain: f32, not in blocks
 *   ints ...                   a register of LANES int32, and what can be done with it
 *   dots()                     dot products of a block's quants; see there */
#ifndef STOA_KERNEL_MATMUL_SIMD_H
#define STOA_KERNEL_MATMUL_SIMD_H

#define MAX_SUMS (2 * TILE_ROWS)        /* registers in acc[], [n_strips][n] */

/* Where a strip is: its panel, and its first row's number there. */
struct strip {
    const uint8_t *panel;
    size_t lane;
};

INLINE struct strip strip_at(const struct tile *tile, uint32_t s)
{
    return (struct strip) { tile->panel + s / VECS_16 * tile->panel_bytes, s % VECS_16 * LANES };
}

INLINE bool in_blocks(enum dtype type)
{
    return type == DTYPE_Q8_0 || type == DTYPE_Q4_0 || type == DTYPE_Q4_1;
}

/* Bytes of a panel for one k. */
INLINE size_t column_bytes(enum dtype type)
{
    return type == DTYPE_F32 ? 64 : type == DTYPE_F16 || type == DTYPE_BF16 ? 32 : block_bytes(type) / 32;
}

/* Scales of a strip from a panel's row of 16; the minimums are the row after. */
INLINE vec load_scales(enum dtype type, const uint8_t *block, size_t lane)
{
    return vec_from_f16(half_load((const void *)(block + quant_bytes(type) + 2 * lane)));
}

INLINE vec load_minimums(enum dtype type, const uint8_t *block, size_t lane)
{
    return load_scales(type, block, PANEL_ROWS + lane);
}

/* Fetches what lies ahead of n_bytes at w, into L2 from afar and into L1 just in time.  The hardware's own prefetch stops at
 * each page: 10 GB/s without this, 16 with it, where reading alone does 17. */
INLINE void prefetch(const uint8_t *w, size_t n_bytes)
{
    UNROLL for (size_t i = 0; i < n_bytes; i += 64) {
        _mm_prefetch((const void *)(w + 4096 + i), _MM_HINT_T1);
        _mm_prefetch((const void *)(w + 640 + i), _MM_HINT_T0);
    }
}

/* One block of a strip against n rows of x. */
INLINE void step_int8(enum dtype type, int n, vec *acc, const uint8_t *block, size_t lane, const uint8_t *x, size_t x_stride)
{
    const vec d = load_scales(type, block, lane);
    ints dot[TILE_ROWS];

    dots(type, n, dot, block + 4 * lane, x, x_stride);
    UNROLL for (int t = 0; t < n; t++) {
        const struct act_block *a = (const void *)(x + t * x_stride);
        acc[t] = vec_fma(vec_from_ints(dot[t]), vec_mul(d, vec_all(a->d)), acc[t]);
        if (type == DTYPE_Q4_1)
            acc[t] = vec_fma(load_minimums(type, block, lane), vec_all(a->s), acc[t]);
    }
}

INLINE void chain_int8(enum dtype type, int n_strips, int n, vec *acc, const struct tile *tile, uint32_t s0,
                       size_t begin, size_t end)
{
    const uint8_t *x = tile->x + begin / 32 * sizeof(struct act_block);
    for (size_t b = begin / 32; b < end / 32; b++, x += sizeof(struct act_block))
        UNROLL for (int s = 0; s < n_strips; s++) {
            struct strip strip = strip_at(tile, s0 + s);
            const uint8_t *block = strip.panel + b * block_bytes(type);
            if (strip.lane == 0)
                prefetch(block, block_bytes(type));
            step_int8(type, n, acc + s * n, block, strip.lane, x, tile->x_stride);
        }
}

/* Element k + i of a strip's rows, i < 4, as dequantize_row() gives it.  In blocks k is a multiple of 4. */
INLINE vec load_weights(enum dtype type, struct strip strip, size_t k, int i)
{
    const void *plain = strip.panel + (k + i) * column_bytes(type) + strip.lane * column_bytes(type) / PANEL_ROWS;
    if (type == DTYPE_F32)
        return vec_load(plain);
    if (type == DTYPE_F16)
        return vec_from_f16(half_load(plain));
    if (type == DTYPE_BF16)
        return vec_from_bf16(half_load(plain));
    const uint8_t *block = strip.panel + k / 32 * block_bytes(type);
    const int j = (int)(k % 32 / 4), n_steps = (int)quant_bytes(type) / 64;
    ints q = ints_load(block + j % n_steps * 64 + 4 * strip.lane);
    q = ints_and(ints_shift_right(q, j / n_steps * 4 + i * 8), ints_all(type == DTYPE_Q8_0 ? 255 : 15));
    q = ints_sub(q, ints_all(type == DTYPE_Q8_0 ? 128 : type == DTYPE_Q4_0 ? 8 : 0));
    vec value = vec_mul(load_scales(type, block, strip.lane), vec_from_ints(q));
    return type == DTYPE_Q4_1 ? vec_add(value, load_minimums(type, block, strip.lane)) : value;
}

INLINE void step_f32(int n_strips, int n, vec *acc, const vec *w, const uint8_t *x, size_t x_stride)
{
    UNROLL for (int t = 0; t < n; t++) {
        float value;
        memcpy(&value, x + t * x_stride, sizeof value);
        UNROLL for (int s = 0; s < n_strips; s++)
            acc[s * n + t] = vec_fma(vec_all(value), w[s], acc[s * n + t]);
    }
}

/* Four k at a time save address arithmetic, which would be a third of the instructions. */
INLINE void chain_f32(enum dtype type, int n_strips, int n, vec *acc, const struct tile *tile, uint32_t s0,
                      size_t begin, size_t end)
{
    const uint8_t *x = tile->x + begin * sizeof(float);
    size_t k = begin;
    vec w[2];
    for (; k + 4 <= end; k += 4, x += 4 * sizeof(float)) {
        UNROLL for (int s = 0; s < n_strips; s++)
            if (strip_at(tile, s0 + s).lane == 0)
                prefetch(strip_at(tile, s0 + s).panel + k * column_bytes(type), 4 * column_bytes(type));
        UNROLL for (int i = 0; i < 4; i++) {
            UNROLL for (int s = 0; s < n_strips; s++)
                w[s] = load_weights(type, strip_at(tile, s0 + s), k, i);
            step_f32(n_strips, n, acc, w, x + i * sizeof(float), tile->x_stride);
        }
    }
    for (; k < end; k++, x += sizeof(float)) {
        UNROLL for (int s = 0; s < n_strips; s++)
            w[s] = load_weights(type, strip_at(tile, s0 + s), k, 0);
        step_f32(n_strips, n, acc, w, x, tile->x_stride);
    }
}

/* Strips s0 .. s0 + n_strips - 1 with all groups of the tree, whose stack stays in L1. */
INLINE void pass(enum dtype type, bool int8, int n_strips, int n, const struct tile *tile, uint32_t s0)
{
    const struct sum_tree *tree = tile->tree;
    const int n_sums = n_strips * n;
    float stack[TREE_MAX_GROUPS][MAX_SUMS][LANES] __attribute__((aligned(64)));
    uint32_t depth = 0, begin = 0;

    for (uint32_t g = 0; g < tree->n_groups; g++) {
        vec acc[MAX_SUMS];
        UNROLL for (int i = 0; i < n_sums; i++)
            acc[i] = vec_all(0.0f);
        if (int8)
            chain_int8(type, n_strips, n, acc, tile, s0, begin, tree->end[g]);
        else
            chain_f32(type, n_strips, n, acc, tile, s0, begin, tree->end[g]);
        begin = tree->end[g];
        for (uint8_t m = 0; m < tree->n_merges[g]; m++) {
            depth--;
            UNROLL for (int i = 0; i < n_sums; i++)
                acc[i] = vec_add(vec_load(stack[depth][i]), acc[i]);
        }
        UNROLL for (int i = 0; i < n_sums; i++)
            vec_store(stack[depth][i], acc[i]);
        depth++;
    }
    for (uint32_t p = 0; p < tree->n_parts; p++)
        for (int s = 0; s < n_strips; s++)
            for (int t = 0; t < n; t++) {
                uint32_t column = (s0 + s) * LANES;
                vec_store_part(tile->y + p * tile->part_stride + t * tile->y_stride + column, vec_load(stack[p][s * n + t]),
                               MIN(LANES, tile->n_columns - column));
            }
}

INLINE void tile_rows(enum dtype type, bool int8, int n, const struct tile *tile)
{
    const uint32_t n_strips = DIV_UP(tile->n_columns, LANES), at_once = PASS_STRIPS(!int8 && !in_blocks(type), n);
    uint32_t s = 0;
    for (; s + at_once <= n_strips; s += at_once)
        pass(type, int8, at_once, n, tile, s);
    for (; s < n_strips; s++)
        pass(type, int8, 1, n, tile, s);
}

INLINE void tile_run(enum dtype type, bool int8, const struct tile *tile, uint32_t n_rows)
{
    switch (n_rows) {
    case 1: tile_rows(type, int8, 1, tile); break;
    case 2: tile_rows(type, int8, 2, tile); break;
    case 3: tile_rows(type, int8, 3, tile); break;
    case 4: tile_rows(type, int8, 4, tile); break;
#if TILE_ROWS > 4
    case 5: tile_rows(type, int8, 5, tile); break;
    case 6: tile_rows(type, int8, 6, tile); break;
    case 7: tile_rows(type, int8, 7, tile); break;
    case 8: tile_rows(type, int8, 8, tile); break;
#endif
    }
}

#endif
