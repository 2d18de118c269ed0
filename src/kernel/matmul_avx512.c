/* matmul_avx512.c: a tile is a panel against 1 to 8 rows of x; a register holds one row's 16 sums. */
#include "kernel/matmul.h"

#include <immintrin.h>
#include <string.h>

#define TILE_ROWS 8
#define UNROLL _Pragma("GCC unroll 8")

/* One block of a panel in registers: unsigned quants (q[j] is k = 4 j to 4 j + 3), scales and minimums. */
struct block {
    __m512i q[8];
    __m512 d, m;
};

INLINE __m512 load_f16(const uint8_t *from)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)from));
}

INLINE size_t block_bytes(enum dtype type)
{
    return type == DTYPE_Q8_0 ? 544 : type == DTYPE_Q4_0 ? 288 : 320;
}

INLINE const uint8_t *scales(enum dtype type, const uint8_t *from)
{
    return from + (type == DTYPE_Q8_0 ? 512 : 256);
}

INLINE void unpack(enum dtype type, struct block *w, const uint8_t *from)
{
    const __m512i low = _mm512_set1_epi8(15);
    if (type == DTYPE_Q8_0)
        UNROLL for (int j = 0; j < 8; j++)
            w->q[j] = _mm512_loadu_si512(from + 64 * j);
    else
        UNROLL for (int j = 0; j < 4; j++) {
            __m512i nibbles = _mm512_loadu_si512(from + 64 * j);
            w->q[j] = _mm512_and_si512(nibbles, low);
            w->q[j + 4] = _mm512_and_si512(_mm512_srli_epi16(nibbles, 4), low);
        }
    w->d = load_f16(scales(type, from));
    if (type == DTYPE_Q4_1)
        w->m = load_f16(scales(type, from) + 32);
}

INLINE __m512i broadcast_u32(const int8_t *from)
{
    int32_t v;
    memcpy(&v, from, sizeof v);
    return _mm512_set1_epi32(v);
}

/* One block against n rows of x.  The rows' dot products take turns, so that each step waits for none but its own row's. */
INLINE void step_int8(enum dtype type, int n, __m512 *acc, const struct block *w, const uint8_t *x, size_t x_stride)
{
    __m512i dot[TILE_ROWS];
    UNROLL for (int t = 0; t < n; t++) {
        const struct act_block *a = (const void *)(x + t * x_stride);
        dot[t] = type == DTYPE_Q8_0 ? _mm512_set1_epi32(a->start128) :
                 type == DTYPE_Q4_0 ? _mm512_set1_epi32(a->start8) : _mm512_setzero_si512();
    }
    UNROLL for (int j = 0; j < 8; j++)
        UNROLL for (int t = 0; t < n; t++)
            dot[t] = _mm512_dpbusd_epi32(dot[t], w->q[j], broadcast_u32((const int8_t *)x + t * x_stride + 4 * j));
    UNROLL for (int t = 0; t < n; t++) {
        const struct act_block *a = (const void *)(x + t * x_stride);
        acc[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[t]), _mm512_mul_ps(w->d, _mm512_set1_ps(a->d)), acc[t]);
        if (type == DTYPE_Q4_1)
            acc[t] = _mm512_fmadd_ps(w->m, _mm512_set1_ps(a->s), acc[t]);
    }
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

INLINE void chain_int8(enum dtype type, int n, __m512 *acc, const struct tile *tile, size_t begin, size_t end)
{
    const uint8_t *w = tile->panel + begin / 32 * block_bytes(type);
    const uint8_t *x = tile->x + begin / 32 * sizeof(struct act_block);
    for (size_t b = begin / 32; b < end / 32; b++) {
        struct block block;
        prefetch(w, block_bytes(type));
        unpack(type, &block, w);
        step_int8(type, n, acc, &block, x, tile->x_stride);
        w += block_bytes(type);
        x += sizeof(struct act_block);
    }
}

INLINE __m512 load_weights(enum dtype type, const uint8_t *panel, size_t k)
{
    if (type == DTYPE_F32)
        return _mm512_loadu_ps(panel + k * 64);
    if (type == DTYPE_F16)
        return load_f16(panel + k * 32);
    __m512i bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)(panel + k * 32)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
}

/* Element k of a block as dequantize_row() gives it. */
INLINE __m512 dequantize(enum dtype type, const uint8_t *block, int k)
{
    int steps = type == DTYPE_Q8_0 ? 8 : 4, shift = k % 4 * 8 + (k / 4 >= steps ? 4 : 0);
    __m512i q = _mm512_srli_epi32(_mm512_loadu_si512(block + k / 4 % steps * 64), (unsigned)shift);
    q = _mm512_and_si512(q, _mm512_set1_epi32(type == DTYPE_Q8_0 ? 255 : 15));
    q = _mm512_sub_epi32(q, _mm512_set1_epi32(type == DTYPE_Q8_0 ? 128 : type == DTYPE_Q4_0 ? 8 : 0));
    const uint8_t *d = scales(type, block);
    __m512 value = _mm512_mul_ps(load_f16(d), _mm512_cvtepi32_ps(q));
    return type == DTYPE_Q4_1 ? _mm512_add_ps(value, load_f16(d + 32)) : value;
}

INLINE void step_f32(int n_rows, __m512 *acc, __m512 w, const uint8_t *x, size_t x_stride)
{
    UNROLL for (int t = 0; t < n_rows; t++) {
        float value;
        memcpy(&value, x + t * x_stride, sizeof value);
        acc[t] = _mm512_fmadd_ps(_mm512_set1_ps(value), w, acc[t]);
    }
}

INLINE void chain_f32(enum dtype type, int n_rows, __m512 *acc, const struct tile *tile, size_t begin, size_t end)
{
    const bool blocks = type == DTYPE_Q8_0 || type == DTYPE_Q4_0 || type == DTYPE_Q4_1;
    if (blocks)
        for (size_t b = begin / 32; b < end / 32; b++)
            for (int k = 0; k < 32; k++)
                step_f32(n_rows, acc, dequantize(type, tile->panel + b * block_bytes(type), k),
                         tile->x + (b * 32 + k) * sizeof(float), tile->x_stride);
    else
        for (size_t k = begin; k < end; k++) {
            prefetch(tile->panel + k * PANEL_ROWS * (type == DTYPE_F32 ? 4 : 2), 1);
            step_f32(n_rows, acc, load_weights(type, tile->panel, k), tile->x + k * sizeof(float), tile->x_stride);
        }
}

/* n_rows is a constant in every caller: acc[] is registers, and the stack of group sums stays in L1. */
INLINE void rows_run(enum dtype type, bool int8, int n_rows, const struct tile *tile)
{
    const struct sum_tree *tree = tile->tree;
    const __mmask16 columns = (__mmask16)((1u << tile->n_columns) - 1);
    float stack[TREE_MAX_GROUPS][TILE_ROWS][PANEL_ROWS] __attribute__((aligned(64)));
    uint32_t depth = 0, begin = 0;

    for (uint32_t g = 0; g < tree->n_groups; g++) {
        __m512 acc[TILE_ROWS];
        UNROLL for (int t = 0; t < n_rows; t++)
            acc[t] = _mm512_setzero_ps();
        if (int8)
            chain_int8(type, n_rows, acc, tile, begin, tree->end[g]);
        else
            chain_f32(type, n_rows, acc, tile, begin, tree->end[g]);
        begin = tree->end[g];
        for (uint8_t m = 0; m < tree->n_merges[g]; m++) {
            depth--;
            UNROLL for (int t = 0; t < n_rows; t++)
                acc[t] = _mm512_add_ps(_mm512_load_ps(stack[depth][t]), acc[t]);
        }
        UNROLL for (int t = 0; t < n_rows; t++)
            _mm512_store_ps(stack[depth][t], acc[t]);
        depth++;
    }
    for (uint32_t p = 0; p < tree->n_parts; p++)
        UNROLL for (int t = 0; t < n_rows; t++)
            _mm512_mask_storeu_ps(tile->y + p * tile->part_stride + t * tile->y_stride, columns, _mm512_load_ps(stack[p][t]));
}

INLINE void tile_run(enum dtype type, bool int8, const struct tile *tile, uint32_t n_rows)
{
    switch (n_rows) {
    case 1: rows_run(type, int8, 1, tile); break;
    case 2: rows_run(type, int8, 2, tile); break;
    case 3: rows_run(type, int8, 3, tile); break;
    case 4: rows_run(type, int8, 4, tile); break;
    case 5: rows_run(type, int8, 5, tile); break;
    case 6: rows_run(type, int8, 6, tile); break;
    case 7: rows_run(type, int8, 7, tile); break;
    case 8: rows_run(type, int8, 8, tile); break;
    }
}

DEFINE_MATMULS(avx512)
