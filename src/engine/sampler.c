#include "engine/sampler.h"

#include "base/base.h"
#include "base/error.h"
#include "kernel/draw.h"
#include "kernel/mass.h"

#include <float.h>
#include <math.h>
#include <string.h>

int sample_check(const struct sample_params *params)
{
    if (params->temperature != 0 && !(params->temperature >= 1e-6f && params->temperature <= 100))
        return error_set(ERR_USAGE, "temperature must be 0, or from 0.000001 to 100");
    if (!(params->top_p > 0 && params->top_p <= 1))
        return error_set(ERR_USAGE, "top-p must be more than 0 and at most 1");
    if (!(params->min_p >= 0 && params->min_p <= 1))
        return error_set(ERR_USAGE, "min-p must be from 0 to 1");
    return 0;
}

int sample_check_penalties(const struct sample_penalties *p)
{
    if (p->repetition != 0 && !(p->repetition >= 0.01f && p->repetition <= 100))
        return error_set(ERR_USAGE, "the repetition penalty must be from 0.01 to 100");
    if (!(p->frequency >= -100 && p->frequency <= 100))
        return error_set(ERR_USAGE, "the frequency penalty must be from -100 to 100");
    if (!(p->presence >= -100 && p->presence <= 100))
        return error_set(ERR_USAGE, "the presence penalty must be from -100 to 100");
    return 0;
}

bool sample_can_pick(float logit)
{
    return logit <= FLT_MAX;
}

/* A list of the k largest has the row's maximum in it. */
static bool lists_largest(const struct sample_params *params)
{
    return params->top_k && params->top_k <= SAMPLE_MAX_LIST;
}

bool sample_needs_max(const struct sample_params *params)
{
    return params->temperature > 0 && (params->top_p < 1 || params->min_p > 0) && !lists_largest(params);
}

/* The least (logit - max) / t that min-p leaves. */
static float min_p_floor(const struct sample_params *params)
{
    return params->min_p > 0 ? math_log(params->min_p) : -INFINITY;
}

static float key_of(float logit, int32_t id, uint64_t random_key, const struct sample_params *params)
{
    if (params->temperature == 0)
        return logit;
    return logit / params->temperature + draw_gumbel(random_u64(random_key, (uint64_t)id));
}

static bool beats(const struct candidate *a, const struct candidate *b)
{
    return a->key > b->key || (a->key == b->key && a->id < b->id);
}

static struct candidate candidate_of(const struct sample_row *row, uint32_t i, uint64_t key)
{
    int32_t id = row->first_id + (int32_t)i;
    return (struct candidate){ id, row->logits[i], key_of(row->logits[i], id, key, row->params), row->raw[i] };
}

static void add_candidate(struct buffer *out, const struct sample_row *row, uint32_t i, uint64_t key)
{
    struct candidate c = candidate_of(row, i, key);
    buffer_add(out, &c, sizeof c);
}

/* ---- runs of ids ---- */
static uint32_t run_end(const struct sample_row *row, uint32_t first)
{
    return MIN(first + SAMPLE_RUN, row->n);
}

static float run_max(const struct sample_row *row, uint32_t first)
{
    return row->kernels->row_max(row->logits + first, run_end(row, first) - first);
}

static uint64_t mass_sum(const struct sample_row *row, const float *logits, float max, float temperature)
{
    uint64_t mass[SAMPLE_RUN], sum = 0;
    for (uint32_t first = 0; first < row->n; first += SAMPLE_RUN) {
        uint32_t n = run_end(row, first) - first;
        masses_with(row->kernels)(mass, logits + first, n, max, temperature);
        for (uint32_t i = 0; i < n; i++)
            sum += mass[i];
    }
    return sum;
}

/* ---- where nothing has to be cut at the leader one candidate a slice is enough ---- */
/* Any of the run could be picked with luck. */
static bool run_may_win(const struct sample_row *row, float max, float best_key)
{
    return !(row->is_cut && sample_ordered(max) < row->cut.threshold) && max / row->params->temperature + DRAW_MOST >= best_key;
}

static void find_best(struct candidate *best, const struct sample_row *row, uint32_t first, uint64_t key, uint32_t *n_ties)
{
    float t = row->params->temperature, least = min_p_floor(row->params), bound[SAMPLE_RUN];
    draw_bounds_with(row->kernels)(bound, row->logits + first, run_end(row, first) - first, key, (uint64_t)row->first_id + first, t);
    for (uint32_t i = first; i < run_end(row, first); i++) {
        if (row->is_cut && !sample_cut_keeps(&row->cut, row->logits[i], n_ties))
            continue;
        if (bound[i - first] < best->key || (least > -INFINITY && (row->logits[i] - row->max) / t < least))
            continue;
        struct candidate c = candidate_of(row, i, key);
        if (best->id < 0 || beats(&c, best))
            *best = c;
    }
}

static void collect_best(struct buffer *out, const struct sample_row *row, uint64_t key)
{
    struct candidate best = { .id = -1, .key = -INFINITY };
    uint32_t n_ties = 0;
    for (uint32_t first = 0; first < row->n; first += SAMPLE_RUN)
        if (run_may_win(row, run_max(row, first), best.key))
            find_best(&best, row, first, key, &n_ties);
    if (best.id >= 0)
        buffer_add(out, &best, sizeof best);
}

/* own_max: the slice's. */
static void collect_greedy(struct buffer *out, const struct sample_row *row, float own_max)
{
    uint32_t i = 0;
    while (i < row->n && row->logits[i] != own_max)
        i++;
    if (i < row->n)
        add_candidate(out, row, i, 0);
}

/* Larger logit first, then lower id. */
static bool before(const struct candidate *a, const struct candidate *b)
{
    return a->logit > b->logit || (a->logit == b->logit && a->id < b->id);
}

/* In a heap whose root is the last of all. */
static void sift(struct candidate *c, size_t i, size_t n)
{
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && before(&c[child], &c[child + 1]))
            child++;
        if (!before(&c[i], &c[child]))
            return;
        struct candidate moved = c[i];
        c[i] = c[child];
        c[child] = moved;
    }
}

static void make_heap(struct candidate *c, size_t n)
{
    for (size_t i = n / 2; i-- > 0;)
        sift(c, i, n);
}

/* Ids ascend, so one that only equals the last of the heap comes after it.  Keys are made of those alone that stay. */
static void collect_largest(struct buffer *out, const struct sample_row *row, uint32_t k, uint64_t key)
{
    k = MIN(k, row->n);
    buffer_reserve(out, k * sizeof(struct candidate));
    if (out->failed || !k)
        return;
    struct candidate *c = (struct candidate *)(void *)(out->bytes + out->size);
    for (uint32_t i = 0; i < k; i++)
        c[i] = (struct candidate){ .id = row->first_id + (int32_t)i, .logit = row->logits[i] };
    make_heap(c, k);
    for (uint32_t first = k; first < row->n; first += SAMPLE_RUN)
        for (uint32_t i = first; i < run_end(row, first) && (i > first || run_max(row, first) > c->logit); i++)
            if (row->logits[i] > c->logit) {
                *c = (struct candidate){ .id = row->first_id + (int32_t)i, .logit = row->logits[i] };
                sift(c, 0, k);
            }
    for (uint32_t i = 0; i < k; i++)
        c[i] = candidate_of(row, (uint32_t)(c[i].id - row->first_id), key);
    out->size += k * sizeof *c;
    out->bytes[out->size] = 0;
}

/* The nucleus is in the ids above this: those below have masses that are, all together, less than 1 - p of the whole, which is
 * at least 1, the maximum's own.  And what min-p drops need not be sent. */
static float nucleus_floor(const struct sample_row *row)
{
    float least = -math_log((float)row->n_vocab / MAX(1.0f - row->params->top_p, 1e-7f)) - 0.01f;
    return MAX(least, min_p_floor(row->params));
}

static bool lists_nucleus(const struct sample_params *params)
{
    return params->temperature > 0 && params->top_p < 1 && !params->top_k;
}

uint32_t sample_n_listed(const struct sample_row *row)
{
    const struct sample_params *p = row->params;
    uint32_t n = 0;
    if (p->temperature > 0 && p->top_k)
        return MIN(p->top_k, row->n_vocab);
    if (!lists_nucleus(p))
        return 0;
    float least = nucleus_floor(row);
    for (uint32_t first = 0; first < row->n && n <= SAMPLE_MAX_LIST; first += SAMPLE_RUN)
        for (uint32_t i = first; i < run_end(row, first); i++)
            n += (row->logits[i] - row->max) / p->temperature >= least;
    return n;
}

static void collect_nucleus(struct buffer *out, const struct sample_row *row, uint64_t key)
{
    float least = nucleus_floor(row), t = row->params->temperature;
    for (uint32_t first = 0; first < row->n; first += SAMPLE_RUN)
        for (uint32_t i = first; i < run_end(row, first) && (i > first || (run_max(row, first) - row->max) / t >= least); i++)
            if ((row->logits[i] - row->max) / t >= least)
                add_candidate(out, row, i, key);
}

static void collect_candidates(struct buffer *out, const struct sample_row *row, float own_max, struct candidate_row *found)
{
    const struct sample_params *p = row->params;
    uint64_t key = random_key(p->seed, p->choice, row->position);
    if (p->temperature == 0) {
        collect_greedy(out, row, own_max);
        found->is_cut = true;
    } else if (row->is_cut || (!p->top_k && p->top_p == 1)) {
        collect_best(out, row, key);
        found->is_cut = true;
    } else if (p->top_k) {
        collect_largest(out, row, p->top_k, key);
    } else {
        found->mass = mass_sum(row, row->logits, row->max, p->temperature);
        collect_nucleus(out, row, key);
    }
}

/* Before it a row is just as the model gave it, so the raw logits are the logits, at temperature 1. */
static void collect_logprobs(struct buffer *out, const struct sample_row *row, struct candidate_row *found)
{
    static const struct sample_params greedy = { .top_p = 1 };
    struct sample_row raw = *row;
    raw.logits = row->raw;
    raw.params = &greedy;
    found->raw_mass = mass_sum(row, row->raw, row->raw_max, 1);
    found->raw_max = row->raw_max;
    collect_largest(out, &raw, row->n_top, 0);
}

static bool is_broken(const struct sample_row *row, float own_max)
{
    bool broken = sample_needs_max(row->params) && !(row->max > -INFINITY && sample_can_pick(row->max));
    broken |= row->wants_logprobs && !(row->raw_max > -INFINITY && sample_can_pick(row->raw_max));
    return broken || !sample_can_pick(own_max);
}

/* What the leader would find in a list that is all there is. */
static void pick_of_list(struct buffer *out, size_t list_at, struct candidate_row *found, const struct sample_params *params)
{
    struct candidate picked, *list = (struct candidate *)(void *)(out->bytes + list_at);
    if (out->failed || sample_pick(&picked, list, (out->size - list_at) / sizeof *list, found, params) < 0)
        return;                         /* the leader will say so */
    found->is_cut = true;
    out->size = list_at;
    buffer_add(out, &picked, sizeof picked);
}

void sample_collect(struct buffer *out, const struct sample_row *row)
{
    float own_max = row->n ? row->kernels->row_max(row->logits, row->n) : -INFINITY;
    struct candidate_row found = { .is_broken = is_broken(row, own_max) };
    size_t at = out->size, list_at = at + sizeof found, n = 0;
    buffer_add(out, &found, sizeof found);
    if (!found.is_broken) {
        collect_candidates(out, row, own_max, &found);
        if (row->n == row->n_vocab && !found.is_cut)
            pick_of_list(out, list_at, &found, row->params);
        n = (out->size - list_at) / sizeof(struct candidate);
        if (row->wants_logprobs)
            collect_logprobs(out, row, &found);
    }
    if (out->failed)
        return;
    found.n_candidates = (uint32_t)n;
    found.n_top = (uint32_t)((out->size - list_at) / sizeof(struct candidate) - n);
    memcpy(out->bytes + at, &found, sizeof found);          /* rows follow each other without gaps */
}

/* ---- the leader ---- */
/* By a heap, since qsort() may take memory. */
static void sort_by_logit(struct candidate *c, size_t n)
{
    make_heap(c, n);
    for (size_t end = n; end-- > 1;) {
        struct candidate last = c[end];
        c[end] = c[0];
        c[0] = last;
        sift(c, 0, end);
    }
}

/* How many of the candidates, by falling logit, top-k, top-p and min-p leave: at least one. */
static size_t apply_cuts(const struct candidate *c, size_t n, uint64_t mass, const struct sample_params *p)
{
    float max = c[0].logit, least = min_p_floor(p);
    uint64_t sum = 0;
    size_t n_kept = 0;
    if (p->top_k) {
        n = MIN(n, p->top_k);
        mass = 0;
        for (size_t i = 0; i < n && p->top_p < 1; i++)
            mass += mass_of(c[i].logit, max, p->temperature);
    }
    for (; n_kept < n && (c[n_kept].logit - max) / p->temperature >= least; n_kept++) {
        if (p->top_p < 1 && n_kept && sample_is_nucleus(sum, mass, p->top_p))
            break;
        sum += p->top_p < 1 ? mass_of(c[n_kept].logit, max, p->temperature) : 0;
    }
    return n_kept;
}

int sample_pick(struct candidate *picked, struct candidate *candidates, size_t n, const struct candidate_row *all,
                const struct sample_params *params)
{
    if (n && !all->is_broken && !all->is_cut) {
        sort_by_logit(candidates, n);
        n = apply_cuts(candidates, n, all->mass, params);
    }
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (beats(&candidates[i], &candidates[best]))
            best = i;
    if (!n || all->is_broken || candidates[best].logit == -INFINITY)
        return error_set(ERR_FAILED, "no token can be picked: a logit is not a number, or infinite");
    *picked = candidates[best];
    return 0;
}

size_t sample_largest(struct candidate *candidates, size_t n_candidates, size_t n)
{
    sort_by_logit(candidates, n_candidates);
    return MIN(n, n_candidates);
}

float sample_logprob(float raw, const struct candidate_row *all)
{
    return raw - all->raw_max - math_log((float)((double)all->raw_mass * (1 / MASS_ONE)));
}
