#include "engine/sampler.h"

#include "base/base.h"
#include "base/error.h"
#include "base/random.h"
#include "kernel/math.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MASS_ONE 0x1p40f        /* fixed point of a mass: 2^18 ids of mass 1 still fit 64 bits with room */
#define MASS_FLOOR (-28.0f)     /* exp of less is under 2^-40 */

int sample_check(const struct sample_params *params)
{
    if (params->temperature != 0 && !(params->temperature >= 1e-6f && params->temperature <= 100))
        return error_set(ERR_USAGE, "temperature must be 0, or from 0.000001 to 100");
    if (!(params->top_p > 0 && params->top_p <= 1))
        return error_set(ERR_USAGE, "top-p must be more than 0 and at most 1");
    return 0;
}

bool sample_can_pick(float logit)
{
    return logit <= FLT_MAX;
}

/* Top-p without top-k has to look beyond any fixed number of candidates. */
bool sample_needs_max(const struct sample_params *params)
{
    return params->temperature > 0 && params->top_p < 1 && !params->top_k;
}

static uint64_t mass_of(float logit, float max, float temperature)
{
    float x = (logit - max) / temperature;
    return x < MASS_FLOOR ? 0 : (uint64_t)(math_exp(x) * MASS_ONE);
}

/* -log(-log(u)) with u in (0, 1) from the top 23 bits: with 24 the largest would round to 1. */
static float gumbel(uint64_t random)
{
    float u = ((float)(random >> 41) + 0.5f) * 0x1p-23f;
    return -math_log(-math_log(u));
}

static float key_of(float logit, int32_t id, uint64_t random_key, const struct sample_params *params)
{
    if (params->temperature == 0)
        return logit;
    return logit / params->temperature + gumbel(random_u64(random_key, (uint64_t)id));
}

/* Larger logit first, then lower id. */
static int by_logit(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static bool beats(const struct candidate *a, const struct candidate *b)
{
    return a->key > b->key || (a->key == b->key && a->id < b->id);
}

/* A draw whose u is at most 1 - 2^-m has a Gumbel value under (m + 1) log 2, so most ids are seen to lose by counting
 * leading ones of the random number, before any logarithm. */
static bool may_win(float logit, float best_key, uint64_t random, float temperature)
{
    float needed = best_key - logit / temperature;
    uint64_t inverse = ~random;
    int ones = inverse ? __builtin_clzll(inverse) : 64;
    return needed <= (float)(ones + 2) * 0.6931472f;
}

/* Without cuts one candidate a slice is enough. */
static void collect_best(struct buffer *out, const float *slice, uint32_t n, int32_t first_id, uint64_t key, const struct sample_params *params)
{
    struct candidate best = { .id = -1, .key = -INFINITY };
    for (uint32_t i = 0; i < n; i++) {
        int32_t id = first_id + (int32_t)i;
        if (params->temperature == 0 ? slice[i] < best.key : !may_win(slice[i], best.key, random_u64(key, (uint64_t)id), params->temperature))
            continue;
        struct candidate c = { id, slice[i], key_of(slice[i], id, key, params) };
        if (best.id < 0 || beats(&c, &best))
            best = c;
    }
    if (best.id >= 0)
        buffer_add(out, &best, sizeof best);
}

static void add_candidate(struct buffer *out, const float *slice, uint32_t i, int32_t first_id, uint64_t key, const struct sample_params *params)
{
    int32_t id = first_id + (int32_t)i;
    struct candidate c = { id, slice[i], key_of(slice[i], id, key, params) };
    buffer_add(out, &c, sizeof c);
}

/* The k-th largest value of x, by bisection over the ordered integer form of floats: exact, no copy of the slice. */
static uint32_t ordered(float x)
{
    union { float f; uint32_t u; } v = { .f = x + 0.0f };       /* -0 is +0, as in comparisons */
    return v.u >> 31 ? ~v.u : v.u | 0x80000000u;
}

static uint32_t kth_largest(const float *x, uint32_t n, uint32_t k)
{
    uint32_t lo = 0, hi = UINT32_MAX;           /* the largest threshold with at least k values at or above it */
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2 + 1, count = 0;
        for (uint32_t i = 0; i < n; i++)
            count += ordered(x[i]) >= mid;
        if (count >= k)
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}

static void collect_top_k(struct buffer *out, const float *slice, uint32_t n, int32_t first_id, uint64_t key, const struct sample_params *params)
{
    uint32_t k = MIN(params->top_k, n), threshold = kth_largest(slice, n, k), taken = 0;
    for (uint32_t i = 0; i < n; i++)
        if (ordered(slice[i]) > threshold) {
            add_candidate(out, slice, i, first_id, key, params);
            taken++;
        }
    for (uint32_t i = 0; i < n && taken < k; i++)       /* ties at the threshold: the lower ids */
        if (ordered(slice[i]) == threshold) {
            add_candidate(out, slice, i, first_id, key, params);
            taken++;
        }
}

/* All ids but those whose masses, all together, are less than 1 - p of the whole, which is at least 1: none of them can be
 * in the nucleus. */
static void collect_nucleus(struct buffer *out, const float *slice, uint32_t n, int32_t first_id, float max, uint32_t n_vocab, uint64_t key,
                            const struct sample_params *params)
{
    float least = -math_log((float)n_vocab / MAX(1.0f - params->top_p, 1e-7f)) - 0.01f;
    for (uint32_t i = 0; i < n; i++)
        if ((slice[i] - max) / params->temperature >= least)
            add_candidate(out, slice, i, first_id, key, params);
}

void sample_collect(struct buffer *out, const float *slice, uint32_t n, int32_t first_id, float max, uint32_t position, uint32_t n_vocab,
                    const struct sample_params *params)
{
    uint64_t key = random_key(params->seed, params->choice, position);
    struct candidate_row row = { 0 };
    size_t at = out->size;
    row.is_broken = sample_needs_max(params) && !sample_can_pick(max);
    for (uint32_t i = 0; i < n; i++)
        row.is_broken |= !sample_can_pick(slice[i]);
    buffer_add(out, &row, sizeof row);
    if (n && !row.is_broken) {
        if (sample_needs_max(params)) {
            for (uint32_t i = 0; i < n; i++)
                row.mass += mass_of(slice[i], max, params->temperature);
            collect_nucleus(out, slice, n, first_id, max, n_vocab, key, params);
        } else if (params->temperature > 0 && params->top_k) {
            collect_top_k(out, slice, n, first_id, key, params);
        } else {
            collect_best(out, slice, n, first_id, key, params);
        }
    }
    if (out->failed)
        return;
    row.n_candidates = (uint32_t)((out->size - at - sizeof row) / sizeof(struct candidate));
    memcpy(out->bytes + at, &row, sizeof row);          /* rows follow each other without gaps */
}

int sample_pick(int32_t *id, struct candidate *candidates, size_t n, uint64_t mass, const struct sample_params *params)
{
    if (!n)
        return error_set(ERR_FAILED, "no token can be picked: a logit is not a number, or infinite");
    if (params->temperature > 0 && (params->top_k || params->top_p < 1)) {
        qsort(candidates, n, sizeof *candidates, by_logit);
        if (params->top_k && n > params->top_k)
            n = params->top_k;
    }
    if (params->temperature > 0 && params->top_p < 1) {
        float max = candidates[0].logit;
        uint64_t sum = 0;
        if (params->top_k)
            mass = 0;
        for (size_t i = 0; params->top_k && i < n; i++)
            mass += mass_of(candidates[i].logit, max, params->temperature);
        size_t kept = 0;
        while (kept < n && (kept == 0 || (double)sum < (double)params->top_p * (double)mass))
            sum += mass_of(candidates[kept++].logit, max, params->temperature);
        n = kept;
    }
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (beats(&candidates[i], &candidates[best]))
            best = i;
    *id = candidates[best].id;
    return 0;
}
