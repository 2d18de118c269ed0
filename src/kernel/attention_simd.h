/* attention_simd.h: the body of attention_avx2.c, attention_avx512.c and attention_neon.c.
 *
 * All queries go through the spans together.  For each span all scores are computed first (lanes are keys), then each query's
 * softmax, then the output of all (lanes are head_dim).  There are two ways to do the sums, which give the same bits: few
 * queries (attention_few.h) take keys and values straight from the tiles; for many (attention_many.h) they are widened to f32
 * in squares that stay in the first level, and used for one strip of queries after the other.
 *
 * Queries may see different keys.  Scores are computed for a whole strip where one of it sees a key of the tile; a score that
 * its query does not see costs time only, it is replaced before the softmax.  The output is summed by each query alone over
 * the keys before those that all of a strip see, then together, then alone again.
 *
 * The including file says how many queries are few, and how wide the sums are:
 *   MANY                     so many queries and more are many
 *   FEW, EACH_FEW(X, type)   X(n, type) for n = 1 .. FEW, strips of few queries;  SUMS: the vectors that n queries may sum at a time
 *   EACH_STRIP(X)            X(n, w) for n = 1 .. STRIP: a strip of n queries sums w vectors of each at a time */
#include "kernel/attention.h"

#include "kernel/simd.h"

#define ALIGNED __attribute__((aligned(CACHE_LINE)))
#define NOINLINE __attribute__((noinline))

/* Before a loop with a constant count, over an array of vectors: only unrolled does the array stay in registers.  clang
 * reads gcc's pragma but does not obey it. */
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#define STRIP 6                             /* queries of a full strip */
#define SQUARE 64                           /* keys, and dims, that are widened at a time */
#define SPAN_TILES (SPAN_TOKENS / BLOCK_TOKENS)
#define ROW (SPAN_TOKENS + 16)              /* floats from a query's row to the next: not a power of two, for the cache's sake */

/* Queries first .. first + n - 1; and what they see of the span. */
struct strip {
    uint32_t first, n;
    uint32_t from, to;                      /* the least `from` and the largest `to` of those that see a key; else from >= to */
    uint32_t all_from, all_to;              /* the keys that all see; else 0 and 0 */
};

struct group {
    uint32_t n, head_dim, n_strips;
    float scale, softcap;
    enum dtype type;
    const void *const *tiles;                           /* of this span */
    uint32_t last_tile;                                 /* of the context, counted from `tiles` */
    uint32_t tiles_seen;                                /* a bit for each tile of which some query sees a key */
    uint32_t first_key[ATTENTION_MAX_QUERIES], n_keys[ATTENTION_MAX_QUERIES];      /* what a query sees of the whole context, */
    uint32_t from[ATTENTION_MAX_QUERIES], to[ATTENTION_MAX_QUERIES];                /* and of this span: keys from .. to - 1, or 0 and 0 */
    struct strip strip[ATTENTION_MAX_QUERIES];
    struct partial_stack stack[ATTENTION_MAX_QUERIES];
    float *o[ATTENTION_MAX_QUERIES];                    /* of this span's partial, above those on the stack */
    uint32_t square_key;                                /* the square's first key in the span, and its first dim */
    size_t square_dim;
    float square[SQUARE][SQUARE] ALIGNED;
    float q[ATTENTION_MAX_QUERIES][ROW] ALIGNED;
    float p[ATTENTION_MAX_QUERIES][ROW] ALIGNED;        /* scores, then probabilities */
    struct attention_partial part[ATTENTION_MAX_LEVELS][ATTENTION_MAX_QUERIES];     /* o is written up to whole vectors */
};

/* Of query i and the span that is being summed. */
static ALWAYS_INLINE struct attention_partial *top_partial(const struct group *g, uint32_t i)
{
    return g->stack[i].part[g->stack[i].depth];
}

/* ---- elements of tiles ---- */

/* A vector of elements from element `at` of a tile; and its first n.  In q8_0 they still want their scale. */
static ALWAYS_INLINE vec tile_load(const void *tile, size_t at, enum dtype type)
{
    if (type == DTYPE_F32)
        return vec_load((const float *)tile + at);
    if (type == DTYPE_Q8_0)
        return vec_from_i8((const int8_t *)tile + at);
    half_vec half = half_load((const uint16_t *)tile + at);
    return type == DTYPE_F16 ? vec_from_f16(half) : vec_from_bf16(half);
}
static ALWAYS_INLINE vec tile_load_part(const void *tile, size_t at, size_t n, enum dtype type)
{
    if (type == DTYPE_F32)
        return vec_load_part((const float *)tile + at, n);
    if (type == DTYPE_Q8_0)                             /* blocks have no part of a vector */
        return tile_load(tile, at, type);
    half_vec half = half_load_part((const uint16_t *)tile + at, n);
    return type == DTYPE_F16 ? vec_from_f16(half) : vec_from_bf16(half);
}

/* Dims that have a scale in common. */
static ALWAYS_INLINE size_t scaled_dims(const struct group *g, enum dtype type)
{
    return type == DTYPE_Q8_0 ? KV_BLOCK : g->head_dim;
}

/* The scales of vector v of a tile's 16 keys, dims d and up, in k or v. */
static ALWAYS_INLINE vec tile_scales(const struct group *g, const void *tile, bool of_v, size_t d, uint32_t v)
{
    return vec_from_f16(half_load((const uint16_t *)((const char *)tile + kv_scales_at(g->head_dim, of_v, d)) + v * LANES));
}

/* Of all 16 keys in v, for n_dims dims from d on: [block][key] */
typedef float v_scales[SQUARE / KV_BLOCK][BLOCK_TOKENS];

static ALWAYS_INLINE void tile_v_scales(v_scales to, const struct group *g, const void *tile, size_t d, size_t n_dims)
{
    for (size_t block = d / KV_BLOCK; block * KV_BLOCK < d + n_dims; block++)
        for (uint32_t v = 0; v < VECS_16; v++)
            vec_store(&to[block - d / KV_BLOCK][v * LANES], tile_scales(g, tile, true, block * KV_BLOCK, v));
}

static ALWAYS_INLINE size_t element_bytes(enum dtype type)
{
    return type == DTYPE_F32 ? sizeof(float) : type == DTYPE_Q8_0 ? sizeof(int8_t) : sizeof(uint16_t);
}

/* Asks for the cache line of element `at`, to the second level. */
static ALWAYS_INLINE void tile_prefetch(const void *tile, size_t at, enum dtype type)
{
    __builtin_prefetch((const char *)tile + at * element_bytes(type), 0, 2);
}

/* The tile that comes a span after tile t of this one, or the last one. */
static ALWAYS_INLINE const void *tile_ahead(const struct group *g, uint32_t t)
{
    return g->tiles[MIN(t + SPAN_TILES, g->last_tile)];
}

/* Calls sum(g, first, n, from, to) for the queries of a strip over their keys within from .. to - 1, in ascending order for each. */
typedef void sum_keys_fn(struct group *g, uint32_t first, uint32_t n, uint32_t from, uint32_t to);

static ALWAYS_INLINE void strip_output(struct group *g, const struct strip *s, uint32_t from, uint32_t to, sum_keys_fn *sum)
{
    const uint32_t lo = MIN(MAX(s->all_from, from), to), hi = MAX(MIN(s->all_to, to), lo);

    for (uint32_t i = s->first; i < s->first + s->n && s->from < lo; i++)
        if (MAX(g->from[i], from) < MIN(g->to[i], lo))
            sum(g, i, 1, MAX(g->from[i], from), MIN(g->to[i], lo));
    if (lo < hi)
        sum(g, s->first, s->n, lo, hi);
    for (uint32_t i = s->first; i < s->first + s->n && s->to > hi; i++)
        if (MAX(g->from[i], hi) < MIN(g->to[i], to))
            sum(g, i, 1, MAX(g->from[i], hi), MIN(g->to[i], to));
}

#include "kernel/attention_few.h"
#include "kernel/attention_many.h"

/* ---- softmax ---- */

/* Where a query does not see the key: exp gives +0, which leaves its lane of the sum as it is. */
static ALWAYS_INLINE void hide_unseen(float *p, uint32_t from, uint32_t to)
{
    for (uint32_t j = from / 16 * 16; j < from; j++)
        p[j] = -INFINITY;
    for (uint32_t j = to; j < ROUND_UP(to, 16); j++)
        p[j] = -INFINITY;
}

static void softcap_span(float *p, uint32_t from, uint32_t to, float softcap, float scale)
{
    const vec cap = vec_all(softcap);

    for (uint32_t j = from / LANES * LANES; j < to; j += LANES)
        vec_store(p + j, vec_softcap(vec_mul(vec_load(p + j), vec_all(scale)), cap));
}

/* Four at a time, as the order does not matter. */
static ALWAYS_INLINE float row_max(const float *p, uint32_t from, uint32_t to)
{
    vec max[4], both[VECS_16];
    uint32_t j = from;

    for (uint32_t i = 0; i < 4; i++)
        max[i] = vec_load(p + from + i % VECS_16 * LANES);
    for (; j + 4 * LANES <= to; j += 4 * LANES)
        UNROLL for (uint32_t i = 0; i < 4; i++)
            max[i] = vec_max(vec_load(p + j + i * LANES), max[i]);
    for (; j < to; j += LANES)
        max[0] = vec_max(vec_load(p + j), max[0]);
    for (uint32_t v = 0; v < VECS_16; v++)
        both[v] = vec_max(vec_max(max[0], max[1]), vec_max(max[2], max[3]));
    return lanes_max(both);
}

/* Sums of q k of n keys, a multiple of 16, become probabilities; their sum. */
static ALWAYS_INLINE float exp_span(float *p, uint32_t n, float scale, float max)
{
    vec sum[VECS_16];

    for (uint32_t v = 0; v < VECS_16; v++)
        sum[v] = vec_all(0.0f);
    for (uint32_t j = 0; j < n; j += 16)
        for (uint32_t v = 0; v < VECS_16; v++) {
            vec score = vec_mul(vec_load(p + j + v * LANES), vec_all(scale));
            vec e = vec_exp_below_highest(vec_sub(score, vec_all(max)));
            vec_store(p + j + v * LANES, e);
            sum[v] = vec_add(sum[v], e);
        }
    return lanes_sum(sum);
}

/* The maxima of all queries first, and then all exps: so one query's do not wait for its maximum.  As a product with `scale`
 * rounds larger sums not below smaller ones, the largest score is that of the largest sum. */
static void group_softmax(struct group *g)
{
    const float scale = g->softcap != 0.0f ? 1.0f : g->scale;

    for (uint32_t i = 0; i < g->n; i++) {
        struct attention_partial *part = top_partial(g, i);
        if (g->to[i] == 0)
            continue;
        if (g->softcap != 0.0f)
            softcap_span(g->p[i], g->from[i], g->to[i], g->softcap, g->scale);
        hide_unseen(g->p[i], g->from[i], g->to[i]);
        part->m = row_max(g->p[i], g->from[i] / 16 * 16, ROUND_UP(g->to[i], 16)) * scale;
    }
    for (uint32_t i = 0; i < g->n; i++) {
        struct attention_partial *part = top_partial(g, i);
        uint32_t first = g->from[i] / 16 * 16;
        if (g->to[i] == 0)
            continue;
        part->l = exp_span(g->p[i] + first, ROUND_UP(g->to[i], 16) - first, scale, part->m);
        g->o[i] = memset(part->o, 0, ROUND_UP(g->head_dim, LANES) * sizeof(float));
    }
}

/* ---- the partials of a query ---- */

static void partial_merge(struct attention_partial *a, const struct attention_partial *b, uint32_t head_dim)
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

static void write_result(float *out, const struct attention_partial *part, uint32_t head_dim)
{
    vec share = vec_all(1.0f / part->l);
    size_t d = 0;

    for (; d + LANES <= head_dim; d += LANES)
        vec_store(out + d, vec_mul(vec_load(part->o + d), share));
    if (d < head_dim)
        vec_store_part(out + d, vec_mul(vec_load(part->o + d), share), head_dim - d);
}

static void query_finish(struct group *g, const struct attention_args *args, uint32_t i)
{
    struct partial_stack *stack = &g->stack[i];

    stack_merge_all(stack, g->head_dim, partial_merge);
    if (!args->partials)
        write_result(args->out[i], stack->part[0], g->head_dim);
    else if (stack->depth == 1)
        memcpy(&args->partials[i], stack->part[0], sizeof *stack->part[0]);
}

/* ---- a group ---- */

static void group_load(struct group *g, const struct attention_args *args, enum dtype type)
{
    g->n = args->n_queries;
    g->head_dim = args->head_dim;
    g->scale = args->scale;
    g->softcap = args->softcap;
    g->type = type;
    g->n_strips = 0;
    for (uint32_t first = 0, most = g->n < MANY ? FEW : STRIP; first < g->n; first += most)
        g->strip[g->n_strips++] = (struct strip){ .first = first, .n = MIN(most, g->n - first) };
    for (uint32_t i = 0; i < g->n; i++) {
        g->first_key[i] = attention_first_key(args, i);
        g->n_keys[i] = args->n_keys[i];
        g->stack[i].depth = 0;
        for (uint32_t level = 0; level < ATTENTION_MAX_LEVELS; level++)
            g->stack[i].part[level] = &g->part[level][i];
        memcpy(g->q[i], args->q[i], g->head_dim * sizeof(float));
        assert(g->first_key[i] < g->n_keys[i] && g->n_keys[i] <= ATTENTION_MAX_KEYS);
    }
}

/* What a query sees of the span at `start`, and with it its strip. */
static ALWAYS_INLINE void query_look(struct group *g, struct strip *s, uint32_t i, uint32_t start)
{
    uint32_t from = g->first_key[i] <= start ? 0 : g->first_key[i] - start;
    uint32_t to = g->n_keys[i] <= start ? 0 : MIN(g->n_keys[i] - start, SPAN_TOKENS);

    if (from >= to)
        from = to = 0;
    g->from[i] = from;
    g->to[i] = to;
    g->tiles_seen |= (1u << DIV_UP(to, BLOCK_TOKENS)) - (1u << from / BLOCK_TOKENS);
    s->from = to ? MIN(s->from, from) : s->from;
    s->to = MAX(s->to, to);
    s->all_from = MAX(s->all_from, from);
    s->all_to = MIN(s->all_to, to);
}

static void group_look(struct group *g, uint32_t start)
{
    g->tiles_seen = 0;
    for (uint32_t k = 0; k < g->n_strips; k++) {
        struct strip *s = &g->strip[k];
        *s = (struct strip){ .first = s->first, .n = s->n, .from = SPAN_TOKENS, .all_to = SPAN_TOKENS };
        for (uint32_t i = s->first; i < s->first + s->n; i++)
            query_look(g, s, i, start);
        if (s->all_from >= s->all_to)
            s->all_from = s->all_to = 0;
    }
}

static void group_span(struct group *g, uint32_t span)
{
    group_look(g, span * SPAN_TOKENS);
    if (g->tiles_seen == 0)
        return;
    (g->n < MANY ? few_scores : many_scores)(g);
    group_softmax(g);
    (g->n < MANY ? few_output : many_output)(g);
    for (uint32_t i = 0; i < g->n; i++)
        if (g->to[i])
            stack_push(&g->stack[i], span, g->head_dim, partial_merge);
}

static void attention(const struct attention_args *args, enum dtype type)
{
    struct group g;
    uint32_t first_key = ATTENTION_MAX_KEYS, n_keys = 0;

    assert(args->n_queries <= ATTENTION_MAX_QUERIES && args->head_dim <= ATTENTION_MAX_DIM);
    group_load(&g, args, type);
    for (uint32_t i = 0; i < g.n; i++) {
        first_key = MIN(first_key, g.first_key[i]);
        n_keys = MAX(n_keys, g.n_keys[i]);
    }
    struct spans spans = attention_spans(args, first_key, n_keys);
    for (uint32_t s = spans.begin; s < spans.end; s++) {
        g.tiles = args->tiles + s * SPAN_TILES;
        g.last_tile = (MIN(n_keys, spans.end * SPAN_TOKENS) - 1 - s * SPAN_TOKENS) / BLOCK_TOKENS;
        group_span(&g, s);
    }
    for (uint32_t i = 0; i < g.n; i++)
        query_finish(&g, args, i);
}

void SIMD(attention_f16)(const struct attention_args *args) { attention(args, DTYPE_F16); }
void SIMD(attention_bf16)(const struct attention_args *args) { attention(args, DTYPE_BF16); }
void SIMD(attention_f32)(const struct attention_args *args) { attention(args, DTYPE_F32); }
void SIMD(attention_q8_0)(const struct attention_args *args) { attention(args, DTYPE_Q8_0); }

void SIMD(attention_merge)(const struct attention_args *args)
{
    for (uint32_t i = 0; i < args->n_queries; i++) {
        uint32_t first = attention_first_key(args, i) / SPAN_TOKENS >> args->run_shift;
        uint32_t last = (args->n_keys[i] - 1) / SPAN_TOKENS >> args->run_shift;
        struct partial_stack stack = { .depth = 0 };
        for (uint32_t run = first; run <= last; run++) {
            stack.part[stack.depth] = &args->partials[(size_t)(run - args->run) * args->n_queries + i];
            stack_push(&stack, run, args->head_dim, partial_merge);
        }
        stack_merge_all(&stack, args->head_dim, partial_merge);
        write_result(args->out[i], stack.part[0], args->head_dim);
    }
}

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

/* To the nearest integer, to even, for |x| below 2^22. */
static ALWAYS_INLINE vec vec_round(vec x)
{
    return vec_sub(vec_add(x, vec_all(EXP_SHIFTER)), vec_all(EXP_SHIFTER));
}

/* 32 values as int8, and their scale in f16.  x - x is NaN where x is not finite, else +0. */
static ALWAYS_INLINE uint16_t quantize_32(int8_t q[KV_BLOCK], const float *x)
{
    vec max[VECS_16], odd[VECS_16], inverse;
    float values[KV_BLOCK], amax;
    bool finite;
    uint16_t d;

    for (uint32_t v = 0; v < VECS_16; v++) {
        vec low = vec_load(x + v * LANES), high = vec_load(x + 16 + v * LANES);
        max[v] = vec_max(vec_abs(low), vec_abs(high));
        odd[v] = vec_add(vec_sub(low, low), vec_sub(high, high));
    }
    amax = lanes_max(max);
    finite = lanes_sum(odd) == 0.0f;
    d = f32_to_f16(finite ? amax / 127.0f : NAN);
    inverse = vec_all(1.0f / f16_to_f32(d));
    for (uint32_t v = 0; v < KV_BLOCK / LANES; v++)
        vec_store(values + v * LANES, vec_round(vec_mul(vec_load(x + v * LANES), inverse)));
    for (uint32_t i = 0; i < KV_BLOCK; i++)
        q[i] = finite && d ? (int8_t)MAX(-127.0f, MIN(127.0f, values[i])) : 0;
    return d;
}

void SIMD(kv_store_q8_0)(void *tile, uint32_t slot, const float *k, const float *v, uint32_t head_dim)
{
    kv_store_blocks(tile, slot, k, v, head_dim, quantize_32);
}
