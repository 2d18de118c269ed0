/* attention_simd.h: the body of attention_avx2.c, attention_avx512.c and attention_neon.c.
 *
 * Queries are taken in groups.  For each span, the whole group's scores are computed first (lanes are keys), then each
 * query's softmax, then the whole group's output (lanes are head_dim); so each K and V vector is loaded and widened once
 * for the group, and the sums stay in registers.  For that the group's loops are compiled for every number of queries that
 * a group can have (EACH_GROUP) and every type, and found in a table.  Scores ask for this span's V, outputs for the next
 * span's K: in a decode the tiles come from memory, and this way memory works all the time.
 *
 * The queries of a group may see different keys.  Scores are computed for all of them where one sees a key of the tile; a
 * score that its query does not see costs time only, it is replaced before the softmax.  The output is summed by each query
 * alone over the keys before those that all see, then together, then alone again. */
#include "kernel/attention.h"

#include "base/base.h"
#include "kernel/simd.h"

#define ALIGNED __attribute__((aligned(CACHE_LINE)))

/* Before a loop with a constant count, over an array of vectors: only unrolled does the array stay in registers.  clang
 * reads gcc's pragma but does not obey it. */
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* How many vectors each of n queries sums at a time, `unit` vectors to a step: as wide as the registers allow, so that there
 * are enough independent sums to hide the latency of an fma when queries are few. */
#define WIDEST 4
#define WIDTH(n, unit) (4 * (n) * (unit) <= SUMS ? 4 : 2 * (n) * (unit) <= SUMS ? 2 : 1)

/* As in attention_c.c; o is written up to whole vectors. */
struct partial {
    float o[ATTENTION_MAX_DIM] ALIGNED;
    float m, l;
};

struct group {
    uint32_t n, head_dim;
    float scale, softcap;
    const void *const *tiles;                           /* of this span */
    uint32_t last_tile;                                 /* of the context, counted from `tiles` */
    uint32_t first_key[GROUP], n_keys[GROUP];           /* what a query sees of the whole context, */
    uint32_t from[GROUP], to[GROUP];                    /* and of this span: keys from .. to - 1; 0 and 0 where none */
    uint32_t all_from, all_to;                          /* the largest `from` and the least `to` */
    uint32_t end;                                       /* the largest `to` */
    uint32_t tiles_seen;                                /* a bit for each tile of which some query sees a key */
    uint32_t depth[GROUP];                              /* partials on a query's stack; this span's goes above them */
    float q[ATTENTION_MAX_DIM][GROUP] ALIGNED;
    float p[GROUP][SPAN_TOKENS] ALIGNED;                /* scores, then probabilities */
    struct partial stack[GROUP][ATTENTION_MAX_LEVELS];
};

/* A vector of elements from element `at` of a tile; and its first n. */
static ALWAYS_INLINE vec tile_load(const void *tile, size_t at, enum dtype type)
{
    if (type == DTYPE_F32)
        return vec_load((const float *)tile + at);
    half_vec half = half_load((const uint16_t *)tile + at);
    return type == DTYPE_F16 ? vec_from_f16(half) : vec_from_bf16(half);
}
static ALWAYS_INLINE vec tile_load_part(const void *tile, size_t at, size_t n, enum dtype type)
{
    if (type == DTYPE_F32)
        return vec_load_part((const float *)tile + at, n);
    half_vec half = half_load_part((const uint16_t *)tile + at, n);
    return type == DTYPE_F16 ? vec_from_f16(half) : vec_from_bf16(half);
}

/* Asks for the cache line of element `at`, to the second level. */
static ALWAYS_INLINE void tile_prefetch(const void *tile, size_t at, enum dtype type)
{
    __builtin_prefetch((const char *)tile + at * (type == DTYPE_F32 ? sizeof(float) : sizeof(uint16_t)), 0, 2);
}

/* ---- scores ---- */

/* Scores of n queries with the keys of n_tiles tiles from tile t0 on.  n, n_tiles and type are constants. */
static ALWAYS_INLINE void score_tiles(struct group *g, uint32_t t0, uint32_t n_tiles, uint32_t n, enum dtype type)
{
    vec acc[GROUP][WIDEST * VECS_16], scale = vec_all(g->scale);
    const void *const *tiles = g->tiles + t0;
    uint32_t n_vecs = n_tiles * VECS_16;

    UNROLL for (uint32_t i = 0; i < n; i++)
        UNROLL for (uint32_t v = 0; v < n_vecs; v++)
            acc[i][v] = vec_all(0.0f);
    for (size_t d = 0; d < g->head_dim; d++) {
        vec k[WIDEST * VECS_16];
        UNROLL for (uint32_t v = 0; v < n_vecs; v++)
            k[v] = tile_load(tiles[v / VECS_16], d * BLOCK_TOKENS + v % VECS_16 * LANES, type);
        UNROLL for (uint32_t t = 0; t < n_tiles; t++)
            tile_prefetch(tiles[t], (g->head_dim + d) * BLOCK_TOKENS, type);
        UNROLL for (uint32_t i = 0; i < n; i++) {
            vec q = vec_all(g->q[d][i]);
            UNROLL for (uint32_t v = 0; v < n_vecs; v++)
                acc[i][v] = vec_fma(q, k[v], acc[i][v]);
        }
    }
    UNROLL for (uint32_t i = 0; i < n; i++)
        UNROLL for (uint32_t v = 0; v < n_vecs; v++)
            vec_store(g->p[i] + t0 * BLOCK_TOKENS + v * LANES, vec_mul(acc[i][v], scale));
}

/* The tiles t0 .. t1 - 1 */
static ALWAYS_INLINE void score_span(struct group *g, uint32_t t0, uint32_t t1, uint32_t n, enum dtype type)
{
    const uint32_t step = WIDTH(n, VECS_16);
    uint32_t t = t0;

    for (; t + step <= t1; t += step)
        score_tiles(g, t, step, n, type);
    for (; t < t1; t++)
        score_tiles(g, t, 1, n, type);
}

/* ---- softmax ---- */

static void softcap_span(float *p, uint32_t from, uint32_t to, float softcap)
{
    const vec cap = vec_all(softcap);

    for (uint32_t j = from / LANES * LANES; j < to; j += LANES)
        vec_store(p + j, vec_softcap(vec_load(p + j), cap));
}

/* Scores of the keys from .. to - 1 become probabilities; m and l go to the partial. */
static void softmax_span(struct partial *part, float *p, uint32_t from, uint32_t to)
{
    vec max[VECS_16], sum[VECS_16], m;
    uint32_t first = from / 16 * 16, n = ROUND_UP(to, 16);

    for (uint32_t j = first; j < from; j++)
        p[j] = -INFINITY;                               /* exp gives +0, which leaves its lane of the sum as it is */
    for (uint32_t j = to; j < n; j++)
        p[j] = -INFINITY;
    for (uint32_t v = 0; v < VECS_16; v++) {
        max[v] = vec_load(p + first + v * LANES);
        sum[v] = vec_all(0.0f);
    }
    for (uint32_t j = first + 16; j < n; j += 16)
        for (uint32_t v = 0; v < VECS_16; v++)
            max[v] = vec_max(vec_load(p + j + v * LANES), max[v]);
    part->m = lanes_max(max);
    m = vec_all(part->m);
    for (uint32_t j = first; j < n; j += 16)
        for (uint32_t v = 0; v < VECS_16; v++) {
            vec e = vec_exp_below_highest(vec_sub(vec_load(p + j + v * LANES), m));
            vec_store(p + j + v * LANES, e);
            sum[v] = vec_add(sum[v], e);
        }
    part->l = lanes_sum(sum);
}

/* ---- output ---- */

/* What is summed at a time: for n queries from `first` on, n_vecs vectors of head_dim from d0 on, of which the last has
 * `last` elements.  n and n_vecs are constants. */
struct columns {
    uint32_t first, n, n_vecs;
    size_t d0, last;
};

/* sum[i] += p[i][j] v[j] for the keys from .. to - 1 of this span in order; they are all in one tile. */
static ALWAYS_INLINE void output_tile(const struct group *g, vec sum[GROUP][WIDEST], struct columns c, uint32_t from,
                                      uint32_t to, enum dtype type)
{
    const void *tile = g->tiles[from / BLOCK_TOKENS];
    const void *next = g->tiles[MIN((from + SPAN_TOKENS) / BLOCK_TOKENS, g->last_tile)];
    const size_t half = (size_t)g->head_dim * BLOCK_TOKENS;
    const uint32_t line = CACHE_LINE / sizeof(vec) * (type == DTYPE_F32 ? 1 : 2);      /* vectors in a cache line */
    size_t at = (size_t)g->head_dim * (from % BLOCK_TOKENS) + c.d0;

    for (uint32_t j = from; j < to; j++, at += g->head_dim) {
        const float *p_of_key = &g->p[c.first][j];
        vec value[WIDEST];
        UNROLL for (uint32_t v = 0; v < c.n_vecs; v++)
            value[v] = v + 1 == c.n_vecs && c.last < LANES ? tile_load_part(tile, half + at + v * LANES, c.last, type)
                                                             : tile_load(tile, half + at + v * LANES, type);
        UNROLL for (uint32_t v = 0; v < c.n_vecs; v += line)
            tile_prefetch(next, at + v * LANES, type);
        UNROLL for (uint32_t i = 0; i < c.n; i++) {
            vec p = vec_all(p_of_key[i * SPAN_TOKENS]);
            UNROLL for (uint32_t v = 0; v < c.n_vecs; v++)
                sum[i][v] = vec_fma(p, value[v], sum[i][v]);
        }
    }
}

/* All keys from .. to - 1; the sums go on from what o has, or start at 0 where `from` is the span's first key. */
static ALWAYS_INLINE void output_columns(struct group *g, struct columns c, uint32_t from, uint32_t to, enum dtype type)
{
    vec sum[GROUP][WIDEST];
    float *o[GROUP];

    UNROLL for (uint32_t i = 0; i < c.n; i++) {
        o[i] = g->stack[c.first + i][g->depth[c.first + i]].o + c.d0;
        UNROLL for (uint32_t v = 0; v < c.n_vecs; v++)
            sum[i][v] = from ? vec_load(o[i] + v * LANES) : vec_all(0.0f);
    }
    for (uint32_t j = from, end; j < to; j = end) {
        end = MIN(to, (j / BLOCK_TOKENS + 1) * BLOCK_TOKENS);
        output_tile(g, sum, c, j, end, type);
    }
    UNROLL for (uint32_t i = 0; i < c.n; i++)
        UNROLL for (uint32_t v = 0; v < c.n_vecs; v++)
            vec_store(o[i] + v * LANES, sum[i][v]);
}

static ALWAYS_INLINE void output_span(struct group *g, uint32_t from, uint32_t to, uint32_t first, uint32_t n, enum dtype type)
{
    const uint32_t step = WIDTH(n, 1);
    size_t d = 0;

    for (; d + step * LANES <= g->head_dim; d += step * LANES)
        output_columns(g, (struct columns){ first, n, step, d, LANES }, from, to, type);
    for (; d < g->head_dim; d += LANES)
        output_columns(g, (struct columns){ first, n, 1, d, MIN(g->head_dim - d, LANES) }, from, to, type);
}

/* ---- the table ---- */

typedef void score_fn(struct group *g, uint32_t t0, uint32_t t1);
typedef void output_fn(struct group *g, uint32_t from, uint32_t to, uint32_t first);

#define DEFINE_LOOPS(n, type)                                                                               \
    static void score_##type##_##n(struct group *g, uint32_t t0, uint32_t t1)                               \
    {                                                                                                       \
        score_span(g, t0, t1, n, DTYPE_##type);                                                             \
    }                                                                                                       \
    static void output_##type##_##n(struct group *g, uint32_t from, uint32_t to, uint32_t first)            \
    {                                                                                                       \
        output_span(g, from, to, first, n, DTYPE_##type);                                                   \
    }
#define ROW_OF_LOOPS(n, type) [n] = { score_##type##_##n, output_##type##_##n },

EACH_GROUP(DEFINE_LOOPS, F16)
EACH_GROUP(DEFINE_LOOPS, BF16)
EACH_GROUP(DEFINE_LOOPS, F32)

static const struct group_loops {
    score_fn *score;
    output_fn *output;
} loops_of[N_DTYPES][GROUP + 1] = {
    [DTYPE_F16] = { EACH_GROUP(ROW_OF_LOOPS, F16) },
    [DTYPE_BF16] = { EACH_GROUP(ROW_OF_LOOPS, BF16) },
    [DTYPE_F32] = { EACH_GROUP(ROW_OF_LOOPS, F32) },
};

/* ---- spans of a query ---- */

static void partial_merge(struct partial *a, const struct partial *b, uint32_t head_dim)
{
    float m = MAX(a->m, b->m);
    vec ca = vec_exp_below_highest(vec_all(a->m - m)), cb = vec_exp_below_highest(vec_all(b->m - m));
    float first_ca[LANES], first_cb[LANES];

    vec_store(first_ca, ca);
    vec_store(first_cb, cb);
    a->m = m;
    a->l = fmaf(b->l, first_cb[0], a->l * first_ca[0]);
    for (size_t d = 0; d < head_dim; d += LANES)
        vec_store(a->o + d, vec_fma(vec_load(b->o + d), cb, vec_mul(vec_load(a->o + d), ca)));
}

/* The partial of span number `span` counts as pushed; see kernel.h for the order of the merges. */
static void query_push(struct group *g, uint32_t i, uint32_t span)
{
    struct partial *top = &g->stack[i][g->depth[i]++];

    for (; (span & 1) && g->depth[i] > 1; span >>= 1, top--, g->depth[i]--)      /* depth 1: the older is absent */
        partial_merge(top - 1, top, g->head_dim);
}

static void query_finish(struct group *g, uint32_t i, float *out)
{
    struct partial *stack = g->stack[i];
    size_t d = 0;
    vec share;

    for (uint32_t top = g->depth[i] - 1; top > 0; top--)
        partial_merge(&stack[top - 1], &stack[top], g->head_dim);
    share = vec_all(1.0f / stack->l);
    for (; d + LANES <= g->head_dim; d += LANES)
        vec_store(out + d, vec_mul(vec_load(stack->o + d), share));
    if (d < g->head_dim)
        vec_store_part(out + d, vec_mul(vec_load(stack->o + d), share), g->head_dim - d);
}

/* ---- a group ---- */

static void group_load(struct group *g, const struct attention_args *args, uint32_t first)
{
    uint32_t n_left = args->n_queries - first;

    g->n = n_left >= GROUP ? GROUP : MIN(n_left, GROUP_REST);
    g->head_dim = args->head_dim;
    g->scale = args->scale;
    g->softcap = args->softcap;
    for (uint32_t i = 0; i < g->n; i++) {
        g->first_key[i] = args->first_key ? args->first_key[first + i] : 0;
        g->n_keys[i] = args->n_keys[first + i];
        g->depth[i] = 0;
        assert(g->first_key[i] < g->n_keys[i] && g->n_keys[i] <= ATTENTION_MAX_KEYS);
        for (size_t d = 0; d < args->head_dim; d++)
            g->q[d][i] = args->q[first + i][d];
    }
    for (uint32_t i = g->n; i < GROUP; i++) {           /* places without a query see what the first one sees */
        g->first_key[i] = g->first_key[0];
        g->n_keys[i] = g->n_keys[0];
    }
}

/* What each query sees of the span at `start`.  A fixed number of queries, so that the compiler makes vectors of it. */
static void group_look(struct group *g, uint32_t start)
{
    uint32_t tiles = 0, from = 0, to = SPAN_TOKENS, end = 0;

    for (uint32_t i = 0; i < GROUP; i++) {
        uint32_t f = g->first_key[i] <= start ? 0 : g->first_key[i] - start;
        uint32_t t = g->n_keys[i] <= start ? 0 : MIN(g->n_keys[i] - start, SPAN_TOKENS);
        bool any = f < t;
        g->from[i] = f = any ? f : 0;
        g->to[i] = t = any ? t : 0;
        tiles |= (1u << DIV_UP(t, BLOCK_TOKENS)) - (1u << f / BLOCK_TOKENS);
        from = MAX(from, f);
        to = MIN(to, t);
        end = MAX(end, t);
    }
    g->tiles_seen = tiles;
    g->all_from = from;
    g->all_to = to;
    g->end = end;
}

static void group_scores(struct group *g, const struct group_loops *loops)
{
    const uint32_t tiles = g->tiles_seen;

    for (uint32_t t0, t1 = 0; tiles >> t1; ) {          /* each run of tiles that are seen */
        t0 = t1 + (uint32_t)__builtin_ctz(tiles >> t1);
        t1 = t0 + (uint32_t)__builtin_ctz(~(tiles >> t0));
        loops[g->n].score(g, t0, t1);
    }
}

static void group_softmax(struct group *g)
{
    for (uint32_t i = 0; i < g->n; i++) {
        struct partial *part = &g->stack[i][g->depth[i]];
        if (g->to[i] == 0)
            continue;
        if (g->softcap != 0.0f)
            softcap_span(g->p[i], g->from[i], g->to[i], g->softcap);
        softmax_span(part, g->p[i], g->from[i], g->to[i]);
    }
}

/* Every query's o over its keys, in ascending order. */
static void group_output(struct group *g, const struct group_loops *loops)
{
    uint32_t from = g->all_from, to = g->all_to;

    if (from >= to)
        from = to = 0;
    for (uint32_t i = 0; i < g->n && g->all_from > 0; i++) {
        if (g->from[i] > 0)
            memset(g->stack[i][g->depth[i]].o, 0, ROUND_UP(g->head_dim, LANES) * sizeof(float));
        if (g->from[i] < from)
            loops[1].output(g, g->from[i], from, i);
    }
    if (from < to)
        loops[g->n].output(g, from, to, 0);
    for (uint32_t i = 0; i < g->n && g->end > to; i++)
        if (g->to[i] > to)
            loops[1].output(g, MAX(g->from[i], to), g->to[i], i);
}

static void group_span(struct group *g, uint32_t start, const struct group_loops *loops)
{
    group_look(g, start);
    if (g->tiles_seen == 0)
        return;
    group_scores(g, loops);
    group_softmax(g);
    group_output(g, loops);
    for (uint32_t i = 0; i < g->n; i++)
        if (g->to[i])
            query_push(g, i, start / SPAN_TOKENS);
}

static void attention(const struct attention_args *args, enum dtype type)
{
    struct group g;

    assert(args->n_queries <= ATTENTION_MAX_QUERIES && args->head_dim <= ATTENTION_MAX_DIM);
    for (uint32_t first = 0; first < args->n_queries; first += g.n) {
        uint32_t first_key = ATTENTION_MAX_KEYS, n_keys = 0;
        group_load(&g, args, first);
        for (uint32_t i = 0; i < g.n; i++) {
            first_key = MIN(first_key, g.first_key[i]);
            n_keys = MAX(n_keys, g.n_keys[i]);
        }
        for (uint32_t start = first_key / SPAN_TOKENS * SPAN_TOKENS; start < n_keys; start += SPAN_TOKENS) {
            g.tiles = args->tiles + start / BLOCK_TOKENS;
            g.last_tile = (n_keys - 1 - start) / BLOCK_TOKENS;
            group_span(&g, start, loops_of[type]);
        }
        for (uint32_t i = 0; i < g.n; i++)
            query_finish(&g, i, args->out[first + i]);
    }
}

void SIMD(attention_f16)(const struct attention_args *args) { attention(args, DTYPE_F16); }
void SIMD(attention_bf16)(const struct attention_args *args) { attention(args, DTYPE_BF16); }
void SIMD(attention_f32)(const struct attention_args *args) { attention(args, DTYPE_F32); }

/* ---- the store ---- */

/* Converts a vector at a time; k then goes down a column of its half, v along a row. */
static ALWAYS_INLINE void kv_store_16(uint16_t *tile, uint32_t slot, const float *k, const float *v, uint32_t head_dim,
                                      enum dtype type)
{
    uint16_t *tile_k = tile + slot, *tile_v = tile + (size_t)head_dim * (BLOCK_TOKENS + slot);

    for (size_t d = 0; d < head_dim; d += LANES) {
        size_t n = MIN(head_dim - d, LANES);
        uint16_t k_part[LANES], v_part[LANES];
        vec k_vec = vec_load_part(k + d, n), v_vec = vec_load_part(v + d, n);
        half_store(k_part, type == DTYPE_F16 ? vec_to_f16(k_vec) : vec_to_bf16(k_vec));
        half_store(v_part, type == DTYPE_F16 ? vec_to_f16(v_vec) : vec_to_bf16(v_vec));
        for (size_t i = 0; i < n; i++)
            tile_k[(d + i) * BLOCK_TOKENS] = k_part[i];
        memcpy(tile_v + d, v_part, n * sizeof *v_part);
    }
}

void SIMD(kv_store_f16)(void *tile, uint32_t slot, const float *k, const float *v, uint32_t head_dim)
{
    kv_store_16(tile, slot, k, v, head_dim, DTYPE_F16);
}

void SIMD(kv_store_bf16)(void *tile, uint32_t slot, const float *k, const float *v, uint32_t head_dim)
{
    kv_store_16(tile, slot, k, v, head_dim, DTYPE_BF16);
}

void SIMD(kv_store_f32)(void *tile, uint32_t slot, const float *k, const float *v, uint32_t head_dim)
{
    float *tile_k = (float *)tile + slot, *tile_v = (float *)tile + (size_t)head_dim * (BLOCK_TOKENS + slot);

    for (size_t d = 0; d < head_dim; d++)
        tile_k[d * BLOCK_TOKENS] = k[d];
    memcpy(tile_v, v, head_dim * sizeof *v);
}
