/* attention_few.h: sums of few queries, part of attention_simd.h.
 *
 * Each K and V vector is loaded and widened once for all queries, and the sums stay in registers: the loops are compiled for
 * every number of queries (EACH_FEW) and every type, and found in a table.  Scores ask for this span's V, outputs for the next
 * span's K: in a decode the tiles come from memory, and this way memory works all the time. */

/* How many vectors each of n queries sums at a time, `unit` vectors to a step: as wide as the registers allow, so that there
 * are enough independent sums to hide the latency of an fma when queries are few. */
#define WIDEST 4
#define WIDTH(n, unit) (4 * (n) * (unit) <= SUMS ? 4 : 2 * (n) * (unit) <= SUMS ? 2 : 1)

/* ---- scores ---- */

/* Scores of n queries from `first` on with the keys of n_tiles tiles from tile t0 on.  n, n_tiles and type are constants. */
static ALWAYS_INLINE void score_tiles(struct group *g, uint32_t first, uint32_t t0, uint32_t n_tiles, uint32_t n, enum dtype type)
{
    vec acc[FEW][WIDEST * VECS_16];
    const void *const *tiles = g->tiles + t0;
    const uint32_t n_vecs = n_tiles * VECS_16, n_scaled = type == DTYPE_Q8_0 ? n_vecs : 0;

    UNROLL for (uint32_t i = 0; i < n; i++)
        UNROLL for (uint32_t v = 0; v < n_vecs; v++)
            acc[i][v] = vec_all(0.0f);
    for (size_t d0 = 0; d0 < g->head_dim; d0 += scaled_dims(g, type)) {
        vec scale[WIDEST * VECS_16];
        UNROLL for (uint32_t v = 0; v < n_scaled; v++)
            scale[v] = tile_scales(g, tiles[v / VECS_16], false, d0, v % VECS_16);
        for (size_t d = d0; d < d0 + scaled_dims(g, type); d++) {
            vec k[WIDEST * VECS_16];
            UNROLL for (uint32_t v = 0; v < n_vecs; v++)
                k[v] = tile_load(tiles[v / VECS_16], d * BLOCK_TOKENS + v % VECS_16 * LANES, type);
            UNROLL for (uint32_t v = 0; v < n_scaled; v++)
                k[v] = vec_mul(k[v], scale[v]);
            UNROLL for (uint32_t t = 0; t < n_tiles; t++)
                tile_prefetch(tiles[t], (g->head_dim + d) * BLOCK_TOKENS, type);
            UNROLL for (uint32_t i = 0; i < n; i++) {
                vec q = vec_all(g->q[first + i][d]);
                UNROLL for (uint32_t v = 0; v < n_vecs; v++)
                    acc[i][v] = vec_fma(q, k[v], acc[i][v]);
            }
        }
    }
    UNROLL for (uint32_t i = 0; i < n; i++)
        UNROLL for (uint32_t v = 0; v < n_vecs; v++)
            vec_store(g->p[first + i] + t0 * BLOCK_TOKENS + v * LANES, acc[i][v]);
}

/* The tiles t0 .. t1 - 1 */
static ALWAYS_INLINE void score_span(struct group *g, uint32_t first, uint32_t t0, uint32_t t1, uint32_t n, enum dtype type)
{
    const uint32_t step = WIDTH(n, VECS_16);
    uint32_t t = t0;

    for (; t + step <= t1; t += step)
        score_tiles(g, first, t, step, n, type);
    for (; t < t1; t++)
        score_tiles(g, first, t, 1, n, type);
}

/* ---- output ---- */

/* What is summed at a time: for n queries from `first` on, n_vecs vectors of head_dim from d0 on, of which the last has
 * `last` elements.  n and n_vecs are constants. */
struct columns {
    uint32_t first, n, n_vecs;
    size_t d0, last;
};

/* sum[i] += p[i][j] v[j] for the keys from .. to - 1 of this span in order; they are all in one tile. */
static ALWAYS_INLINE void output_tile(const struct group *g, vec sum[FEW][WIDEST], struct columns c, uint32_t from,
                                      uint32_t to, enum dtype type)
{
    const void *tile = g->tiles[from / BLOCK_TOKENS], *next = tile_ahead(g, from / BLOCK_TOKENS);
    const size_t half = (size_t)g->head_dim * BLOCK_TOKENS;
    const uint32_t line = CACHE_LINE / (LANES * (uint32_t)element_bytes(type));         /* vectors in a cache line */
    const uint32_t n_scaled = type == DTYPE_Q8_0 ? c.n_vecs : 0;
    size_t at = (size_t)g->head_dim * (from % BLOCK_TOKENS) + c.d0;
    v_scales scales;

    if (type == DTYPE_Q8_0)
        tile_v_scales(scales, g, tile, c.d0, c.n_vecs * LANES);
    for (uint32_t j = from; j < to; j++, at += g->head_dim) {
        vec value[WIDEST];
        UNROLL for (uint32_t v = 0; v < c.n_vecs; v++)
            value[v] = v + 1 == c.n_vecs && c.last < LANES ? tile_load_part(tile, half + at + v * LANES, c.last, type)
                                                             : tile_load(tile, half + at + v * LANES, type);
        UNROLL for (uint32_t v = 0; v < n_scaled; v++)
            value[v] = vec_mul(value[v], vec_all(scales[(c.d0 % KV_BLOCK + v * LANES) / KV_BLOCK][j % BLOCK_TOKENS]));
        UNROLL for (uint32_t v = 0; v < c.n_vecs; v += line)
            tile_prefetch(next, at + v * LANES, type);
        UNROLL for (uint32_t i = 0; i < c.n; i++) {
            vec p = vec_all(g->p[c.first + i][j]);
            UNROLL for (uint32_t v = 0; v < c.n_vecs; v++)
                sum[i][v] = vec_fma(p, value[v], sum[i][v]);
        }
    }
}

/* All keys from .. to - 1; the sums go on from what o has. */
static ALWAYS_INLINE void output_columns(struct group *g, struct columns c, uint32_t from, uint32_t to, enum dtype type)
{
    vec sum[FEW][WIDEST];

    UNROLL for (uint32_t i = 0; i < c.n; i++)
        UNROLL for (uint32_t v = 0; v < c.n_vecs; v++)
            sum[i][v] = vec_load(g->o[c.first + i] + c.d0 + v * LANES);
    for (uint32_t j = from, end; j < to; j = end) {
        end = MIN(to, (j / BLOCK_TOKENS + 1) * BLOCK_TOKENS);
        output_tile(g, sum, c, j, end, type);
    }
    UNROLL for (uint32_t i = 0; i < c.n; i++)
        UNROLL for (uint32_t v = 0; v < c.n_vecs; v++)
            vec_store(g->o[c.first + i] + c.d0 + v * LANES, sum[i][v]);
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

typedef void score_fn(struct group *g, uint32_t first, uint32_t t0, uint32_t t1);
typedef void output_fn(struct group *g, uint32_t from, uint32_t to, uint32_t first);

#define DEFINE_LOOPS(n, type)                                                                               \
    static void score_##type##_##n(struct group *g, uint32_t first, uint32_t t0, uint32_t t1)               \
    {                                                                                                       \
        score_span(g, first, t0, t1, n, DTYPE_##type);                                                      \
    }                                                                                                       \
    static void output_##type##_##n(struct group *g, uint32_t from, uint32_t to, uint32_t first)            \
    {                                                                                                       \
        output_span(g, from, to, first, n, DTYPE_##type);                                                   \
    }
#define ROW_OF_LOOPS(n, type) [n] = { score_##type##_##n, output_##type##_##n },

EACH_FEW(DEFINE_LOOPS, F16)
EACH_FEW(DEFINE_LOOPS, BF16)
EACH_FEW(DEFINE_LOOPS, F32)
EACH_FEW(DEFINE_LOOPS, Q8_0)

static const struct few_loops {
    score_fn *score;
    output_fn *output;
} few_loops[N_DTYPES][FEW + 1] = {
    [DTYPE_F16] = { EACH_FEW(ROW_OF_LOOPS, F16) },
    [DTYPE_BF16] = { EACH_FEW(ROW_OF_LOOPS, BF16) },
    [DTYPE_F32] = { EACH_FEW(ROW_OF_LOOPS, F32) },
    [DTYPE_Q8_0] = { EACH_FEW(ROW_OF_LOOPS, Q8_0) },
};

static void few_scores(struct group *g)
{
    const uint32_t tiles = g->tiles_seen;

    for (uint32_t t0, t1 = 0; tiles >> t1; ) {          /* each run of tiles that are seen */
        t0 = t1 + (uint32_t)__builtin_ctz(tiles >> t1);
        t1 = t0 + (uint32_t)__builtin_ctz(~(tiles >> t0));
        for (uint32_t s = 0; s < g->n_strips; s++)
            few_loops[g->type][g->strip[s].n].score(g, g->strip[s].first, t0, t1);
    }
}

static void few_sum_keys(struct group *g, uint32_t first, uint32_t n, uint32_t from, uint32_t to)
{
    few_loops[g->type][n].output(g, from, to, first);
}

static void few_output(struct group *g)
{
    for (uint32_t s = 0; s < g->n_strips; s++)
        strip_output(g, &g->strip[s], 0, SPAN_TOKENS, few_sum_keys);
}
