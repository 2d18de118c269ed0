/* matmul_amx.c: products with many rows of x by AMX, whose tiles multiply 16 rows of x by 16 of weights.
 *
 * Integer sums are exact, so these are the bits of every other variant; scales and minimums are AVX-512.  A pair of panels is
 * unpacked to bytes, PIECE_K of K at a time, and all rows of x pass by.  While AMX multiplies one step, the sums of the step
 * before are scaled: a tile of dot products is read just before it is written again.
 *
 * A step is a block of 32 k, in two halves where each half has a scale of its own.
 * Fewer than MIN_ROWS rows of x are left to AVX-512: a tile takes its time however few they are. */
#include "kernel/matmul.h"
#include "kernel/simd.h"

#define UNROLL _Pragma("GCC unroll 8")
#include "kernel/ints_avx512.h"
#include "kernel/panel_simd.h"

#define MIN_ROWS 48
#define TILE 16                     /* rows of x in a tile */
#define GROUP_TILES 4               /* that pass by while weights stay in registers */
#define PIECE_K 1024                /* two panels of this are half of L1 */
#define PIECE_BLOCKS (PIECE_K / 32)
#define WALK_ROWS 256               /* of x for which sums are kept */
#define SUMS_BYTES (512u << 10)     /* of all levels of the tree's stack */

/* ---- weights ---- */
/* A piece of a panel, block by block of 32 k.  What a type does not have is not set. */
struct piece {
    int8_t q[PIECE_BLOCKS][8][PANEL_ROWS][4];       /* values */
    float d[PIECE_BLOCKS][PANEL_ROWS];
    float scale[PIECE_BLOCKS][2][PANEL_ROWS];
    float m[PIECE_BLOCKS][PANEL_ROWS];              /* what is multiplied by s_a, or with minimums of 16, by da */
    int32_t minimum[PIECE_BLOCKS][2][PANEL_ROWS];   /* with minimums of 16 */
};
typedef void unpack_fn(struct piece *to, const uint8_t *panel, uint32_t k, uint32_t n_blocks);

INLINE int halves_of(enum dtype type)
{
    return quant_info[type].n_scales == 2 ? 2 : 1;
}

INLINE void unpack_block(enum dtype type, struct piece *to, uint32_t i, const uint8_t *head, int b)
{
    const struct quant_info info = quant_info[type];
    const uint8_t *quants = head + head_bytes(type) + b * quant_bytes(type);
    const vec m = load_m(type, head, 0);
    UNROLL for (int j = 0; j < 8; j++)
        ints_store(to->q[i][j], bytes_sub(load_quants(type, quants, 0, j), info.offset));
    vec_store(to->d[i], load_d(type, head, 0));
    for (int h = 0; h < info.n_scales; h++)
        vec_store(to->scale[i][h], load_scale(type, head, 0, b * info.n_scales + h));
    if (info.has_minimum)
        vec_store(to->m[i], info.n_scales == 1 ? vec_mul(m, vec_from_ints(load_minimum(type, head, 0, b))) : m);
    for (int h = 0; info.has_minimum && info.n_scales == 2 && h < 2; h++)
        ints_store(to->minimum[i][h], load_minimum(type, head, 0, 2 * b + h));
}

/* The next piece is fetched while this one is multiplied. */
INLINE void unpack(enum dtype type, struct piece *to, const uint8_t *panel, uint32_t k, uint32_t n_blocks)
{
    const uint32_t per_head = block_k(type) / 32;
    const uint8_t *head = panel + k / block_k(type) * block_bytes(type);
    const size_t n_bytes = n_blocks / per_head * block_bytes(type);
    for (uint32_t i = 0; i < n_blocks; i += per_head, head += block_bytes(type)) {
        for (uint32_t b = 0; b < per_head; b++)
            unpack_block(type, to, i + b, head, (int)b);
        for (size_t at = 0; at < block_bytes(type); at += CACHE_LINE)
            _mm_prefetch((const void *)(head + n_bytes + at), _MM_HINT_T1);
    }
}

/* ---- tiles ---- */
/* Registers: sums and rows of x, of 16 rows and of what is left; weights of each half and panel. */
#define SUMS 0
#define SUMS_LEFT 1
#define X 2
#define X_LEFT 3
#define W00 4                       /* half, panel */
#define W01 5
#define W10 6
#define W11 7

static void configure(enum dtype type, uint32_t n_left)
{
    const uint32_t n_k = 32 / (uint32_t)halves_of(type);
    struct {
        uint8_t palette, start_row, zero[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = { .palette = 1 };
    for (uint32_t i = 0; i < 8; i++) {
        config.rows[i] = (uint8_t)(i >= W00 ? n_k / 4 : i == SUMS || i == X ? TILE : MAX(n_left, 1));
        config.row_bytes[i] = (uint16_t)(i == X || i == X_LEFT ? n_k : 64);
    }
    __asm__ volatile("" : : "m"(config));       /* gcc 12 takes _tile_loadconfig() for one that reads 8 bytes */
    _tile_loadconfig(&config);
}

typedef int32_t dots[2][2][TILE][PANEL_ROWS];           /* [half][panel] */

#define MULTIPLY(sums, x, w, to) \
    do { \
        _tile_zero(sums); \
        _tile_dpbssd(sums, x, w); \
        _tile_stored(sums, to, 64); \
    } while (0)
#define MULTIPLY_PANELS(sums, x, half) \
    do { \
        _tile_loadd(x, from + half * ACT_BLOCK / 2, x_stride); \
        MULTIPLY(sums, x, W##half##0, to[half][0]); \
        MULTIPLY(sums, x, W##half##1, to[half][1]); \
    } while (0)

/* A tile of x, whole or what is left, with the weights that are in registers. */
INLINE void multiply(bool whole, int halves, dots to, const uint8_t *from, size_t x_stride)
{
    if (whole) {
        MULTIPLY_PANELS(SUMS, X, 0);
        if (halves == 2)
            MULTIPLY_PANELS(SUMS, X, 1);
    } else {
        MULTIPLY_PANELS(SUMS_LEFT, X_LEFT, 0);
        if (halves == 2)
            MULTIPLY_PANELS(SUMS_LEFT, X_LEFT, 1);
    }
}

INLINE void load_weights(int halves, const struct piece *w, uint32_t b)
{
    _tile_loadd(W00, w[0].q[b], 64);
    _tile_loadd(W01, w[1].q[b], 64);
    if (halves == 2) {
        _tile_loadd(W10, w[0].q[b] + 4, 64);
        _tile_loadd(W11, w[1].q[b] + 4, 64);
    }
}

/* ---- steps ---- */
typedef float sums[2][PANEL_ROWS];                      /* of a row of x with both panels */

/* Where a piece stands in the tree: in a group, that begins somewhere, with some levels on the stack. */
struct place {
    uint32_t group, begin, depth;
};

/* What rows of x do with a piece of two panels. */
struct work {
    const struct sum_tree *tree;
    const struct piece *piece;
    uint32_t k, n_blocks;                               /* of the piece: from where on, and how many of 32 */
    const uint8_t *x;                                   /* the block of the first row where the piece begins */
    size_t x_stride;
    uint32_t n_rows;
    sums *sums;                                         /* [level][n_rows] */
};

/* Block b with a few tiles of x, from `row` on. */
struct step {
    uint32_t b, row, n_rows;
    bool is_first;                                      /* of its group: sums begin at +0 */
    uint32_t n_merges;                                  /* after it, if it is the last of its group */
    sums *sums;                                         /* of `row`, at the group's level of the stack */
};

/* What a block of a panel has beside quants; what its type does not have is not used. */
struct factors {
    vec d, m, scale[2];
    ints minimum[2];
};

INLINE struct factors factors_of(const struct piece *w, uint32_t b)
{
    return (struct factors){ vec_load(w->d[b]), vec_load(w->m[b]), { vec_load(w->scale[b][0]), vec_load(w->scale[b][1]) },
                             { ints_load(w->minimum[b][0]), ints_load(w->minimum[b][1]) } };
}

/* What the quants of a block add up to in each half. */
INLINE void half_sums(int32_t sum[2], const struct act_block *x)
{
    __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), _mm256_loadu_si256((const void *)x->q));
    __m256i fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    __m128i eights = _mm_hadd_epi32(_mm256_castsi256_si128(fours), _mm256_extracti128_si256(fours, 1));
    __m128i all = _mm_hadd_epi32(eights, eights);
    sum[0] = _mm_extract_epi32(all, 0);
    sum[1] = _mm_extract_epi32(all, 1);
}

/* The chain's step (kernel.h) for a block whose dot products are there, of all of it or of each half. */
INLINE vec add_block(enum dtype type, vec sum, const struct act_block *x, const int32_t *dot, const int32_t *dot1, const struct factors *f)
{
    const struct quant_info info = quant_info[type];
    const vec d = vec_mul(f->d, vec_all(x->d));
    vec value = vec_from_ints(ints_load(dot));
    if (info.n_scales)
        value = vec_mul(value, f->scale[0]);
    if (info.n_scales == 2)
        value = vec_fma(vec_from_ints(ints_load(dot1)), f->scale[1], value);
    sum = vec_fma(value, d, sum);
    if (info.has_minimum && info.n_scales < 2)
        sum = vec_fma(f->m, vec_all(x->s), sum);
    if (info.has_minimum && info.n_scales == 2) {
        int32_t half[2];
        half_sums(half, x);
        ints both = ints_add(ints_mul16(f->minimum[0], ints_all(half[0])), ints_mul16(f->minimum[1], ints_all(half[1])));
        sum = vec_fma(vec_from_ints(both), vec_mul(f->m, vec_all(x->d)), sum);
    }
    return sum;
}

/* Scales what a tile of x has with one panel. */
INLINE void scale_tile(enum dtype type, const struct work *work, const struct step *s, uint32_t at, uint32_t n_rows, int panel, dots from)
{
    const struct factors f = factors_of(&work->piece[panel], s->b);
    const uint8_t *x = work->x + (s->row + at) * work->x_stride + s->b * sizeof(struct act_block);
    const size_t x_stride = work->x_stride;
    const bool is_first = s->is_first;
    sums *to = s->sums + at;
    UNROLL for (uint32_t r = 0; r < n_rows; r++) {
        vec sum = is_first ? vec_all(0.0f) : vec_load(to[r][panel]);
        sum = add_block(type, sum, (const void *)(x + r * x_stride), from[0][panel][r], from[1][panel][r], &f);
        vec_store(to[r][panel], sum);
    }
}

/* The tree's merges for a tile of x; levels are `level` apart. */
INLINE void merge_tile(sums *top, size_t level, uint32_t n_merges, uint32_t n_rows)
{
    for (; n_merges; n_merges--, top -= level) {
        float *below = top[0][0] - level * (sizeof *top / sizeof(float));
        for (uint32_t i = 0; i < n_rows * 2 * PANEL_ROWS; i += LANES)
            vec_store(below + i, vec_add(vec_load(below + i), vec_load(top[0][0] + i)));
    }
}

/* Scales the dot products of one step while those of the next are made. */
INLINE void step_over(enum dtype type, const struct work *work, const struct step *done, const struct step *next, dots to[GROUP_TILES])
{
    if (next->n_rows)
        load_weights(halves_of(type), work->piece, next->b);
    for (uint32_t i = 0, at = 0; at < MAX(done->n_rows, next->n_rows); i++, at += TILE) {
        if (at < done->n_rows) {
            const uint32_t n_rows = MIN(TILE, done->n_rows - at);
            for (int panel = 0; panel < 2; panel++)
                scale_tile(type, work, done, at, n_rows, panel, to[i]);
            merge_tile(done->sums + at, work->n_rows, done->n_merges, n_rows);
        }
        if (at < next->n_rows)
            multiply(next->n_rows - at >= TILE, halves_of(type), to[i],
                     work->x + (next->row + at) * work->x_stride + next->b * sizeof(struct act_block), work->x_stride);
    }
}

/* The step of block b, after which the tree is at `at`. */
INLINE void step_begin(struct step *s, const struct work *work, uint32_t b, struct place *at)
{
    const uint32_t k = work->k + 32 * b, end = work->tree->end[at->group];
    s->b = b;
    s->is_first = k == at->begin;
    s->sums = work->sums + at->depth * work->n_rows + s->row;
    s->n_merges = 0;
    if (k + 32 == end) {
        s->n_merges = work->tree->n_merges[at->group];
        *at = (struct place){ at->group + 1, end, at->depth + 1 - s->n_merges };
    }
}

/* All rows with a piece; returns where the tree is then. */
INLINE struct place run_piece(enum dtype type, const struct work *work, struct place start)
{
    dots to[GROUP_TILES] __attribute__((aligned(64)));
    const struct step none = { 0 };
    struct step done = none, next = none;
    struct place at = start;
    for (next.row = 0; next.row < work->n_rows; next.row += next.n_rows) {
        next.n_rows = MIN(GROUP_TILES * TILE, work->n_rows - next.row);
        at = start;
        for (uint32_t b = 0; b < work->n_blocks; b++) {
            step_begin(&next, work, b, &at);
            step_over(type, work, &done, &next, to);
            done = next;
        }
    }
    step_over(type, work, &done, &none, to);
    return at;
}

#define DEFINE_RUN(name, TYPE) \
    static struct place run_##name(const struct work *work, struct place start) \
    { \
        return run_piece(DTYPE_##TYPE, work, start); \
    }
#define STRUCTURES(ROW) ROW(q8_0, Q8_0) ROW(q4_1, Q4_1) ROW(iq4_xs, IQ4_XS) ROW(q4_k, Q4_K) ROW(q6_k, Q6_K) ROW(q2_k, Q2_K)
STRUCTURES(DEFINE_RUN)
typedef struct place run_fn(const struct work *work, struct place start);

/* Once unpacked, types differ in their scales and minimums alone. */
static run_fn *run_of(enum dtype type)
{
    static run_fn *const fns[3][2] = { { run_q8_0, run_q4_1 }, { run_iq4_xs, run_q4_k }, { run_q6_k, run_q2_k } };
    return fns[quant_info[type].n_scales][quant_info[type].has_minimum];
}

/* ---- the walk ---- */
/* A group without k has no step in which it could be pushed. */
static bool has_empty_group(const struct sum_tree *tree)
{
    for (uint32_t g = 0; g < tree->n_groups; g++)
        if (tree->end[g] == (g ? tree->end[g - 1] : 0))
            return true;
    return false;
}

static bool pays(const struct matmul_args *args)
{
    return args->t1 >= args->t0 + MIN_ROWS && args->k && !(args->tree && (!args->tree->n_groups || has_empty_group(args->tree)));
}

static uint32_t most_levels(const struct sum_tree *tree)
{
    uint32_t depth = 0, most = 0;
    for (uint32_t g = 0; g < tree->n_groups; depth -= tree->n_merges[g++])
        most = MAX(most, ++depth);
    return most;
}

static void put(const struct matmul_args *args, uint32_t panel, uint32_t t, uint32_t part, const sums *from, uint32_t n_rows)
{
    const uint32_t column = panel * PANEL_ROWS, n = args->n_rows - column;
    float *y = args->y + part * args->part_stride + t * args->y_stride + column;
    for (uint32_t r = 0; r < n_rows; r++, y += args->y_stride) {
        vec_store_part(y, vec_load(from[r][0]), MIN(n, LANES));
        if (n > LANES && panel + 1 < args->panel1)
            vec_store_part(y + LANES, vec_load(from[r][1]), MIN(n - LANES, LANES));
    }
}

/* A panel that has no neighbour is its own. */
static void run_pair(const struct matmul_args *args, const struct sum_tree *tree, enum dtype type, unpack_fn *unpack_piece, uint32_t panel,
                     bool alone, uint32_t t, uint32_t n_rows)
{
    struct piece piece[2] __attribute__((aligned(64)));
    sums memory[SUMS_BYTES / sizeof(sums)] __attribute__((aligned(64)));
    const size_t bytes = panel_bytes(type, args->k);
    const uint8_t *w = (const uint8_t *)args->w + panel * bytes;
    struct work work = { .tree = tree, .piece = piece, .x_stride = args->x_stride, .n_rows = n_rows, .sums = memory };
    struct place at = { 0 };
    for (; work.k < args->k; work.k += 32 * work.n_blocks) {
        work.n_blocks = MIN(args->k - work.k, PIECE_K) / 32;
        work.x = (const uint8_t *)args->x + t * args->x_stride + work.k / 32 * sizeof(struct act_block);
        for (uint32_t i = 0; i < 2; i++)
            unpack_piece(piece + i, w + (alone ? 0 : i * bytes), work.k, work.n_blocks);
        at = run_of(type)(&work, at);
    }
    for (uint32_t p = 0; p < tree->n_parts; p++)
        put(args, panel, t, p, memory + p * n_rows, n_rows);
}

static void walk(const struct matmul_args *args, enum dtype type, unpack_fn *unpack_piece)
{
    const struct sum_tree chain = { .n_groups = 1, .n_parts = 1, .end = { args->k } };
    const struct sum_tree *tree = args->tree ? args->tree : &chain;
    const uint32_t panel1 = MIN(args->panel1, DIV_UP(args->n_rows, PANEL_ROWS));
    assert(args->k % dtype_info[type].block == 0);
    const uint32_t most = MIN(WALK_ROWS, (uint32_t)(SUMS_BYTES / sizeof(sums)) / most_levels(tree));
    for (uint32_t panel = args->panel0; panel < panel1; panel += 2)
        for (uint32_t t = args->t0; t < args->t1; t += most) {
            const uint32_t n_rows = MIN(most, args->t1 - t);
            configure(type, n_rows % TILE);
            run_pair(args, tree, type, unpack_piece, panel, panel + 1 == panel1, t, n_rows);
        }
    _tile_release();
}

#define DEFINE_AMX(name, TYPE, isa) \
    static void unpack_##name(struct piece *to, const uint8_t *panel, uint32_t k, uint32_t n_blocks) \
    { \
        unpack(DTYPE_##TYPE, to, panel, k, n_blocks); \
    } \
    void matmul_int8_##name##_amx(const struct matmul_args *args) \
    { \
        if (pays(args)) \
            walk(args, DTYPE_##TYPE, unpack_##name); \
        else \
            matmul_int8_##name##_avx512(args); \
    }
MATMUL_INT8_TYPES(DEFINE_AMX, amx)
