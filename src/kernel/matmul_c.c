/* matmul_c.c: the matrix product that every variant repeats bit for bit.  A tile is one row of x against a panel. */
#include "kernel/matmul.h"

#include <math.h>
#include <string.h>

#define TILE_ROWS 1
#define PLAIN_ROWS 1
#define TILE_PANELS 1

static float load_f16(const uint8_t *from)
{
    uint16_t bits;
    memcpy(&bits, from, sizeof bits);
    return f16_to_f32(bits);
}

/* What a head says of row `lane`. */
INLINE float load_d(enum dtype type, const uint8_t *head, int lane)
{
    return type == DTYPE_MXFP4 ? e8m0_half_to_f32(head[lane]) : load_f16(head + 2 * lane);
}

INLINE float load_m(enum dtype type, const uint8_t *head, int lane)
{
    return load_f16(head + head_m(type) + 2 * lane);
}

INLINE int scale(enum dtype type, const uint8_t *head, int lane, int j)
{
    int byte = head[head_scales(type) + j * PANEL_ROWS + lane];
    return type == DTYPE_Q2_K ? byte & 15 : (int8_t)byte;
}

INLINE int minimum(enum dtype type, const uint8_t *head, int lane, int j)
{
    return type == DTYPE_Q2_K ? head[head_scales(type) + j * PANEL_ROWS + lane] >> 4
                              : head[head_minimums(type) + j * PANEL_ROWS + lane];
}

/* `bits` bits of the quant at element k of 32. */
INLINE int plane(const uint8_t *from, int lane, int k, int bits)
{
    int j = k / 4;
    return from[j % bits * 4 * PANEL_ROWS + lane * 4 + k % 4] >> j / bits * bits & ((1 << bits) - 1);
}

INLINE int value(enum dtype type, const uint8_t *quants, int lane, int k)
{
    const int low = low_bits(type), high = quant_info[type].bits - low;
    int q = plane(quants, lane, k, low);
    if (high)
        q |= plane(quants + 4 * PANEL_ROWS * low, lane, k, high) << low;
    return quant_info[type].values ? quant_info[type].values[q] : q - quant_info[type].offset;
}

/* Block b of the 32 k's of a head.  Products with sub-scales are below 2^24, so f32 holds them, and the sum of two, exactly. */
INLINE void step_int8(enum dtype type, float acc[PANEL_ROWS], const uint8_t *head, int b, const struct act_block *x)
{
    const struct quant_info info = quant_info[type];
    const uint8_t *quants = head + head_bytes(type) + (size_t)b * quant_bytes(type);
    int32_t dot[2][PANEL_ROWS] = { 0 }, sum[2] = { 0 };
    for (int k = 0; k < 32; k++) {
        sum[k / 16] += x->q[k];
        for (int lane = 0; lane < PANEL_ROWS; lane++)
            dot[k / 16][lane] += value(type, quants, lane, k) * x->q[k];
    }
    for (int lane = 0; lane < PANEL_ROWS; lane++) {
        float scaled = (float)(dot[0][lane] + dot[1][lane]);
        if (info.n_scales == 1)
            scaled *= (float)scale(type, head, lane, b);
        if (info.n_scales == 2)
            scaled = fmaf((float)dot[1][lane], (float)scale(type, head, lane, 2 * b + 1),
                          (float)dot[0][lane] * (float)scale(type, head, lane, 2 * b));
        acc[lane] = fmaf(scaled, load_d(type, head, lane) * x->d, acc[lane]);
        if (!info.has_minimum)
            continue;
        float m = load_m(type, head, lane);
        if (info.n_scales == 0)
            acc[lane] = fmaf(m, x->s, acc[lane]);
        else if (info.n_scales == 1)
            acc[lane] = fmaf(-m * (float)minimum(type, head, lane, b), x->s, acc[lane]);
        else
            acc[lane] = fmaf((float)(minimum(type, head, lane, 2 * b) * sum[0] + minimum(type, head, lane, 2 * b + 1) * sum[1]),
                             -m * x->d, acc[lane]);
    }
}

/* Element k of row `lane` of a block, as dequantize_row() gives it. */
INLINE float block_weight(enum dtype type, const uint8_t *head, size_t k, int lane)
{
    const struct quant_info info = quant_info[type];
    const int j = (int)k / (info.n_scales == 2 ? 16 : 32);
    float d = load_d(type, head, lane), m = info.has_minimum ? load_m(type, head, lane) : 0;
    if (info.n_scales)
        d *= (float)scale(type, head, lane, j);
    if (info.n_scales && info.has_minimum)
        m = -m * (float)minimum(type, head, lane, j);
    float w = d * (float)value(type, head + head_bytes(type) + k / 32 * quant_bytes(type), lane, (int)k % 32);
    return info.has_minimum ? w + m : w;
}

/* Element k of row `lane` of a panel. */
INLINE float weight(enum dtype type, const uint8_t *panel, size_t k, int lane)
{
    float element;
    if (type == DTYPE_F32)
        return memcpy(&element, panel + (k * PANEL_ROWS + lane) * 4, 4), element;
    if (type == DTYPE_F16)
        return load_f16(panel + (k * PANEL_ROWS + lane) * 2);
    if (type == DTYPE_BF16) {
        uint16_t bits;
        return memcpy(&bits, panel + (k * PANEL_ROWS + lane) * 2, 2), bf16_to_f32(bits);
    }
    return block_weight(type, panel + k / block_k(type) * block_bytes(type), k % block_k(type), lane);
}

/* The sums of one group: k in [begin, end). */
INLINE void chain(enum dtype type, bool int8, float acc[PANEL_ROWS], const struct tile *tile, size_t begin, size_t end)
{
    const struct act_block *blocks = (const void *)tile->x;
    const float *x = (const void *)tile->x;
    const size_t n = block_k(type) / 32;
    memset(acc, 0, PANEL_ROWS * sizeof *acc);
    if (int8)
        for (size_t b = begin / 32; b < end / 32; b++)
            step_int8(type, acc, tile->panel + b / n * block_bytes(type), (int)(b % n), blocks + b);
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
