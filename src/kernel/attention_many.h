/* attention_many.h: sums of many queries, part of attention_simd.h.
 *
 * Both sums are the product of rows, a float for each step, with a matrix: scores of q with K, outputs of p with V.  So one
 * loop does them, strip_multiply(), over a square of K or V that is widened once for all strips. */

/* ---- squares ---- */

static ALWAYS_INLINE size_t square_dims(const struct group *g)
{
    return MIN(g->head_dim - g->square_dim, SQUARE);
}

/* Of tile t: the dims from square_dim on of its keys, to 16 columns of the square (K) or to 16 rows (V).  The first asks for
 * the tile's V, the second for the K of the next span. */
static ALWAYS_INLINE void widen_k(struct group *g, uint32_t t, enum dtype type)
{
    const void *tile = g->tiles[t];
    const size_t end = g->square_dim + square_dims(g);
    float *to = &g->square[0][t * BLOCK_TOKENS - g->square_key];

    for (size_t d0 = g->square_dim; d0 < end; d0 += scaled_dims(g, type)) {
        const size_t d1 = MIN(d0 + scaled_dims(g, type), end);
        vec scale[VECS_16];
        UNROLL for (uint32_t v = 0; v < VECS_16; v++)
            scale[v] = type == DTYPE_Q8_0 ? tile_scales(g, tile, false, d0, v) : vec_all(1.0f);
        for (size_t d = d0; d < d1; d++, to += SQUARE) {
            UNROLL for (uint32_t v = 0; v < VECS_16; v++) {
                vec k = tile_load(tile, d * BLOCK_TOKENS + v * LANES, type);
                vec_store(to + v * LANES, type == DTYPE_Q8_0 ? vec_mul(k, scale[v]) : k);
            }
            tile_prefetch(tile, (g->head_dim + d) * BLOCK_TOKENS, type);
        }
    }
}

static ALWAYS_INLINE void widen_v(struct group *g, uint32_t t, enum dtype type)
{
    const void *tile = g->tiles[t], *next = tile_ahead(g, t);
    const size_t half = (size_t)g->head_dim * BLOCK_TOKENS, n_dims = square_dims(g), whole = n_dims / LANES * LANES;
    float *to = g->square[t * BLOCK_TOKENS - g->square_key];
    v_scales scales;

    if (type == DTYPE_Q8_0)
        tile_v_scales(scales, g, tile, g->square_dim, n_dims);
    for (uint32_t j = 0; j < BLOCK_TOKENS; j++, to += SQUARE) {
        size_t at = (size_t)g->head_dim * j + g->square_dim;
        for (size_t d = 0; d < whole; d += LANES) {
            vec v = tile_load(tile, half + at + d, type);
            vec_store(to + d, type == DTYPE_Q8_0 ? vec_mul(v, vec_all(scales[d / KV_BLOCK][j])) : v);
            tile_prefetch(next, at + d, type);
        }
        if (whole < n_dims)
            vec_store(to + whole, tile_load_part(tile, half + at + whole, n_dims - whole, type));
    }
}

typedef void widen_fn(struct group *g, uint32_t t);

#define DEFINE_WIDEN(type)                                                                              \
    static void widen_k_##type(struct group *g, uint32_t t) { widen_k(g, t, DTYPE_##type); }            \
    static void widen_v_##type(struct group *g, uint32_t t) { widen_v(g, t, DTYPE_##type); }
DEFINE_WIDEN(F16)
DEFINE_WIDEN(BF16)
DEFINE_WIDEN(F32)
DEFINE_WIDEN(Q8_0)

#define ROW_OF_WIDEN(type) [DTYPE_##type] = { widen_k_##type, widen_v_##type }
static const struct {
    widen_fn *k, *v;
} widen_fns[N_DTYPES] = { ROW_OF_WIDEN(F16), ROW_OF_WIDEN(BF16), ROW_OF_WIDEN(F32), ROW_OF_WIDEN(Q8_0) };

/* ---- a strip ---- */

/* c[i][0 ..] += sum over k of a[i * ROW + k] b[k * SQUARE + 0 ..], for n rows and w vectors, both constants; from +0 if `fresh`. */
static ALWAYS_INLINE void strip_multiply(float *const *c, size_t at, const float *a, const float *b, size_t n_k, bool fresh,
                                         uint32_t n, uint32_t w)
{
    vec sum[STRIP][SQUARE / LANES];

    UNROLL for (uint32_t i = 0; i < n; i++)
        UNROLL for (uint32_t v = 0; v < w; v++)
            sum[i][v] = fresh ? vec_all(0.0f) : vec_load(c[i] + at + v * LANES);
    for (size_t k = 0; k < n_k; k++, b += SQUARE) {
        vec right[SQUARE / LANES];
        UNROLL for (uint32_t v = 0; v < w; v++)
            right[v] = vec_load(b + v * LANES);
        UNROLL for (uint32_t i = 0; i < n; i++) {
            vec left = vec_all(a[i * ROW + k]);
            UNROLL for (uint32_t v = 0; v < w; v++)
                sum[i][v] = vec_fma(left, right[v], sum[i][v]);
        }
    }
    UNROLL for (uint32_t i = 0; i < n; i++)
        UNROLL for (uint32_t v = 0; v < w; v++)
            vec_store(c[i] + at + v * LANES, sum[i][v]);
}

typedef void multiply_fn(float *const *c, size_t at, const float *a, const float *b, size_t n_k, bool fresh);

/* Not inlined, or the compiler has no register left for the sums. */
#define DEFINE_MULTIPLY(n, w)                                                                                                   \
    static NOINLINE void multiply_##n(float *const *c, size_t at, const float *a, const float *b, size_t n_k, bool fresh)       \
    {                                                                                                                           \
        strip_multiply(c, at, a, b, n_k, fresh, n, w);                                                                          \
    }                                                                                                                           \
    static NOINLINE void multiply_rest_##n(float *const *c, size_t at, const float *a, const float *b, size_t n_k, bool fresh)  \
    {                                                                                                                           \
        strip_multiply(c, at, a, b, n_k, fresh, n, 1);                                                                          \
    }
EACH_STRIP(DEFINE_MULTIPLY)

#define ROW_OF_MULTIPLY(n, w) [n] = { multiply_##n, multiply_rest_##n, w },
static const struct {
    multiply_fn *wide, *rest;
    uint32_t n_vecs;
} multiply_fns[STRIP + 1] = { EACH_STRIP(ROW_OF_MULTIPLY) };

/* The columns of vectors v0 .. v1 - 1 */
static void multiply_columns(float *const *c, const float *a, const float *b, uint32_t n, uint32_t v0, uint32_t v1, size_t n_k, bool fresh)
{
    uint32_t v = v0, w = multiply_fns[n].n_vecs;

    for (; v + w <= v1; v += w)
        multiply_fns[n].wide(c, v * LANES, a, b + v * LANES, n_k, fresh);
    for (; v < v1; v++)
        multiply_fns[n].rest(c, v * LANES, a, b + v * LANES, n_k, fresh);
}

/* ---- scores and output ---- */

/* Adds the square's dims to the scores of those of its tiles that the strip sees. */
static void strip_scores(struct group *g, const struct strip *s)
{
    const uint32_t key = g->square_key, from = MAX(s->from, key), to = MIN(s->to, key + SQUARE);
    float *c[STRIP];

    if (from >= to)
        return;
    for (uint32_t i = 0; i < s->n; i++)
        c[i] = g->p[s->first + i] + key;
    multiply_columns(c, &g->q[s->first][g->square_dim], g->square[0], s->n, (from - key) / BLOCK_TOKENS * VECS_16,
                     DIV_UP(to - key, BLOCK_TOKENS) * VECS_16, square_dims(g), g->square_dim == 0);
}

static void many_sum_keys(struct group *g, uint32_t first, uint32_t n, uint32_t from, uint32_t to)
{
    float *c[STRIP];

    for (uint32_t i = 0; i < n; i++)
        c[i] = g->o[first + i] + g->square_dim;
    multiply_columns(c, &g->p[first][from], g->square[from - g->square_key], n, 0, DIV_UP((uint32_t)square_dims(g), LANES),
                     to - from, false);
}

static void strip_square_output(struct group *g, const struct strip *s)
{
    strip_output(g, s, g->square_key, g->square_key + SQUARE, many_sum_keys);
}

/* Widens each square of which some key is seen, from the tiles that are seen, and calls `use` for each strip. */
static ALWAYS_INLINE void each_square(struct group *g, widen_fn *widen, void (*use)(struct group *g, const struct strip *s))
{
    for (uint32_t t0 = 0; t0 < SPAN_TILES; t0 += SQUARE / BLOCK_TOKENS) {
        uint32_t seen = g->tiles_seen >> t0 & ((1u << SQUARE / BLOCK_TOKENS) - 1);
        g->square_key = t0 * BLOCK_TOKENS;
        for (g->square_dim = 0; seen && g->square_dim < g->head_dim; g->square_dim += SQUARE) {
            for (uint32_t t = 0; t < SQUARE / BLOCK_TOKENS; t++)
                if (seen >> t & 1)
                    widen(g, t0 + t);
            for (uint32_t s = 0; s < g->n_strips; s++)
                use(g, &g->strip[s]);
        }
    }
}

static void many_scores(struct group *g)
{
    each_square(g, widen_fns[g->type].k, strip_scores);
}

static void many_output(struct group *g)
{
    each_square(g, widen_fns[g->type].v, strip_square_output);
}
