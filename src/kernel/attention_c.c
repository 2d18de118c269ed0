#include "kernel/attention.h"

#include "base/base.h"
#include "kernel/math.h"

#include <math.h>

/* n values of dim d from a slot on (k), or of a slot from dim d on (v). */
static void read_k(float *to, const void *tile, uint32_t d, uint32_t slot, uint32_t n, uint32_t head_dim, enum dtype type)
{
    size_t at = (size_t)d * BLOCK_TOKENS + slot;
    if (type != DTYPE_Q8_0) {
        dequantize_row(to, (const char *)tile + dtype_bytes(type, at), type, n);
        return;
    }
    const uint16_t *scales = (const uint16_t *)((const char *)tile + kv_scales_at(head_dim, false, d));
    for (uint32_t j = 0; j < n; j++)
        to[j] = f16_to_f32(scales[slot + j]) * ((const int8_t *)tile)[at + j];
}

static void read_v(float *to, const void *tile, uint32_t slot, uint32_t head_dim, enum dtype type)
{
    size_t at = (size_t)head_dim * (BLOCK_TOKENS + slot);
    if (type != DTYPE_Q8_0) {
        dequantize_row(to, (const char *)tile + dtype_bytes(type, at), type, head_dim);
        return;
    }
    for (uint32_t d = 0; d < head_dim; d++) {
        const uint16_t *scales = (const uint16_t *)((const char *)tile + kv_scales_at(head_dim, true, d));
        to[d] = f16_to_f32(scales[slot]) * ((const int8_t *)tile)[at + d];
    }
}

/* A span for one query: its tiles, and the keys from .. to - 1 that the query sees, counted from the first tile. */
struct span {
    const void *const *tiles;
    uint32_t from, to;
};

/* score[j] for the keys of a span */
static void span_scores(float *score, const struct span *span, const float *q, const struct attention_args *args, enum dtype type)
{
    for (uint32_t j0 = span->from, n; j0 < span->to; j0 += n) {         /* n keys of one tile */
        float acc[BLOCK_TOKENS] = { 0 }, k[BLOCK_TOKENS];
        n = MIN(span->to - j0, BLOCK_TOKENS - j0 % BLOCK_TOKENS);
        for (uint32_t d = 0; d < args->head_dim; d++) {
            read_k(k, span->tiles[j0 / BLOCK_TOKENS], d, j0 % BLOCK_TOKENS, n, args->head_dim, type);
            for (uint32_t j = 0; j < n; j++)
                acc[j] = fmaf(q[d], k[j], acc[j]);
        }
        for (uint32_t j = 0; j < n; j++) {
            float s = acc[j] * args->scale;
            score[j0 + j] = args->softcap != 0.0f ? args->softcap * math_tanh(s / args->softcap) : s;
        }
    }
}

/* m and l; the scores become p. */
static void span_softmax(struct attention_partial *part, float *score, const struct span *span)
{
    float lane[16] = { 0 }, m = -INFINITY;

    for (uint32_t j = span->from; j < span->to; j++)
        m = MAX(m, score[j]);
    for (uint32_t j = span->from; j < span->to; j++) {
        score[j] = math_exp(score[j] - m);
        lane[j % 16] += score[j];
    }
    for (uint32_t gap = 8; gap >= 1; gap /= 2)
        for (uint32_t i = 0; i < gap; i++)
            lane[i] += lane[i + gap];
    part->m = m;
    part->l = lane[0];
}

static void span_output(float *o, const float *p, const struct span *span, uint32_t head_dim, enum dtype type)
{
    float v[ATTENTION_MAX_DIM];

    for (uint32_t d = 0; d < head_dim; d++)
        o[d] = 0.0f;
    for (uint32_t j = span->from; j < span->to; j++) {
        read_v(v, span->tiles[j / BLOCK_TOKENS], j % BLOCK_TOKENS, head_dim, type);
        for (uint32_t d = 0; d < head_dim; d++)
            o[d] = fmaf(p[j], v[d], o[d]);
    }
}

/* a takes in b, which is newer. */
static void partial_merge(struct attention_partial *a, const struct attention_partial *b, uint32_t head_dim)
{
    float m = MAX(a->m, b->m), ca = math_exp(a->m - m), cb = math_exp(b->m - m);

    a->m = m;
    a->l = fmaf(b->l, cb, a->l * ca);
    for (uint32_t d = 0; d < head_dim; d++)
        a->o[d] = fmaf(b->o[d], cb, a->o[d] * ca);
}

static void write_result(const struct attention_args *args, uint32_t query, const struct attention_partial *part)
{
    for (uint32_t d = 0; d < args->head_dim; d++)
        args->out[query][d] = part->o[d] * (1.0f / part->l);
}

static void query_attention(const struct attention_args *args, uint32_t query, enum dtype type)
{
    struct attention_partial parts[ATTENTION_MAX_LEVELS];
    struct partial_stack stack = { .depth = 0 };
    float score[SPAN_TOKENS];
    uint32_t first_key = attention_first_key(args, query), n_keys = args->n_keys[query], head_dim = args->head_dim;
    struct spans spans = attention_spans(args, first_key, n_keys);

    assert(first_key < n_keys && n_keys <= ATTENTION_MAX_KEYS && head_dim <= ATTENTION_MAX_DIM);
    for (uint32_t i = 0; i < ATTENTION_MAX_LEVELS; i++)
        stack.part[i] = &parts[i];
    for (uint32_t s = spans.begin; s < spans.end; s++) {
        uint32_t start = s * SPAN_TOKENS;
        struct attention_partial *part = &parts[stack.depth];
        struct span span = {
            .tiles = args->tiles + start / BLOCK_TOKENS,
            .from = first_key > start ? first_key - start : 0,
            .to = MIN(n_keys - start, SPAN_TOKENS),
        };
        span_scores(score, &span, args->q[query], args, type);
        span_softmax(part, score, &span);
        span_output(part->o, score, &span, head_dim, type);
        stack_push(&stack, s, head_dim, partial_merge);
    }
    stack_merge_all(&stack, head_dim, partial_merge);
    if (!args->partials)
        write_result(args, query, parts);
    else if (stack.depth == 1)
        args->partials[query] = parts[0];
}

static void attention(const struct attention_args *args, enum dtype type)
{
    for (uint32_t i = 0; i < args->n_queries; i++)
        query_attention(args, i, type);
}

void attention_f16_c(const struct attention_args *args) { attention(args, DTYPE_F16); }
void attention_bf16_c(const struct attention_args *args) { attention(args, DTYPE_BF16); }
void attention_f32_c(const struct attention_args *args) { attention(args, DTYPE_F32); }
void attention_q8_0_c(const struct attention_args *args) { attention(args, DTYPE_Q8_0); }

void attention_merge_c(const struct attention_args *args)
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
        write_result(args, i, stack.part[0]);
    }
}

/* Element d of k goes to row d of the transposed half, of v to row `slot` of the other. */
#define KV_STORE(name, element, from_f32)                                                                   \
    void name(void *tile, uint32_t slot, const float *k, const float *v, uint32_t head_dim)                 \
    {                                                                                                       \
        element *tile_k = tile, *tile_v = tile_k + (size_t)head_dim * BLOCK_TOKENS;                         \
        for (uint32_t d = 0; d < head_dim; d++) {                                                           \
            tile_k[(size_t)d * BLOCK_TOKENS + slot] = from_f32(k[d]);                                       \
            tile_v[(size_t)slot * head_dim + d] = from_f32(v[d]);                                           \
        }                                                                                                   \
    }
KV_STORE(kv_store_f16_c, uint16_t, f32_to_f16)
KV_STORE(kv_store_bf16_c, uint16_t, f32_to_bf16)
KV_STORE(kv_store_f32_c, float, )

/* 32 values as int8, and their scale in f16. */
static uint16_t quantize_32(int8_t q[KV_BLOCK], const float *x)
{
    float amax = 0.0f, inverse;
    bool finite = true;
    uint16_t d;

    for (uint32_t i = 0; i < KV_BLOCK; i++) {
        amax = MAX(amax, fabsf(x[i]));
        finite = finite && isfinite(x[i]);
    }
    d = f32_to_f16(finite ? amax / 127.0f : NAN);
    inverse = 1.0f / f16_to_f32(d);
    for (uint32_t i = 0; i < KV_BLOCK; i++)
        q[i] = finite && d ? (int8_t)MAX(-127.0f, MIN(127.0f, rintf(x[i] * inverse))) : 0;
    return d;
}

void kv_store_q8_0_c(void *tile, uint32_t slot, const float *k, const float *v, uint32_t head_dim)
{
    kv_store_blocks(tile, slot, k, v, head_dim, quantize_32);
}
