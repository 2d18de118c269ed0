/* matmul_avx2.c: a tile is a panel against 1 to 4 rows of x.  A register holds 8 sums, half a panel; one row of x goes
 * through both halves at once (decode waits for memory), more rows through one after the other (16 registers). */
#include "kernel/matmul.h"

#include <immintrin.h>
#include <string.h>

#define TILE_ROWS 4
#define UNROLL _Pragma("GCC unroll 8")

INLINE __m256i load_i256(const void *from)
{
    return _mm256_loadu_si256(from);
}

INLINE __m256 load_f16(const uint8_t *from)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const void *)from));
}

INLINE __m256i broadcast_u32(const int8_t *from)
{
    int32_t v;
    memcpy(&v, from, sizeof v);
    return _mm256_set1_epi32(v);
}

INLINE size_t block_bytes(enum dtype type)
{
    return type == DTYPE_Q8_0 ? 544 : type == DTYPE_Q4_0 ? 288 : 320;
}

INLINE const uint8_t *scales(enum dtype type, const uint8_t *block)
{
    return block + (type == DTYPE_Q8_0 ? 512 : 256);
}

/* Step j of a block of nibbles: k = 4 j to 4 j + 3 of 8 rows. */
INLINE __m256i nibbles(const uint8_t *block, int j)
{
    __m256i both = load_i256(block + j % 4 * 64);
    return _mm256_and_si256(j < 4 ? both : _mm256_srli_epi16(both, 4), _mm256_set1_epi8(15));
}

/* Adds n dot products of a block into dot[].  The instruction multiplies unsigned by signed bytes and adds pairs in 16
 * bits.  Nibbles: 8 steps of two products stay below 2^15 (8 * 2 * 15 * 127 = 30,480), so they are widened once.  Bytes
 * would not fit unsigned (2 * 255 * 127): magnitudes of w, and its signs moved to q; 2 * 128 * 127 fits.  q is never -128,
 * whose sign could not be changed. */
INLINE void dots(enum dtype type, int n, __m256i *dot, const uint8_t *block, const uint8_t *x, size_t x_stride)
{
    const __m256i ones = _mm256_set1_epi16(1);
    UNROLL for (int t = 0; t < n; t++)
        dot[t] = _mm256_setzero_si256();
    UNROLL for (int j = 0; j < 8; j++) {
        if (type == DTYPE_Q8_0) {
            __m256i w = _mm256_xor_si256(load_i256(block + j * 64), _mm256_set1_epi8(-128));
            __m256i magnitude = _mm256_abs_epi8(w);
            UNROLL for (int t = 0; t < n; t++) {
                __m256i q = _mm256_sign_epi8(broadcast_u32((const int8_t *)x + t * x_stride + 4 * j), w);
                dot[t] = _mm256_add_epi32(dot[t], _mm256_madd_epi16(_mm256_maddubs_epi16(magnitude, q), ones));
            }
        } else {
            __m256i w = nibbles(block, j);
            UNROLL for (int t = 0; t < n; t++) {
                __m256i q = broadcast_u32((const int8_t *)x + t * x_stride + 4 * j);
                dot[t] = _mm256_add_epi16(dot[t], _mm256_maddubs_epi16(w, q));
            }
        }
    }
    if (type != DTYPE_Q8_0)
        UNROLL for (int t = 0; t < n; t++)
            dot[t] = _mm256_madd_epi16(dot[t], ones);
}

/* One block of half a panel, 32 bytes into each step for the upper half, against n rows of x. */
INLINE void step_int8(enum dtype type, int n, __m256 *acc, const uint8_t *block, int half, const uint8_t *x, size_t x_stride)
{
    const uint8_t *d = scales(type, block) + 16 * half;
    __m256 scale = load_f16(d);
    __m256i dot[TILE_ROWS];

    dots(type, n, dot, block + 32 * half, x, x_stride);
    UNROLL for (int t = 0; t < n; t++) {
        const struct act_block *a = (const void *)(x + t * x_stride);
        if (type == DTYPE_Q4_0)
            dot[t] = _mm256_add_epi32(dot[t], _mm256_set1_epi32(a->start8));
        acc[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[t]), _mm256_mul_ps(scale, _mm256_set1_ps(a->d)), acc[t]);
        if (type == DTYPE_Q4_1)
            acc[t] = _mm256_fmadd_ps(load_f16(d + 32), _mm256_set1_ps(a->s), acc[t]);
    }
}

/* Element k of 8 rows of a block as dequantize_row() gives it. */
INLINE __m256 dequantize(enum dtype type, const uint8_t *block, int half, int k)
{
    int steps = type == DTYPE_Q8_0 ? 8 : 4, shift = k % 4 * 8 + (k / 4 >= steps ? 4 : 0);
    __m256i q = _mm256_srli_epi32(load_i256(block + k / 4 % steps * 64 + 32 * half), shift);
    q = _mm256_and_si256(q, _mm256_set1_epi32(type == DTYPE_Q8_0 ? 255 : 15));
    q = _mm256_sub_epi32(q, _mm256_set1_epi32(type == DTYPE_Q8_0 ? 128 : type == DTYPE_Q4_0 ? 8 : 0));
    const uint8_t *d = scales(type, block) + 16 * half;
    __m256 value = _mm256_mul_ps(load_f16(d), _mm256_cvtepi32_ps(q));
    return type == DTYPE_Q4_1 ? _mm256_add_ps(value, load_f16(d + 32)) : value;
}

/* Element k of 8 rows of a panel. */
INLINE __m256 load_weights(enum dtype type, const uint8_t *panel, int half, size_t k)
{
    if (type == DTYPE_F32)
        return _mm256_loadu_ps((const float *)(const void *)(panel + k * 64 + 32 * half));
    if (type == DTYPE_F16)
        return load_f16(panel + k * 32 + 16 * half);
    __m256i bits = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)(panel + k * 32 + 16 * half)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
}

INLINE void step_f32(int n, __m256 *acc, __m256 w, const uint8_t *x, size_t x_stride)
{
    UNROLL for (int t = 0; t < n; t++)
        acc[t] = _mm256_fmadd_ps(_mm256_broadcast_ss((const float *)(const void *)(x + t * x_stride)), w, acc[t]);
}

/* k in [begin, end) of n rows against halves half0 .. half0 + n_halves - 1; acc is [n_halves][n]. */
INLINE void chain_int8(enum dtype type, int n, int n_halves, __m256 *acc, const struct tile *tile, int half0,
                       size_t begin, size_t end)
{
    for (size_t b = begin / 32; b < end / 32; b++)
        UNROLL for (int h = 0; h < n_halves; h++)
            step_int8(type, n, acc + h * n, tile->panel + b * block_bytes(type), half0 + h,
                      tile->x + b * sizeof(struct act_block), tile->x_stride);
}

INLINE void chain_f32(enum dtype type, int n, int n_halves, __m256 *acc, const struct tile *tile, int half0,
                      size_t begin, size_t end)
{
    const bool blocks = type == DTYPE_Q8_0 || type == DTYPE_Q4_0 || type == DTYPE_Q4_1;
    for (size_t k = begin; k < end; k++)
        UNROLL for (int h = 0; h < n_halves; h++) {
            __m256 w = blocks ? dequantize(type, tile->panel + k / 32 * block_bytes(type), half0 + h, (int)(k % 32))
                              : load_weights(type, tile->panel, half0 + h, k);
            step_f32(n, acc + h * n, w, tile->x + k * sizeof(float), tile->x_stride);
        }
}

/* All ones in the lanes of this half that are columns to write. */
INLINE __m256i column_mask(uint32_t n_columns, int half)
{
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n_columns - 8 * half), lanes);
}

/* n and n_halves are constants in every caller: acc[] is registers, and the stack of group sums stays in L1. */
INLINE void halves_run(enum dtype type, bool int8, int n, int n_halves, const struct tile *tile, int half0)
{
    const struct sum_tree *tree = tile->tree;
    const int n_sums = n_halves * n;
    float stack[TREE_MAX_GROUPS][TILE_ROWS][8] __attribute__((aligned(32)));
    uint32_t depth = 0, begin = 0;

    for (uint32_t g = 0; g < tree->n_groups; g++) {
        __m256 acc[TILE_ROWS];
        UNROLL for (int i = 0; i < n_sums; i++)
            acc[i] = _mm256_setzero_ps();
        if (int8)
            chain_int8(type, n, n_halves, acc, tile, half0, begin, tree->end[g]);
        else
            chain_f32(type, n, n_halves, acc, tile, half0, begin, tree->end[g]);
        begin = tree->end[g];
        for (uint8_t m = 0; m < tree->n_merges[g]; m++) {
            depth--;
            UNROLL for (int i = 0; i < n_sums; i++)
                acc[i] = _mm256_add_ps(_mm256_load_ps(stack[depth][i]), acc[i]);
        }
        UNROLL for (int i = 0; i < n_sums; i++)
            _mm256_store_ps(stack[depth][i], acc[i]);
        depth++;
    }
    for (uint32_t p = 0; p < tree->n_parts; p++)
        for (int h = 0; h < n_halves; h++)
            for (int t = 0; t < n; t++)
                _mm256_maskstore_ps(tile->y + p * tile->part_stride + t * tile->y_stride + 8 * (half0 + h),
                                    column_mask(tile->n_columns, half0 + h), _mm256_load_ps(stack[p][h * n + t]));
}

INLINE void tile_run(enum dtype type, bool int8, const struct tile *tile, uint32_t n_rows)
{
    if (n_rows == 1)
        halves_run(type, int8, 1, 2, tile, 0);
    else
        for (int half = 0; half < 2; half++)
            switch (n_rows) {
            case 2: halves_run(type, int8, 2, 1, tile, half); break;
            case 3: halves_run(type, int8, 3, 1, tile, half); break;
            case 4: halves_run(type, int8, 4, 1, tile, half); break;
            }
}

DEFINE_MATMULS(avx2)
