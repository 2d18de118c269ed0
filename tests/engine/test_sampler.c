/* test_sampler.c: the pick does not depend on how the vocabulary is cut, and follows the distribution that it should. */
#include "engine/sampler.h"
#include "base/error.h"
#include "base/random.h"
#include "kernel/mass.h"
#include "tests/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 301, MAX_SLICES = 8, DRAWS = 20000 };

/* Slices that the vocabulary is cut into, which collect in the order of `first` on, and whether they find the cut before. */
struct split {
    uint32_t n, cut[MAX_SLICES + 1], first;
    bool finds_cut;
};
static const struct split whole = { 1, { 0, VOCAB }, 0, false };

/* One row, as the ranks and the leader have it. */
struct outcome {
    int err;
    struct candidate picked;
    struct candidate_row all;
    struct candidate top[MAX_SLICES * SAMPLE_MAX_TOP];
};

static void take_slice(struct outcome *out, struct buffer *candidates, const struct sample_row *row)
{
    struct buffer found = { 0 };
    struct candidate_row head;
    sample_collect(&found, row);
    memcpy(&head, found.bytes, sizeof head);
    check_int(found.size, sizeof head + (head.n_candidates + head.n_top) * sizeof(struct candidate));
    const char *at = found.bytes + sizeof head;
    buffer_add(candidates, at, head.n_candidates * sizeof(struct candidate));
    memcpy(out->top + out->all.n_top, at + head.n_candidates * sizeof(struct candidate), head.n_top * sizeof(struct candidate));
    out->all.n_candidates += head.n_candidates;
    out->all.n_top += head.n_top;
    out->all.mass += head.mass;
    out->all.raw_mass += head.raw_mass;
    out->all.raw_max = head.raw_max;
    out->all.is_broken |= head.is_broken;
    out->all.is_cut |= head.is_cut;
    buffer_release(&found);
}

/* A cut is the row's: of a slice's ties those of the slices before it come first. */
static struct sample_cut cut_of_slice(const struct sample_row *row, const struct sample_cut *cut, uint32_t begin)
{
    uint32_t n_before = 0;
    for (uint32_t i = 0; i < begin; i++)
        n_before += sample_ordered(row->logits[i]) == cut->threshold;
    return (struct sample_cut){ cut->threshold, cut->n_ties - (n_before < cut->n_ties ? n_before : cut->n_ties) };
}

static struct outcome find(struct sample_row row, const struct split *split)
{
    struct outcome out = { 0 };
    struct buffer candidates = { 0 };
    struct sample_bin bins[SAMPLE_BINS];
    float scratch[VOCAB];
    const float *logits = row.logits, *raw = row.raw;
    row.kernels = kernels_all[0];
    row.n = row.n_vocab = VOCAB;
    row.max = row.raw_max = -INFINITY;
    for (uint32_t i = 0; i < VOCAB; i++) {
        row.max = fmaxf(row.max, logits[i]);
        row.raw_max = fmaxf(row.raw_max, raw[i]);
    }
    if (split->finds_cut && row.params->temperature > 0)
        check_int(sample_find_cut(&row, NULL, bins, scratch), 0);
    for (uint32_t s = 0; s < split->n; s++) {
        uint32_t at = (split->first + s) % split->n, begin = split->cut[at];
        struct sample_row slice = row;
        slice.cut = cut_of_slice(&row, &row.cut, begin);
        slice.logits = logits + begin;
        slice.raw = raw + begin;
        slice.n = split->cut[at + 1] - begin;
        slice.first_id = (int32_t)begin;
        take_slice(&out, &candidates, &slice);
    }
    out.err = sample_pick(&out.picked, (struct candidate *)(void *)candidates.bytes, out.all.n_candidates, &out.all, row.params);
    buffer_release(&candidates);
    return out;
}

/* ERR_... or the id. */
static int pick(const float *logits, const struct split *split, uint32_t position, const struct sample_params *params)
{
    struct outcome out = find((struct sample_row){ .raw = logits, .logits = logits, .position = position, .params = params }, split);
    return out.err < 0 ? out.err : out.picked.id;
}

static int pick_whole(const float *logits, uint32_t position, const struct sample_params *params)
{
    return pick(logits, &whole, position, params);
}

/* Rounded to quarters, so that ties abound, also among the largest. */
static void random_logits(float *logits, uint64_t key, float scale)
{
    for (uint32_t i = 0; i < VOCAB; i++) {
        uint64_t r = random_u64(key, i);
        float sum = (float)(r & 0xffff) + (float)(r >> 16 & 0xffff) + (float)(r >> 32 & 0xffff) + (float)(r >> 48);
        logits[i] = rintf((sum / 65536.0f - 2.0f) * scale * 4.0f) / 4.0f;
    }
}

static struct split random_split(uint64_t key)
{
    struct split s = { .n = 1 + (uint32_t)(random_u64(key, 0) % MAX_SLICES), .finds_cut = random_u64(key, 77) & 1 };
    s.first = (uint32_t)(random_u64(key, 78) % s.n);
    s.cut[s.n] = VOCAB;
    for (uint32_t i = 1; i < s.n; i++) {
        uint32_t at = (uint32_t)(random_u64(key, i) % (VOCAB + 1)), k = i;
        for (; k > 1 && s.cut[k - 1] > at; k--)     /* in ascending order; two may be equal: a rank with no ids */
            s.cut[k] = s.cut[k - 1];
        s.cut[k] = at;
    }
    return s;
}

static const struct { const char *name; struct sample_params params; } samplers[] = {
    { "greedy",                    { .temperature = 0, .top_p = 1 } },
    { "greedy with cuts",          { .temperature = 0, .top_p = 0.5f, .top_k = 3 } },
    { "temperature",               { .temperature = 0.8f, .top_p = 1 } },
    { "low temperature",           { .temperature = 0.05f, .top_p = 1 } },
    { "high temperature",          { .temperature = 30, .top_p = 1 } },
    { "top-k 1",                   { .temperature = 1, .top_p = 1, .top_k = 1 } },
    { "top-k",                     { .temperature = 1, .top_p = 1, .top_k = 20 } },
    { "top-k of all and more",     { .temperature = 1, .top_p = 1, .top_k = 5000 } },
    { "top-p",                     { .temperature = 1, .top_p = 0.9f } },
    { "top-p, hot",                { .temperature = 5, .top_p = 0.5f } },
    { "top-p of next to nothing",  { .temperature = 1, .top_p = 1e-6f } },
    { "top-p of next to all",      { .temperature = 1, .top_p = 0.999999f } },
    { "top-k and top-p",           { .temperature = 1.2f, .top_p = 0.7f, .top_k = 40 } },
    { "min-p",                     { .temperature = 1.5f, .top_p = 1, .min_p = 0.1f } },
    { "min-p of the largest only", { .temperature = 1, .top_p = 1, .min_p = 1 } },
    { "top-p and min-p",           { .temperature = 2, .top_p = 0.95f, .min_p = 0.05f } },
    { "top-k, top-p and min-p",    { .temperature = 2, .top_p = 0.9f, .top_k = 30, .min_p = 0.02f } },
    { "top-k of many and min-p",   { .temperature = 2, .top_p = 0.9f, .top_k = 2000, .min_p = 0.02f } },
};

static void test_splits(void)
{
    float logits[VOCAB];
    for (size_t i = 0; i < COUNT_OF(samplers); i++) {
        check_begin("%s: the same pick for every split, from lists and with the cut found before", samplers[i].name);
        for (uint64_t seed = 0; seed < 300; seed++) {
            struct sample_params params = samplers[i].params;
            params.seed = seed * 77;
            params.choice = seed % 3;
            random_logits(logits, seed, 4);
            int want = pick_whole(logits, (uint32_t)seed, &params);
            check(want >= 0 && want < VOCAB);
            for (uint64_t i_split = 0; i_split < 8; i_split++) {
                struct split split = random_split(seed * 100 + i_split);
                if (!check_int(pick(logits, &split, (uint32_t)seed, &params), want))
                    printf("    seed %u, %u slices%s\n", (unsigned)seed, split.n, split.finds_cut ? ", cut before" : "");
            }
        }
    }
}

static int32_t largest(const float *logits)
{
    int32_t best = 0;
    for (int32_t i = 1; i < VOCAB; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

static void test_greedy(void)
{
    float logits[VOCAB];
    check_begin("NM-06: greedy: the largest, of equal ones the lowest id, whatever the seed");
    for (uint64_t seed = 0; seed < 500; seed++) {
        random_logits(logits, seed, 4);
        check_int(pick_whole(logits, 3, &(struct sample_params){ .top_p = 1, .seed = seed }), largest(logits));
    }
    check_begin("NM-06: greedy: all equal, -Inf beside, negative zero");
    for (uint32_t i = 0; i < VOCAB; i++)
        logits[i] = -7;
    check_int(pick_whole(logits, 0, &(struct sample_params){ .top_p = 1 }), 0);
    logits[0] = -INFINITY;
    check_int(pick_whole(logits, 0, &(struct sample_params){ .top_p = 1 }), 1);
    for (uint32_t i = 0; i < VOCAB; i++)
        logits[i] = i == 5 ? -0.0f : i == 9 ? 0.0f : -1;
    check_int(pick_whole(logits, 0, &(struct sample_params){ .top_p = 1 }), 5);
    check_begin("top-k: negative zero is no less than zero, in one slice and in two");
    const struct sample_params first = { .temperature = 1, .top_k = 1, .top_p = 1 };
    check_int(pick_whole(logits, 0, &first), 5);
    check_int(pick(logits, &(struct split){ 2, { 0, 7, VOCAB }, 0, false }, 0, &first), 5);
    check_begin("top-k 1 with a temperature is greedy");
    for (uint64_t seed = 0; seed < 100; seed++) {
        random_logits(logits, seed, 4);
        check_int(pick_whole(logits, 3, &(struct sample_params){ .temperature = 1, .top_k = 1, .top_p = 1, .seed = seed }), largest(logits));
    }
}

/* ---- the distribution ---- */
/* What the pick should be by: softmax over the ids that the cuts leave, computed plainly in double. */
static void expected(double *p, const float *logits, const struct sample_params *params)
{
    int32_t order[VOCAB];
    double sum = 0, kept_sum = 0, before = 0, max = -INFINITY;
    uint32_t n = VOCAB;
    for (int32_t i = 0; i < VOCAB; i++) {
        int32_t k = i;
        for (; k > 0 && logits[order[k - 1]] < logits[i]; k--)      /* stable: of equal ones the lower id first */
            order[k] = order[k - 1];
        order[k] = i;
        max = fmax(max, logits[i]);
        p[i] = 0;
    }
    if (params->top_k && params->top_k < n)
        n = params->top_k;
    for (uint32_t i = 0; i < n; i++)
        sum += exp((logits[order[i]] - max) / params->temperature);
    for (uint32_t i = 0; i < n && (i == 0 || before < (double)params->top_p * sum || params->top_p == 1); i++) {
        if (exp((logits[order[i]] - max) / params->temperature) < (double)params->min_p)
            break;
        p[order[i]] = exp((logits[order[i]] - max) / params->temperature);
        before += p[order[i]];
        kept_sum += p[order[i]];
    }
    for (uint32_t i = 0; i < VOCAB; i++)
        p[i] /= kept_sum;
}

static void test_frequencies(void)
{
    static const size_t which[] = { 2, 4, 6, 8, 9, 12, 13, 15, 16 };
    float logits[VOCAB];
    double p[VOCAB];
    random_logits(logits, 5, 6);
    for (size_t w = 0; w < COUNT_OF(which); w++) {
        struct sample_params params = samplers[which[w]].params;
        uint32_t n_seen[VOCAB] = { 0 }, n_outside = 0, n_never = 0;
        double worst = 0;
        check_begin("%s: 20000 draws are within 4 sigma of the softmax", samplers[which[w]].name);
        params.seed = 11;
        expected(p, logits, &params);
        for (uint32_t draw = 0; draw < DRAWS; draw++) {
            int id = pick_whole(logits, draw, &params);
            if (check(id >= 0))
                n_seen[id]++;
        }
        for (uint32_t i = 0; i < VOCAB; i++) {
            double mean = p[i] * DRAWS, sigma = sqrt(mean * (1 - p[i]));
            n_outside += p[i] == 0 && n_seen[i];
            n_never += mean > 20 && !n_seen[i];
            if (mean >= 10)
                worst = fmax(worst, fabs(n_seen[i] - mean) / sigma);
        }
        check_int(n_outside, 0);
        check_int(n_never, 0);
        if (!check(worst < 4))
            printf("    worst: %.2f sigma\n", worst);
    }
}

/* Four ids of 1/2, 1/4, 1/8, 1/16 and the rest: the nucleus of p is the smallest set that reaches it. */
static void test_nucleus(void)
{
    static const struct { float p; uint32_t want; } rows[] = { { 0.3f, 1 }, { 0.49f, 1 }, { 0.51f, 2 }, { 0.7f, 2 }, { 0.76f, 3 }, { 0.86f, 3 }, { 0.9f, 4 }, { 0.93f, 4 } };
    float logits[VOCAB];
    for (uint32_t i = 0; i < VOCAB; i++)
        logits[i] = -1e4f;
    for (uint32_t i = 0; i < 4; i++)
        logits[100 - 10 * i] = -(float)(i + 1) * 0.69314718f;
    logits[200] = -4 * 0.69314718f - 0.001f;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        bool seen[VOCAB] = { false };
        uint32_t n = 0;
        check_begin("top-p %.2f keeps %u ids", (double)rows[i].p, rows[i].want);
        for (uint32_t draw = 0; draw < 3000; draw++) {
            int id = pick_whole(logits, draw, &(struct sample_params){ .temperature = 1, .top_p = rows[i].p, .seed = 3 });
            if (check(id >= 0) && !seen[id])
                seen[id] = ++n;
        }
        check_int(n, rows[i].want);
        for (uint32_t k = 0; k < rows[i].want; k++)
            check(seen[100 - 10 * k]);
    }
}

/* One id of mass 1 and 300 of so little that each might be left out, but not all: the nucleus needs 88 of them. */
static void test_wide_nucleus(void)
{
    const float p = 0.9f;
    float logits[VOCAB] = { 0 };
    struct sample_params params = { .temperature = 1, .top_p = p, .seed = 4 };
    double want[VOCAB];
    uint32_t n_small = 0, n_wanted = 0;
    check_begin("top-p: many small ones together count");
    for (uint32_t i = 1; i < VOCAB; i++)
        logits[i] = -logf(VOCAB / (1 - p)) + 0.5f;
    expected(want, logits, &params);
    for (uint32_t i = 1; i < VOCAB; i++)
        n_wanted += want[i] > 0;
    check(n_wanted > 80 && n_wanted < 100);
    for (uint32_t draw = 0; draw < DRAWS; draw++) {
        int id = pick_whole(logits, draw, &params);
        n_small += id > 0;
        check(id >= 0 && id <= (int)n_wanted + 1);      /* of equal ones the lower ids; the sum may round past one */
    }
    double mean = DRAWS * (1 - want[0]);
    check(fabs(n_small - mean) < 4 * sqrt(mean));
}

/* ---- keys ---- */
static void test_keys(void)
{
    float logits[VOCAB] = { 0 };
    struct sample_params params = { .temperature = 1, .top_p = 1, .seed = 1 };
    uint32_t n_equal[4] = { 0 };
    check_begin("NM-05: seed, choice and position each give another draw; the same three give the same");
    for (uint32_t i = 0; i < 1000; i++) {
        struct sample_params other_seed = params, other_choice = params;
        other_seed.seed = 2;
        other_choice.choice = 1;
        int id = pick_whole(logits, i, &params);
        n_equal[0] += id == pick_whole(logits, i, &params);
        n_equal[1] += id == pick_whole(logits, i, &other_seed);
        n_equal[2] += id == pick_whole(logits, i, &other_choice);
        n_equal[3] += id == pick_whole(logits, i + 1, &params);
    }
    check_int(n_equal[0], 1000);
    for (uint32_t i = 1; i < 4; i++)
        check(n_equal[i] < 20);         /* by chance: 1000 / 301 */
}

static void test_broken_logits(void)
{
    float logits[VOCAB];
    static const uint32_t places[] = { 0, 150, VOCAB - 1 };
    static const float broken[] = { NAN, INFINITY };
    static const struct split thirds = { 3, { 0, 100, 200, VOCAB }, 0, false };
    for (size_t i = 0; i < COUNT_OF(samplers); i++)
        for (size_t k = 0; k < 2 * COUNT_OF(places); k++) {
            uint32_t place = places[k / 2];
            check_begin("NM-02: %s: %g at %u is an error", samplers[i].name, (double)broken[k % 2], place);
            random_logits(logits, 1, 4);
            logits[place] = broken[k % 2];
            check_int(pick_whole(logits, 0, &samplers[i].params), ERR_FAILED);
            check_int(pick(logits, &thirds, 0, &samplers[i].params), ERR_FAILED);
        }
    for (size_t i = 0; i < COUNT_OF(samplers); i++) {
        check_begin("NM-02: %s: -Inf is never picked", samplers[i].name);
        for (uint32_t k = 0; k < VOCAB; k++)
            logits[k] = k == 77 || k == 78 ? 1.0f : -INFINITY;
        for (uint32_t position = 0; position < 50; position++) {
            int id = pick_whole(logits, position, &samplers[i].params);
            check(id == 77 || id == 78);
        }
        for (size_t k = 0; k < COUNT_OF(places); k++) {
            random_logits(logits, 1, 4);
            logits[places[k]] = -INFINITY;
            for (uint32_t position = 0; position < 50; position++) {
                int id = pick(logits, &thirds, position, &samplers[i].params);
                check(id >= 0 && id != (int)places[k]);
            }
        }
    }
}

/* ---- masses ---- */
static void test_masses(void)
{
    float logits[VOCAB];
    uint64_t n_wrong = 0;
    check_begin("a mass is exp, and not more");
    for (uint32_t i = 0; i < VOCAB; i++)
        logits[i] = -(float)i / 10;
    for (uint32_t i = 0; i < VOCAB; i++) {
        double exact = exp((double)(logits[i] / 0.7f)) * MASS_ONE, mass = (double)mass_of(logits[i], 0, 0.7f);
        n_wrong += mass > exact * (1 + 1e-9) || mass < exact * (1 - 1e-9) - 1.5;
    }
    check_int(n_wrong, 0);
    check(mass_of(2.5f, 2.5f, 0.3f) == (uint64_t)MASS_ONE);
    check(mass_of(-INFINITY, 0, 1) == 0 && mass_of(-1e30f, 0, 1e-6f) == 0 && mass_of(NAN, 0, 1) == 0);
}

/* ---- log-probabilities ---- */
/* By falling logit, ties to the lower id. */
static void sort_ids(int32_t *order, const float *logits)
{
    for (int32_t i = 0; i < VOCAB; i++) {
        int32_t k = i;
        for (; k > 0 && logits[order[k - 1]] < logits[i]; k--)
            order[k] = order[k - 1];
        order[k] = i;
    }
}

static void check_logprobs(struct outcome *out, const float *raw, uint32_t n_top)
{
    int32_t order[VOCAB];
    double sum = 0;
    sort_ids(order, raw);
    for (uint32_t i = 0; i < VOCAB; i++)
        sum += exp((double)raw[i] - (double)raw[order[0]]);
    check(fabs((double)sample_logprob(out->picked.raw, &out->all) - ((double)raw[out->picked.id] - (double)raw[order[0]] - log(sum))) < 2e-6 * (10 + log(sum)));
    check_int(sample_largest(out->top, out->all.n_top, n_top), n_top);
    for (uint32_t i = 0; i < n_top; i++) {
        check_int(out->top[i].id, order[i]);
        check(out->top[i].raw == raw[order[i]] && sample_logprob(out->top[i].raw, &out->all) <= 0);
    }
}

/* Edits change the pick, and no logprob; neither does anything else that sampling does. */
static void test_logprobs(void)
{
    static const uint32_t n_tops[] = { 0, 1, 5, 20, SAMPLE_MAX_TOP };
    float raw[VOCAB], edited[VOCAB];
    for (size_t i = 0; i < COUNT_OF(samplers); i++) {
        check_begin("%s: logprobs are those of raw logits, the same bits for every split", samplers[i].name);
        for (uint64_t seed = 0; seed < 20; seed++) {
            uint32_t n_top = n_tops[seed % COUNT_OF(n_tops)];
            random_logits(raw, seed, 4);
            memcpy(edited, raw, sizeof edited);
            for (uint32_t k = 0; k < VOCAB; k += 3)
                edited[k] = k % 2 ? -INFINITY : raw[k] + 2;
            const struct sample_row row = { .raw = raw, .logits = edited, .wants_logprobs = true, .n_top = n_top, .params = &samplers[i].params };
            struct outcome want = find(row, &whole);
            if (!check_int(want.err, 0))
                continue;
            check(isfinite(edited[want.picked.id]));
            check_logprobs(&want, raw, n_top);
            for (uint64_t i_split = 0; i_split < 5; i_split++) {
                struct split split = random_split(seed * 50 + i_split);
                struct outcome got = find(row, &split);
                float logprob = sample_logprob(got.picked.raw, &got.all), want_logprob = sample_logprob(want.picked.raw, &want.all);
                check_int(got.picked.id, want.picked.id);
                check_bytes("the logprob", &logprob, &want_logprob, sizeof logprob);
                check_logprobs(&got, raw, n_top);
            }
        }
    }
    check_begin("the logprob of a certain token is 0, not -0; of others it is what is left");
    for (uint32_t i = 0; i < VOCAB; i++)
        raw[i] = i == 9 ? 50 : i == 10 ? -INFINITY : -50;
    struct outcome out = find((struct sample_row){ .raw = raw, .logits = raw, .wants_logprobs = true, .n_top = SAMPLE_MAX_TOP,
                                                   .params = &samplers[0].params }, &whole);
    float certain = sample_logprob(out.picked.raw, &out.all);
    check(certain == 0 && !signbit(certain));
    check_int(sample_largest(out.top, out.all.n_top, 2), 2);
    check(out.top[1].id == 0 && sample_logprob(out.top[1].raw, &out.all) == -100);
    check(sample_logprob(raw[10], &out.all) == -INFINITY);
}

/* Every id is as likely: the nucleus of 0.99 has nearly all, and lists would be as long. */
static void test_flat(void)
{
    float logits[VOCAB];
    static const struct split halves = { 2, { 0, 150, VOCAB }, 1, true };
    check_begin("a flat row, cut before: a candidate a slice, and the pick that lists give");
    for (uint32_t i = 0; i < VOCAB; i++)
        logits[i] = -3;
    for (uint32_t position = 0; position < 500; position++) {
        const struct sample_params params = { .temperature = 1, .top_p = 0.99f, .seed = 5 };
        struct outcome cut = find((struct sample_row){ .raw = logits, .logits = logits, .position = position, .params = &params }, &halves);
        check_int(cut.all.n_candidates, 2);
        check(cut.picked.id < 298);         /* 0.99 * 301 = 297.99 */
        check_int(cut.picked.id, pick_whole(logits, position, &params));
    }
}

static void test_nothing_to_pick(void)
{
    float logits[VOCAB];
    for (uint32_t i = 0; i < VOCAB; i++)
        logits[i] = -INFINITY;
    for (size_t i = 0; i < COUNT_OF(samplers); i++) {
        check_begin("%s: a row of which all is banned is an error", samplers[i].name);
        check_int(pick_whole(logits, 0, &samplers[i].params), ERR_FAILED);
    }
}

static void test_check(void)
{
    static const struct { const char *name; struct sample_params params; int want; } rows[] = {
        { "greedy", { .top_p = 1 }, 0 },
        { "hottest", { .temperature = 100, .top_p = 1 }, 0 },
        { "too hot", { .temperature = 100.1f, .top_p = 1 }, ERR_USAGE },
        { "negative", { .temperature = -1, .top_p = 1 }, ERR_USAGE },
        { "temperature NaN", { .temperature = NAN, .top_p = 1 }, ERR_USAGE },
        { "top-p 0", { .temperature = 1 }, ERR_USAGE },
        { "top-p above 1", { .temperature = 1, .top_p = 1.01f }, ERR_USAGE },
        { "top-p NaN", { .temperature = 1, .top_p = NAN }, ERR_USAGE },
        { "top-p tiny", { .temperature = 1, .top_p = 1e-9f }, 0 },
        { "min-p 1", { .top_p = 1, .min_p = 1 }, 0 },
        { "min-p above 1", { .top_p = 1, .min_p = 1.01f }, ERR_USAGE },
        { "min-p negative", { .top_p = 1, .min_p = -0.1f }, ERR_USAGE },
        { "min-p NaN", { .top_p = 1, .min_p = NAN }, ERR_USAGE },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        check_begin("sample_check: %s", rows[i].name);
        check_int(sample_check(&rows[i].params), rows[i].want);
    }
}

int main(void)
{
    test_check();
    test_splits();
    test_greedy();
    test_frequencies();
    test_nucleus();
    test_wide_nucleus();
    test_keys();
    test_broken_logits();
    test_nothing_to_pick();
    test_masses();
    test_logprobs();
    test_flat();
    return check_done();
}
