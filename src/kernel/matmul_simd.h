/* matmul_simd.h: the tile of every instruction set, in the words of simd.h.
 *
 * A strip is LANES rows of weights, a whole panel or half of one, so that a register is a strip's sums with one row of x.
 * A pass takes n_strips strips and n rows of x; both are constants in every caller, and then acc[] is registers.
 *
 * The file that includes this has defined
 *   TILE_ROWS, TILE_PANELS     the most that a tile has; PLAIN_ROWS for types that are not in blocks
 *   MAX_STRIPS                 and of a pass
 *   PASS_STRIPS(plain, n)      strips in a pass of n rows, so that acc[] and w fit in registers; plain: f32, not in blocks
 *   SIGNED_DOTS(type)          whether dots() takes a type's offset off quants; else the sum starts at what it amounts to
 *   dots()                     dot products of quants; see there */
#ifndef STOA_KERNEL_MATMUL_SIMD_H
#define STOA_KERNEL_MATMUL_SIMD_H

#define MAX_SUMS (MAX_STRIPS * MAX(TILE_ROWS, PLAIN_ROWS))      /* registers in acc[], [n_strips][n] */

/* Where a strip is: its panel, and its first row's number there. */
struct strip {
    const uint8_t *panel;
    size_t lane;
};

INLINE struct strip strip_at(const struct tile *tile, uint32_t s)
{
    return (struct strip) { tile->panel + s / VECS_16 * tile->panel_bytes, s % VECS_16 * LANES };
}

/* Two where a type has a scale for each 16 k: then a block of 32 has two dot products. */
INLINE int n_halves(enum dtype type)
{
    return quant_info[type].n_scales == 2 ? 2 : 1;
}

INLINE const struct act_block *act_block_at(const uint8_t *x, size_t x_stride, int t)
{
    return (const void *)(x + t * x_stride);
}

/* Fetches what lies ahead of n_bytes at w, into L2 from afar and into L1 just in time.  The hardware's own prefetch stops at
 * each page: 10 GB/s without this, 16 with it, where reading alone does 17. */
INLINE void prefetch(const uint8_t *w, size_t n_bytes)
{
    UNROLL for (size_t i = 0; i < n_bytes; i += 64) {
        __builtin_prefetch(w + 4096 + i, 0, 2);
        __builtin_prefetch(w + 640 + i, 0, 3);
    }
}

/* What a row of x adds up to in each half of its next eight blocks, times `factor`; of half h of block b at half_at(b, h). */
struct half_sums {
    int32_t at[16];
};

INLINE int half_at(int b, int h)
{
    return (b & 4) * 2 + h * 4 + (b & 3);
}

INLINE bool wants_half_sums(enum dtype type)
{
    return n_halves(type) == 2 && (quant_info[type].has_minimum || !SIGNED_DOTS(type));
}

INLINE void half_sums_make(struct half_sums *to, const struct act_block *x, int factor)
{
    sum_halves(to->at, x[0].q, sizeof *x, factor);
    sum_halves(to->at + 8, x[4].q, sizeof *x, factor);
}

/* What a dot product starts with. */
INLINE ints dot_start(enum dtype type, const struct act_block *x, const struct half_sums *sums, int b, int half)
{
    const int offset = SIGNED_DOTS(type) ? 0 : quant_info[type].offset;
    if (offset && n_halves(type) == 2)
        return ints_all(sums->at[half_at(b, half)]);
    return ints_all(offset == 128 ? x->start128 : offset / 8 * x->start8);
}

/* One block of 32, number b under its head, of a strip against n rows of x.  Sub-scales are multiplied in f32, which holds
 * the products, and the sum of two, exactly: all are below 2^24 (kernel.h). */
INLINE void step_int8(enum dtype type, int n, vec *acc, const uint8_t *head, vec d, vec m, int b, size_t lane, const uint8_t *x,
                      size_t x_stride, const struct half_sums *sums)
{
    const struct quant_info info = quant_info[type];
    const uint8_t *quants = head + head_bytes(type) + b * quant_bytes(type);
    const int halves = n_halves(type);
    vec scaled[TILE_ROWS];

    UNROLL for (int h = 0; h < halves; h++) {
        const vec scale = info.n_scales ? load_scale(type, head, lane, b * halves + h) : d;
        ints dot[TILE_ROWS];
        UNROLL for (int t = 0; t < n; t++)
            dot[t] = dot_start(type, act_block_at(x, x_stride, t), sums + t, b, h);
        dots(type, h * 4, 8 / halves, n, dot, quants, lane, x, x_stride);
        UNROLL for (int t = 0; t < n; t++) {
            vec value = vec_from_ints(dot[t]);
            scaled[t] = h ? vec_fma(value, scale, scaled[t]) : info.n_scales ? vec_mul(value, scale) : value;
        }
    }
    UNROLL for (int t = 0; t < n; t++)
        acc[t] = vec_fma(scaled[t], vec_mul(d, vec_all(act_block_at(x, x_stride, t)->d)), acc[t]);
    if (!info.has_minimum)
        return;
    if (halves == 1) {
        if (info.n_scales)
            m = vec_mul(m, vec_from_ints(load_minimum(type, head, lane, b)));
        UNROLL for (int t = 0; t < n; t++)
            acc[t] = vec_fma(m, vec_all(act_block_at(x, x_stride, t)->s), acc[t]);
    } else {
        const ints m0 = load_minimum(type, head, lane, 2 * b), m1 = load_minimum(type, head, lane, 2 * b + 1);
        UNROLL for (int t = 0; t < n; t++) {
            ints sum = ints_add(ints_mul16(m0, ints_all(sums[t].at[half_at(b, 0)])),
                                ints_mul16(m1, ints_all(sums[t].at[half_at(b, 1)])));
            acc[t] = vec_fma(vec_from_ints(sum), vec_mul(m, vec_all(act_block_at(x, x_stride, t)->d)), acc[t]);
        }
    }
}

INLINE void chain_int8(enum dtype type, int n_strips, int n, vec *acc, const struct tile *tile, uint32_t s0,
                       size_t begin, size_t end)
{
    const size_t k_step = block_k(type);
    const uint8_t *x = tile->x + begin / 32 * sizeof(struct act_block);
    for (size_t k = begin; k < end; k += k_step, x += k_step / 32 * sizeof(struct act_block)) {
        struct half_sums sums[TILE_ROWS];
        for (int t = 0; wants_half_sums(type) && t < n; t++)
            half_sums_make(sums + t, act_block_at(x, tile->x_stride, t), quant_info[type].offset ? -quant_info[type].offset : 1);
        UNROLL for (int s = 0; s < n_strips; s++) {
            struct strip strip = strip_at(tile, s0 + s);
            const uint8_t *head = strip.panel + k / k_step * block_bytes(type);
            const vec d = load_d(type, head, strip.lane), m = load_m(type, head, strip.lane);
            if (strip.lane == 0 && k_step > 32)
                prefetch(head, head_bytes(type));
            for (int b = 0; b < (int)k_step / 32; b++) {
                if (strip.lane == 0)
                    prefetch(k_step > 32 ? head + head_bytes(type) + b * quant_bytes(type) : head,
                             k_step > 32 ? quant_bytes(type) : block_bytes(type));
                step_int8(type, n, acc + s * n, head, d, m, b, strip.lane, x + b * sizeof(struct act_block), tile->x_stride, sums);
            }
        }
    }
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

/* Bytes of a plain panel for one k: a constant, unlike what dtype_info says. */
INLINE size_t column_bytes(enum dtype type)
{
    return PANEL_ROWS * (type == DTYPE_F32 ? sizeof(float) : sizeof(uint16_t));
}

INLINE vec load_plain(enum dtype type, struct strip strip, size_t k)
{
    const void *from = strip.panel + k * column_bytes(type) + strip.lane * column_bytes(type) / PANEL_ROWS;
    return type == DTYPE_F32 ? vec_load(from) : type == DTYPE_F16 ? vec_from_f16(half_load(from)) : vec_from_bf16(half_load(from));
}

/* Four k at a time save address arithmetic, which would be a third of the instructions. */
INLINE void chain_plain(enum dtype type, int n_strips, int n, vec *acc, const struct tile *tile, uint32_t s0,
                        size_t begin, size_t end)
{
    const uint8_t *x = tile->x + begin * sizeof(float);
    size_t k = begin;
    vec w[MAX_STRIPS];
    for (; k + 4 <= end; k += 4, x += 4 * sizeof(float)) {
        UNROLL for (int s = 0; s < n_strips; s++)
            if (strip_at(tile, s0 + s).lane == 0)
                prefetch(strip_at(tile, s0 + s).panel + k * column_bytes(type), 4 * column_bytes(type));
        UNROLL for (int i = 0; i < 4; i++) {
            UNROLL for (int s = 0; s < n_strips; s++)
                w[s] = load_plain(type, strip_at(tile, s0 + s), k + i);
            step_f32(n_strips, n, acc, w, x + i * sizeof(float), tile->x_stride);
        }
    }
    for (; k < end; k++, x += sizeof(float)) {
        UNROLL for (int s = 0; s < n_strips; s++)
            w[s] = load_plain(type, strip_at(tile, s0 + s), k);
        step_f32(n_strips, n, acc, w, x, tile->x_stride);
    }
}

/* Block b of 32 under a head of a strip, as dequantize_row() gives it. */
INLINE void unpack_block(enum dtype type, float w[32][LANES], const uint8_t *head, int b, size_t lane)
{
    const struct quant_info info = quant_info[type];
    const int halves = n_halves(type);
    const vec d = load_d(type, head, lane), m = load_m(type, head, lane);
    for (int j = 0; j < 8; j++) {
        const int sub = b * halves + (halves == 2 ? j / 4 : 0);
        const vec scale = info.n_scales ? vec_mul(d, load_scale(type, head, lane, sub)) : d;
        const ints quants = load_quants(type, head + head_bytes(type) + b * quant_bytes(type), lane, j);
        vec minimum = m;
        if (info.n_scales && info.has_minimum)
            minimum = vec_mul(m, vec_from_ints(load_minimum(type, head, lane, sub)));
        UNROLL for (int i = 0; i < 4; i++) {
            vec value = vec_mul(scale, quant_value(type, quants, i));
            vec_store(w[4 * j + i], info.has_minimum ? vec_add(value, minimum) : value);
        }
    }
}

/* f32 activations are for reference, so one function multiplies blocks of all types, and one for each type unpacks them. */
typedef void unpack_fn(float w[32][LANES], const uint8_t *head, int b, size_t lane);
#define DEFINE_UNPACK(type, TYPE, isa) \
    static void unpack_##type(float w[32][LANES], const uint8_t *head, int b, size_t lane) \
    { \
        unpack_block(DTYPE_##TYPE, w, head, b, lane); \
    }
MATMUL_INT8_TYPES(DEFINE_UNPACK, )
#define UNPACK_ENTRY(type, TYPE, isa) [DTYPE_##TYPE] = unpack_##type,
static unpack_fn *const unpack_of[N_DTYPES] = { MATMUL_INT8_TYPES(UNPACK_ENTRY, ) };

INLINE void chain_unpacked(enum dtype type, int n_strips, int n, vec *acc, const struct tile *tile, uint32_t s0,
                           size_t begin, size_t end)
{
    const uint8_t *x = tile->x + begin * sizeof(float);
    for (size_t k = begin; k < end; k += 32, x += 32 * sizeof(float))
        UNROLL for (int s = 0; s < n_strips; s++) {
            struct strip strip = strip_at(tile, s0 + s);
            float w[32][LANES] __attribute__((aligned(64)));
            unpack_of[type](w, strip.panel + k / block_k(type) * block_bytes(type), (int)(k % block_k(type) / 32), strip.lane);
            for (int i = 0; i < 32; i++) {
                vec column = vec_load(w[i]);
                step_f32(1, n, acc + s * n, &column, x + i * sizeof(float), tile->x_stride);
            }
        }
}

enum mode { INT8, PLAIN, UNPACKED };

/* Strips s0 .. s0 + n_strips - 1 with all groups of the tree, whose stack stays in L1. */
INLINE void pass(enum dtype type, enum mode mode, int n_strips, int n, const struct tile *tile, uint32_t s0)
{
    const struct sum_tree *tree = tile->tree;
    const int n_sums = n_strips * n;
    float stack[TREE_MAX_GROUPS][MAX_SUMS][LANES] __attribute__((aligned(64)));
    uint32_t depth = 0, begin = 0;

    for (uint32_t g = 0; g < tree->n_groups; g++) {
        vec acc[MAX_SUMS];
        UNROLL for (int i = 0; i < n_sums; i++)
            acc[i] = vec_all(0.0f);
        if (mode == INT8)
            chain_int8(type, n_strips, n, acc, tile, s0, begin, tree->end[g]);
        else if (mode == PLAIN)
            chain_plain(type, n_strips, n, acc, tile, s0, begin, tree->end[g]);
        else
            chain_unpacked(type, n_strips, n, acc, tile, s0, begin, tree->end[g]);
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

INLINE void tile_rows(enum dtype type, enum mode mode, int n, const struct tile *tile)
{
    const uint32_t n_strips = DIV_UP(tile->n_columns, LANES), at_once = PASS_STRIPS(mode == PLAIN, n);
    uint32_t s = 0;
    for (; s + at_once <= n_strips; s += at_once)
        pass(type, mode, at_once, n, tile, s);
    for (; s < n_strips; s++)
        pass(type, mode, 1, n, tile, s);
}

#define ROWS_CASE(n) case n: tile_rows(type, mode, n, tile); break;

INLINE void tile_any_rows(enum dtype type, enum mode mode, const struct tile *tile, uint32_t n_rows)
{
    switch (n_rows) {
    ROWS_CASE(1) ROWS_CASE(2) ROWS_CASE(3) ROWS_CASE(4)
#if TILE_ROWS > 4
    ROWS_CASE(5) ROWS_CASE(6) ROWS_CASE(7) ROWS_CASE(8)
#endif
    }
}

INLINE void tile_plain_rows(enum dtype type, const struct tile *tile, uint32_t n_rows)
{
#if PLAIN_ROWS > 8
    const enum mode mode = PLAIN;
    switch (n_rows) {
    ROWS_CASE(9) ROWS_CASE(10) ROWS_CASE(11) ROWS_CASE(12)
    default: tile_any_rows(type, PLAIN, tile, n_rows);
    }
#else
    tile_any_rows(type, PLAIN, tile, n_rows);
#endif
}

static __attribute__((noinline, unused)) void tile_unpacked(enum dtype type, const struct tile *tile, uint32_t n_rows)
{
    tile_any_rows(type, UNPACKED, tile, n_rows);
}

INLINE void tile_run(enum dtype type, bool int8, const struct tile *tile, uint32_t n_rows)
{
    if (int8)
        tile_any_rows(type, INT8, tile, n_rows);
    else if (!in_blocks(type))
        tile_plain_rows(type, tile, n_rows);
    else
        tile_unpacked(type, tile, n_rows);
}

#endif
