/* Attention and the KV store: every variant that this CPU has against the portable C, bit for bit; the portable C against
 * the rule of kernel.h written down once more, bit for bit, and against a softmax in double.  Slots that no query sees are
 * NaN, so that a key multiplied by 0 instead of skipped shows; tiles of which no query sees a slot are NULL. */
#include "base/dtype.h"
#include "kernel/cpu.h"
#include "kernel/kernel.h"
#include "kernel/math.h"
#include "tests/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const enum dtype cache_types[] = { DTYPE_F16, DTYPE_BF16, DTYPE_F32, DTYPE_Q8_0 };

/* Query i sees the keys before n_keys - i / heads * step (at least 1), as tokens of a prefill do. */
static const struct shape { uint32_t head_dim, n_keys, n_queries, heads, step; } shapes[] = {
    {   1,    1,  1,  1,   0 },
    {   8,    2,  3,  3,   0 },
    {   8,  255,  6,  2,   1 },
    {  12,   15,  4,  2,   1 },
    {  12,  257,  9,  3,   1 },         /* the oldest tokens see one span, the newest two */
    {  16,   16,  2,  2,   0 },
    {  16,   17,  7,  1,   5 },
    {  16, 1025, 16,  1,  64 },         /* spans that some of a group have and others lack */
    {  32,  256, 12,  4,   1 },
    {  33,  129,  5,  5,   0 },
    {  64,  511,  3,  3,   0 },
    {  64,  513,  8,  8,   0 },
    {  64, 1025, 64,  3,   1 },
    {  64, 2049,  4,  4,   0 },         /* eight spans and a key: the counter's carry goes all the way */
    {  80,  257, 10,  5,   1 },
    { 128,  256, 16,  8,   1 },
    { 128,  513, 21,  7,   3 },
    { 255,   31,  2,  1,   1 },
    { 256, 1025,  5,  1, 255 },
    { 256,   48, 64,  4,   3 },
};

/* A query sees the last `window` of these keys, all for 0, or with MIXED a range by chance. */
#define MIXED UINT32_MAX
static const struct view { uint32_t window; float softcap; } views[] = {
    {     0, 50.0f },
    {     1,  0.0f },
    {     7,  2.0f },
    {    16,  0.0f },
    {   100,  0.0f },
    {   100, 50.0f },
    {   255,  0.0f },
    {   256,  2.0f },
    {   257,  0.0f },
    {   700,  0.0f },
    {   700,  2.0f },
    { MIXED,  0.0f },
    { MIXED,  2.0f },
};
static const struct view whole = { 0, 0.0f };
static const struct shape windowed[] = {
    {  24,    1,  1,  1,   0 },
    {  64,   17,  6,  2,   1 },
    {  16,  256,  8,  8,   0 },
    {  33,  257,  9,  3,   1 },
    {  64,  300, 16,  2,   5 },
    {   8,  513, 64,  1,   1 },             /* the window's start is at every place of a span */
    { 128,  768,  5,  1,  16 },
    {  80, 1025,  4,  4,   0 },
    {  12, 1999, 23,  1,  70 },             /* with small windows: tiles that none sees, between some that are seen */
    {  64, 1500,  3,  1, 500 },             /* no tile in common */
};

static uint32_t seed = 1;

static float random_float(void)         /* in [-1, 1) */
{
    seed = seed * 1664525 + 1013904223;
    return (float)(int32_t)seed * 0x1p-31f;
}

static bool has(const struct kernels *kernels)
{
    return (kernels->needs & cpu_features()) == kernels->needs;
}

/* One sequence's cache, its queries, and room for answers. */
struct bench {
    struct attention_args args;
    void **tiles;
    uint32_t n_tiles;
    const float *q[ATTENTION_MAX_QUERIES];
    uint32_t first_key[ATTENTION_MAX_QUERIES], n_keys[ATTENTION_MAX_QUERIES];
    float out_rows[ATTENTION_MAX_QUERIES][ATTENTION_MAX_DIM];
    float *out[ATTENTION_MAX_QUERIES];
};

/* Which keys query i sees. */
static void bench_look(struct bench *b, const struct shape *shape, uint32_t window, uint32_t i)
{
    uint32_t fewer = i / shape->heads * shape->step;

    b->n_keys[i] = fewer < shape->n_keys ? shape->n_keys - fewer : 1;
    if (window == MIXED) {
        static const uint32_t most[] = { 1, 20, 300, 2000 };
        b->n_keys[i] = 1 + (uint32_t)((random_float() + 1.0f) * 0.499f * (float)shape->n_keys);
        window = 1 + (uint32_t)((random_float() + 1.0f) * 0.499f * (float)most[i % COUNT_OF(most)]);
    }
    b->first_key[i] = window && b->n_keys[i] > window ? b->n_keys[i] - window : 0;
}

static bool any_sees(const struct bench *b, uint32_t n_queries, uint32_t key)
{
    for (uint32_t i = 0; i < n_queries; i++)
        if (b->first_key[i] <= key && key < b->n_keys[i])
            return true;
    return false;
}

static struct bench *bench_open(const struct shape *shape, const struct view *view, enum dtype type)
{
    struct bench *b = calloc(1, sizeof *b);
    float k[ATTENTION_MAX_DIM], v[ATTENTION_MAX_DIM];

    b->n_tiles = DIV_UP(shape->n_keys, BLOCK_TOKENS);
    b->tiles = calloc(b->n_tiles, sizeof *b->tiles);
    for (uint32_t i = 0; i < shape->n_queries; i++)
        bench_look(b, shape, view->window, i);
    for (uint32_t j = 0; j < shape->n_keys; j++) {
        void **tile = &b->tiles[j / BLOCK_TOKENS];
        if (!any_sees(b, shape->n_queries, j))
            continue;
        if (!*tile)
            *tile = memset(malloc(kv_tile_bytes(type, shape->head_dim)), 0xff, kv_tile_bytes(type, shape->head_dim));     /* NaN */
        for (uint32_t d = 0; d < shape->head_dim; d++) {
            k[d] = random_float();
            v[d] = random_float();
        }
        kernels_all[0]->kv_store[type](*tile, j % BLOCK_TOKENS, k, v, shape->head_dim);
    }
    for (uint32_t i = 0; i < shape->n_queries; i++) {
        float *q = malloc(shape->head_dim * sizeof *q);
        for (uint32_t d = 0; d < shape->head_dim; d++)
            q[d] = 4.0f * random_float();
        b->q[i] = q;
        b->out[i] = b->out_rows[i];
    }
    b->args = (struct attention_args){
        .tiles = (const void *const *)b->tiles, .n_queries = shape->n_queries, .q = b->q, .out = b->out,
        .first_key = view->window ? b->first_key : NULL, .n_keys = b->n_keys, .head_dim = shape->head_dim,
        .scale = 1.0f / sqrtf((float)shape->head_dim), .softcap = view->softcap,
    };
    return b;
}

static void bench_close(struct bench *b)
{
    for (uint32_t t = 0; t < b->n_tiles; t++)
        free(b->tiles[t]);
    for (uint32_t i = 0; i < b->args.n_queries; i++)
        free((void *)b->q[i]);
    free(b->tiles);
    free(b);
}

/* Element `at` of a tile, whose scale in q8_0 is number `scale` of those behind the elements. */
static float cached(const struct bench *b, enum dtype type, uint32_t tile, size_t at, size_t scale)
{
    const char *bytes = b->tiles[tile];
    float value;
    if (type == DTYPE_Q8_0) {
        const uint16_t *scales = (const uint16_t *)(bytes + 2 * 16 * b->args.head_dim);
        return f16_to_f32(scales[scale]) * ((const int8_t *)bytes)[at];
    }
    dequantize_row(&value, bytes + dtype_bytes(type, at), type, 1);
    return value;
}

static float cached_k(const struct bench *b, enum dtype type, uint32_t j, uint32_t d)
{
    return cached(b, type, j / BLOCK_TOKENS, (size_t)d * BLOCK_TOKENS + j % BLOCK_TOKENS, d / 32 * 16 + j % 16);
}

static float cached_v(const struct bench *b, enum dtype type, uint32_t j, uint32_t d)
{
    uint32_t head_dim = b->args.head_dim;
    return cached(b, type, j / BLOCK_TOKENS, (size_t)head_dim * (BLOCK_TOKENS + j % BLOCK_TOKENS) + d, (head_dim / 32 + d / 32) * 16 + j % 16);
}

/* ---- the rule of kernel.h, in its own words ---- */

struct part {
    float m, l, o[ATTENTION_MAX_DIM];
};

static struct part span_part(const struct bench *b, enum dtype type, uint32_t i, uint32_t from, uint32_t to)
{
    struct part part = { .m = -INFINITY };
    float score[SPAN_TOKENS], lane[16] = { 0 };
    const struct attention_args *args = &b->args;

    for (uint32_t j = from; j < to; j++) {
        float acc = 0.0f;
        for (uint32_t d = 0; d < args->head_dim; d++)
            acc = fmaf(args->q[i][d], cached_k(b, type, j, d), acc);
        acc *= args->scale;
        if (args->softcap > 0.0f)
            acc = args->softcap * math_tanh(acc / args->softcap);
        score[j - from] = acc;
        part.m = fmaxf(part.m, acc);
    }
    for (uint32_t j = from; j < to; j++) {
        float p = math_exp(score[j - from] - part.m);
        lane[j % 16] += p;
        for (uint32_t d = 0; d < args->head_dim; d++)
            part.o[d] = fmaf(p, cached_v(b, type, j, d), part.o[d]);
    }
    for (int gap = 8; gap >= 1; gap /= 2)
        for (int k = 0; k < gap; k++)
            lane[k] += lane[k + gap];
    part.l = lane[0];
    return part;
}

static void merge(struct part *a, const struct part *b)
{
    float m = fmaxf(a->m, b->m), ca = math_exp(a->m - m), cb = math_exp(b->m - m);

    a->m = m;
    a->l = fmaf(b->l, cb, a->l * ca);
    for (int d = 0; d < ATTENTION_MAX_DIM; d++)
        a->o[d] = fmaf(b->o[d], cb, a->o[d] * ca);
}

static void check_against_rule(const struct bench *b, enum dtype type)
{
    struct part stack[ATTENTION_MAX_LEVELS];

    for (uint32_t i = 0; i < b->args.n_queries; i += b->args.n_queries > 20 ? 7 : 1) {
        uint32_t first = b->first_key[i] / SPAN_TOKENS, end = b->n_keys[i], n = 0;
        for (uint32_t s = first; s * SPAN_TOKENS < end; s++) {
            stack[n++] = span_part(b, type, i, MAX(s * SPAN_TOKENS, b->first_key[i]), MIN((s + 1) * SPAN_TOKENS, end));
            for (uint32_t bit = 0; s >> bit & 1 && (s >> bit) << bit > first; bit++, n--)
                merge(&stack[n - 2], &stack[n - 1]);
        }
        for (; n > 1; n--)
            merge(&stack[n - 2], &stack[n - 1]);
        for (uint32_t d = 0; d < b->args.head_dim; d++)
            stack[0].o[d] *= 1.0f / stack[0].l;
        check_bytes("the rule", b->out[i], stack[0].o, b->args.head_dim * sizeof(float));
    }
}

/* ---- */

/* Plain softmax attention of one query in double. */
static void attention_f64(double *out, const struct bench *b, enum dtype type, uint32_t i)
{
    uint32_t first = b->first_key[i], n = b->n_keys[i], head_dim = b->args.head_dim;
    double *p = calloc(n, sizeof *p), max = -INFINITY, sum = 0.0;

    for (uint32_t j = first; j < n; j++) {
        for (uint32_t d = 0; d < head_dim; d++)
            p[j] += (double)b->q[i][d] * cached_k(b, type, j, d);
        p[j] *= b->args.scale;
        if (b->args.softcap > 0.0f)
            p[j] = b->args.softcap * tanh(p[j] / b->args.softcap);
        max = fmax(max, p[j]);
    }
    for (uint32_t j = first; j < n; j++)
        sum += p[j] = exp(p[j] - max);
    for (uint32_t d = 0; d < head_dim; d++) {
        out[d] = 0.0;
        for (uint32_t j = first; j < n; j++)
            out[d] += p[j] / sum * cached_v(b, type, j, d);
    }
    free(p);
}

static void check_against_f64(const struct bench *b, enum dtype type)
{
    double want[ATTENTION_MAX_DIM], worst = 0.0;

    for (uint32_t i = 0; i < b->args.n_queries; i += 5) {
        attention_f64(want, b, type, i);
        for (uint32_t d = 0; d < b->args.head_dim; d++)
            worst = isnan(b->out[i][d]) ? INFINITY : fmax(worst, fabs(b->out[i][d] - want[d]));
    }
    if (!check(worst < 2e-6))
        printf("worst: %.3g\n", worst);
}

/* Each query again, alone: its bits may not depend on its company. */
static void check_alone(const struct bench *b, attention_fn *run)
{
    for (uint32_t i = 0; i < b->args.n_queries; i++) {
        struct attention_args one = b->args;
        float got[ATTENTION_MAX_DIM], *out = got;
        one.n_queries = 1;
        one.q += i;
        one.n_keys += i;
        if (one.first_key)
            one.first_key += i;
        one.out = &out;
        run(&one);
        check_bytes("a query alone", got, b->out[i], b->args.head_dim * sizeof *got);
    }
}

/* Computed run by run, as several threads would, in descending order, and then merged. */
static void check_runs(const struct bench *b, const struct kernels *kernels, enum dtype type, uint32_t run_shift)
{
    struct attention_args args = b->args;
    uint32_t first = UINT32_MAX, last = 0, n = args.n_queries;
    float (*want)[ATTENTION_MAX_DIM] = malloc(sizeof b->out_rows);

    for (uint32_t i = 0; i < n; i++) {
        first = MIN(first, (args.first_key ? args.first_key[i] : 0) / SPAN_TOKENS >> run_shift);
        last = MAX(last, (args.n_keys[i] - 1) / SPAN_TOKENS >> run_shift);
    }
    struct attention_partial *partials = aligned_alloc(64, (last + 1 - first) * n * sizeof *partials);
    memset(partials, 0xff, (last + 1 - first) * n * sizeof *partials);
    memcpy(want, b->out_rows, sizeof b->out_rows);
    args.run_shift = run_shift;
    for (uint32_t run = last + 1; run-- > first;) {
        args.run = run;
        args.partials = partials + (size_t)(run - first) * n;
        kernels->attention[type](&args);
    }
    check_bytes("nothing is written before the merge", b->out_rows, want, sizeof b->out_rows);
    memset((void *)b->out_rows, 0, sizeof b->out_rows);
    args.partials = partials;
    kernels->attention_merge(&args);
    check_bytes("merged runs", b->out_rows, want, sizeof b->out_rows);
    free(partials), free(want);
}

/* The next that whole blocks of the type make. */
static struct shape fitted(struct shape shape, enum dtype type)
{
    shape.head_dim = DIV_UP(shape.head_dim, dtype_info[type].block) * dtype_info[type].block;
    return shape;
}

static void test_attention(const struct shape *any_shape, const struct view *view, enum dtype type)
{
    const struct shape fits = fitted(*any_shape, type), *shape = &fits;
    struct bench *b = bench_open(shape, view, type);
    float (*want)[ATTENTION_MAX_DIM] = calloc(1, sizeof b->out_rows);

    check_begin("attention: %s, head_dim %u, %u keys, %u queries, window %d, softcap %g", dtype_info[type].name, shape->head_dim,
                shape->n_keys, shape->n_queries, (int)view->window, (double)view->softcap);
    for (size_t v = 0; v < n_kernels; v++) {
        if (!has(kernels_all[v]))
            continue;
        memset(b->out_rows, 0, sizeof b->out_rows);
        kernels_all[v]->attention[type](&b->args);
        if (v == 0) {
            check_against_f64(b, type);
            check_against_rule(b, type);
            memcpy(want, b->out_rows, sizeof b->out_rows);
        }
        check_bytes(kernels_all[v]->name, b->out_rows, want, sizeof b->out_rows);       /* and nothing past head_dim */
        if (v > 0)
            check_alone(b, kernels_all[v]->attention[type]);
        for (uint32_t run_shift = 0; run_shift <= 3; run_shift += 1 + (v == 0))
            check_runs(b, kernels_all[v], type, run_shift);
    }
    free(want);
    bench_close(b);
}

/* A NaN that is seen shows in the query that sees it and in no other; infinite scores do not trap or hang. */
static void test_attention_nan(enum dtype type, const struct view *view)
{
    static const struct shape shape = { 64, 300, 16, 1, 8 };
    struct bench *b = bench_open(&shape, view, type);
    float k[64] = { [3] = NAN }, v[64] = { 0 };

    check_begin("attention: %s, a NaN key, window %u, softcap %g", dtype_info[type].name, view->window,
                (double)view->softcap);
    kernels_all[0]->kv_store[type](b->tiles[250 / BLOCK_TOKENS], 250 % BLOCK_TOKENS, k, v, 64);
    for (size_t n = 0; n < n_kernels; n++) {
        if (!has(kernels_all[n]))
            continue;
        kernels_all[n]->attention[type](&b->args);
        for (uint32_t i = 0; i < shape.n_queries; i++) {
            bool sees = b->first_key[i] <= 250 && 250 < b->n_keys[i];
            check(isnan(b->out[i][0]) == sees && isnan(b->out[i][63]) == sees);
        }
    }
    bench_close(b);
}

/* No first_key, and one of zeros, are the same. */
static void test_attention_zero(enum dtype type)
{
    static const struct shape shape = { 64, 600, 9, 3, 1 };
    struct bench *b = bench_open(&shape, &whole, type);
    float (*want)[ATTENTION_MAX_DIM] = calloc(1, sizeof b->out_rows);

    check_begin("attention: %s, first_key all 0", dtype_info[type].name);
    for (size_t n = 0; n < n_kernels; n++) {
        if (!has(kernels_all[n]))
            continue;
        b->args.first_key = NULL;
        kernels_all[n]->attention[type](&b->args);
        memcpy(want, b->out_rows, sizeof b->out_rows);
        b->args.first_key = b->first_key;
        kernels_all[n]->attention[type](&b->args);
        check_bytes(kernels_all[n]->name, b->out_rows, want, sizeof b->out_rows);
    }
    free(want);
    bench_close(b);
}

static void test_kv_store(const struct kernels *kernels, enum dtype type)
{
    static const uint32_t dims[] = { 1, 7, 8, 12, 16, 17, 32, 64, 80, 96, 128, 255, 256 };
    union { uint32_t u; float f; } special[] = {
        { .f = NAN }, { .u = 0xff812345 | 0x400000 }, { .f = INFINITY }, { .f = -INFINITY }, { .f = -0.0f }, { .f = 65519.0f },
        { .f = 65520.0f }, { .f = 1e-7f }, { .f = -3e-8f }, { .f = 6.1e-5f }, { .f = 1.00048828125f }, { .f = 1.00146484375f },
        { .f = 1.00390625f }, { .f = 1.01171875f }, { .f = 3.4e38f }, { .f = 1e-40f },
    };

    check_begin("%s: kv_store %s", kernels->name, dtype_info[type].name);
    for (size_t l = 0; l < COUNT_OF(dims); l++) {
        if (dims[l] % dtype_info[type].block)
            continue;
        size_t n_bytes = kv_tile_bytes(type, dims[l]);
        void *want = calloc(1, n_bytes), *got = calloc(1, n_bytes);
        float *k = malloc(dims[l] * sizeof *k), *v = malloc(dims[l] * sizeof *v);
        for (uint32_t slot = 0; slot < BLOCK_TOKENS; slot += 1 + slot % 3) {
            for (uint32_t d = 0; d < dims[l]; d++) {
                k[d] = (d + slot) % 3 ? random_float() : special[(d + slot) / 3 % COUNT_OF(special)].f;
                v[d] = (d + slot) % 5 ? random_float() * 1e-4f : special[(d + slot) / 5 % COUNT_OF(special)].f;
            }
            kernels_all[0]->kv_store[type](want, slot, k, v, dims[l]);
            kernels->kv_store[type](got, slot, k, v, dims[l]);
        }
        check_bytes("tile", got, want, n_bytes);
        free(want), free(got), free(k), free(v);
    }
}

int main(void)
{
    for (size_t t = 0; t < COUNT_OF(cache_types); t++) {
        for (size_t s = 0; s < COUNT_OF(shapes); s++)
            test_attention(&shapes[s], &whole, cache_types[t]);
        for (size_t s = 0; s < COUNT_OF(windowed); s++)
            for (size_t v = 0; v < COUNT_OF(views); v++)
                test_attention(&windowed[s], &views[v], cache_types[t]);
        for (uint32_t n = 1; n <= ATTENTION_MAX_QUERIES; n++) {         /* every size of a group, and every rest */
            test_attention(&(struct shape){ 24, 37, n, 3, 1 }, &whole, cache_types[t]);
            test_attention(&(struct shape){ 24, 270, n, 3, 1 }, &(struct view){ 20, 2.0f }, cache_types[t]);
        }
        test_attention_nan(cache_types[t], &whole);
        test_attention_nan(cache_types[t], &(struct view){ 40, 0.0f });
        test_attention_nan(cache_types[t], &(struct view){ 16, 2.0f });
        test_attention_zero(cache_types[t]);
        for (size_t v = 0; v < n_kernels; v++)
            if (has(kernels_all[v]))
                test_kv_store(kernels_all[v], cache_types[t]);
    }
    return check_done();
}
