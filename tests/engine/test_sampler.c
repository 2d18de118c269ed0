/* test_sampler.c: the pick does not depend on how the vocabulary is cut, and follows the distribution that it should. */
#include "engine/sampler.h"
#include "base/error.h"
#include "base/random.h"
#include "tests/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 301, MAX_SLICES = 8, DRAWS = 20000 };

/* Picks as the ranks and the leader do: each slice [cut[i], cut[i+1]) collects, all candidates come together in the order of
 * `first_slice` on.  ERR_... or the id. */
static int pick(const float *logits, const uint32_t *cut, uint32_t n_slices, uint32_t first_slice, uint32_t position, const struct sample_params *params)
{
    struct buffer out = { 0 }, all = { 0 };
    float max = -INFINITY;
    uint64_t mass = 0;
    int32_t id = -1;
    int err = 0;
    uint32_t has_nan = 0;
    for (uint32_t i = 0; i < VOCAB; i++)
        max = fmaxf(max, logits[i]);
    for (uint32_t s = 0; s < n_slices; s++) {
        uint32_t at = (first_slice + s) % n_slices;
        struct candidate_row row;
        out.size = 0;
        sample_collect(&out, logits + cut[at], cut[at + 1] - cut[at], (int32_t)cut[at], max, position, VOCAB, params);
        if (out.failed || out.size < sizeof row)
            return ERR_NO_MEMORY;
        memcpy(&row, out.bytes, sizeof row);
        check_int(out.size, sizeof row + row.n_candidates * sizeof(struct candidate));
        buffer_add(&all, out.bytes + sizeof row, out.size - sizeof row);
        mass += row.mass;
        has_nan |= row.is_broken;
    }
    size_t n = has_nan ? 0 : all.size / sizeof(struct candidate);      /* as the leader does */
    err = sample_pick(&id, (struct candidate *)(void *)all.bytes, n, mass, params);
    buffer_release(&out);
    buffer_release(&all);
    return err < 0 ? err : id;
}

static int pick_whole(const float *logits, uint32_t position, const struct sample_params *params)
{
    return pick(logits, (const uint32_t[]){ 0, VOCAB }, 1, 0, position, params);
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

static uint32_t random_cuts(uint32_t *cut, uint64_t key)
{
    uint32_t n = 1 + (uint32_t)(random_u64(key, 0) % MAX_SLICES);
    cut[0] = 0;
    cut[n] = VOCAB;
    for (uint32_t i = 1; i < n; i++) {
        uint32_t at = (uint32_t)(random_u64(key, i) % (VOCAB + 1)), k = i;
        for (; k > 1 && cut[k - 1] > at; k--)       /* in ascending order; two may be equal: a rank with no ids */
            cut[k] = cut[k - 1];
        cut[k] = at;
    }
    return n;
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
};

static void test_splits(void)
{
    float logits[VOCAB];
    uint32_t cut[MAX_SLICES + 1];
    for (size_t i = 0; i < COUNT_OF(samplers); i++) {
        check_begin("%s: the same pick for every split", samplers[i].name);
        for (uint64_t seed = 0; seed < 300; seed++) {
            struct sample_params params = samplers[i].params;
            params.seed = seed * 77;
            params.choice = seed % 3;
            random_logits(logits, seed, 4);
            int whole = pick_whole(logits, (uint32_t)seed, &params);
            check(whole >= 0 && whole < VOCAB);
            for (uint64_t split = 0; split < 6; split++) {
                uint32_t n = random_cuts(cut, seed * 100 + split), first = (uint32_t)(random_u64(seed, split) % n);
                if (!check_int(pick(logits, cut, n, first, (uint32_t)seed, &params), whole))
                    printf("    seed %u, %u slices\n", (unsigned)seed, n);
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
    check_int(pick(logits, (const uint32_t[]){ 0, 7, VOCAB }, 2, 0, 0, &first), 5);
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
        p[order[i]] = exp((logits[order[i]] - max) / params->temperature);
        before += p[order[i]];
        kept_sum += p[order[i]];
    }
    for (uint32_t i = 0; i < VOCAB; i++)
        p[i] /= kept_sum;
}

static void test_frequencies(void)
{
    static const size_t which[] = { 2, 4, 6, 8, 9, 12 };
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
    for (size_t i = 0; i < COUNT_OF(samplers); i++)
        for (size_t k = 0; k < 2 * COUNT_OF(places); k++) {
            uint32_t place = places[k / 2];
            check_begin("NM-02: %s: %g at %u is an error", samplers[i].name, (double)broken[k % 2], place);
            random_logits(logits, 1, 4);
            logits[place] = broken[k % 2];
            check_int(pick_whole(logits, 0, &samplers[i].params), ERR_FAILED);
            check_int(pick(logits, (const uint32_t[]){ 0, 100, 200, VOCAB }, 3, 0, 0, &samplers[i].params), ERR_FAILED);
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
                int id = pick(logits, (const uint32_t[]){ 0, 100, 200, VOCAB }, 3, 0, position, &samplers[i].params);
                check(id >= 0 && id != (int)places[k]);
            }
        }
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
    return check_done();
}
