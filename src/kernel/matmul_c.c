/* matmul_c.c: the matrix product that every variant repeats bit for bit.  A tile is one row of x against a panel. */
#include "kernel/matmul.h"

#include <math.h>
#include <string.h>

#define TILE_ROWS 1
#define TILE_PANELS 1

static float load_f16(const uint8_t *from)
{
    uint16_t bits;
    memcpy(&bits, from, sizeof bits);
    return f16_to_f32(bits);
}

/* The quant at element k of row `lane` of a block, still unsigned. */
INLINE int quant(enum dtype type, const uint8_t *block, int lane, int k)
{
    if (type == DTYPE_Q8_0)
        return block[k / 4 * 64 + lane * 4 + k % 4];
    int nibbles = block[k % 16 / 4 * 64 + lane * 4 + k % 4];
    return k < 16 ? nibbles & 15 : nibbles >> 4;
}

INLINE int quant_offset(enum dtype type)
{
    return type == DTYPE_Q8_0 ? 128 : type == DTYPE_Q4_0 ? 8 : 0;
}

INLINE void step_int8(enum dtype type, float acc[PANEL_ROWS], const uint8_t *block, const struct act_block *x)
{
    int32_t dot[PANEL_ROWS];
    for (int lane = 0; lane < PANEL_ROWS; lane++)
        dot[lane] = type == DTYPE_Q8_0 ? x->start128 : type == DTYPE_Q4_0 ? x->start8 : 0;
    for (int k = 0; k < 32; k++)
        for (int lane = 0; lane < PANEL_ROWS; lane++)
            dot[lane] += quant(type, block, lane, k) * x->q[k];
    const uint8_t *d = block + quant_bytes(type), *m = d + 2 * PANEL_ROWS;
    for (int lane = 0; lane < PANEL_ROWS; lane++) {
        acc[lane] = fmaf((float)dot[lane], load_f16(d + 2 * lane) * x->d, acc[lane]);
        if (type == DTYPE_Q4_1)
            acc[lane] = fmaf(load_f16(m + 2 * lane), x->s, acc[lane]);
    }
}

/* Element k of row `lane` of a panel, as dequantize_row() gives it. */
INLINE float weight(enum dtype type, const uint8_t *panel, size_t k, int lane)
{
    float value;
    if (type == DTYPE_F32)
        return memcpy(&value, panel + (k * PANEL_ROWS + lane) * 4, 4), value;
    if (type == DTYPE_F16)
        return load_f16(panel + (k * PANEL_ROWS + lane) * 2);
    if (type == DTYPE_BF16) {
        uint16_t bits;
        return memcpy(&bits, panel + (k * PANEL_ROWS + lane) * 2, 2), bf16_to_f32(bits);
    }
    const uint8_t *block = panel + k / 32 * block_bytes(type), *d = block + quant_bytes(type) + 2 * lane;
    value = load_f16(d) * (float)(quant(type, block, lane, k % 32) - quant_offset(type));
    return type == DTYPE_Q4_1 ? value + load_f16(d + 2 * PANEL_ROWS) : value;
}

/* The sums of one group: k in [begin, end). */
INLINE void chain(enum dtype type, bool int8, float acc[PANEL_ROWS], const struct tile *tile, size_t begin, size_t end)
{
    const struct act_block *blocks = (const void *)tile->x;
    const float *x = (const void *)tile->x;
    memset(acc, 0, PANEL_ROWS * sizeof *acc);
    if (int8)
        for (size_t b = begin / 32; b < end / 32; b++)
            step_int8(type, acc, tile->panel + b * block_bytes(type), blocks + b);
    else
        for (size_t k = begin; k < end; k++)
            for (int lane = 0; lane < PANEL_ROWS; lane++)
                acc[lane] = fmaf(x[k], weight(type, tile->panel, k, lane), acc[lane]);
}

INLINE void tile_run(enum dtype type, bool int8, const struct tile *tile, uint32_t n_rows)
{
    assert(n_rows == TILE_ROWS);
    const struct sum_tree *tree = tile->tree;
    float stack[TREE_MAX_GROUPS][PANEL_ROWS];
    uint32_t depth = 0, begin = 0;

    for (uint32_t g = 0; g < tree->n_groups; g++) {
        chain(type, int8, stack[depth++], tile, begin, tree->end[g]);
        begin = tree->end[g];
        for (uint8_t m = 0; m < tree->n_merges[g]; m++) {
            depth--;
            for (int lane = 0; lane < PANEL_ROWS; lane++)
                stack[depth - 1][lane] += stack[depth][lane];
        }
    }
    for (uint32_t p = 0; p < tree->n_parts; p++)
        memcpy(tile->y + p * tile->part_stride, stack[p], tile->n_columns * sizeof(float));
}

DEFINE_MATMULS(c)
