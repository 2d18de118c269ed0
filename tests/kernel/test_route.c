/* Routing: the choice against a full sort, the weights against a softmax in double and their own contract. */
#include "kernel/math.h"
#include "kernel/route.h"
#include "tests/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static uint32_t seed = 1;

static float random_float(void)         /* in [-8, 8) */
{
    seed = seed * 1664525 + 1013904223;
    return (float)(int32_t)seed * 0x1p-28f;
}

static const struct shape { uint32_t n_experts, n_used; } shapes[] = {
    { 1, 1 }, { 2, 1 }, { 8, 2 }, { 16, 4 }, { 17, 17 }, { 60, 4 }, { 64, 8 }, { 128, 8 }, { 256, 8 }, { 1000, 33 }, { 1024, 1024 },
};

static const float *sorted;

static int compare(const void *a, const void *b)        /* descending; of equals the lower id first */
{
    int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    return sorted[i] > sorted[j] ? -1 : sorted[i] < sorted[j] ? 1 : i - j;
}

static void check_row(const float *logits, uint32_t n_experts, uint32_t n_used, bool normalise, float scale)
{
    int32_t want[ROUTE_MAX_EXPERTS], *ids = malloc(n_used * sizeof *ids);
    float *weights = malloc(n_used * sizeof *weights);
    double sum = 0.0, chosen = 0.0;

    for (uint32_t e = 0; e < n_experts; e++)
        want[e] = (int32_t)e;
    sorted = logits;
    qsort(want, n_experts, sizeof *want, compare);
    for (uint32_t e = 0; e < n_experts; e++)
        sum += exp((double)logits[e] - logits[want[0]]);
    for (uint32_t i = 0; i < n_used; i++)
        chosen += exp((double)logits[want[i]] - logits[want[0]]) / sum;

    route_row(ids, weights, logits, n_experts, n_used, normalise, scale);
    check_bytes("ids", ids, want, n_used * sizeof *ids);
    for (uint32_t i = 0; i < n_used; i++) {
        double p = exp((double)logits[want[i]] - logits[want[0]]) / sum / (normalise ? chosen : 1.0) * scale;
        /* half an ulp for each addition in a chain: those of a lane, of the tree, of the chosen; and 8 for two exp and the rest */
        check(fabs(weights[i] - p) <= (n_experts / 16 + 4 + n_used + 8) * 0x1p-24 * p);
    }
    free(ids), free(weights);
}

static void test_choice(const struct shape *s)
{
    float logits[ROUTE_MAX_EXPERTS];

    check_begin("route: %u of %u experts", s->n_used, s->n_experts);
    for (int round = 0; round < 8; round++) {
        for (uint32_t e = 0; e < s->n_experts; e++)
            logits[e] = round < 4 ? random_float() : rintf(random_float() / 4.0f);      /* few values: ties everywhere */
        check_row(logits, s->n_experts, s->n_used, round % 2, round % 4 < 2 ? 1.0f : 2.5f);
    }
    for (uint32_t e = 0; e < s->n_experts; e++)
        logits[e] = (float)e / 64.0f;                   /* each one is chosen when it comes */
    check_row(logits, s->n_experts, s->n_used, true, 1.0f);
}

static void test_exact(void)
{
    static const float logits[] = { -0.0f, 3.0f, 0.0f, 3.0f, -INFINITY, -0.0f };
    static const int32_t want[] = { 1, 3, 0, 2, 5, 4 };
    int32_t ids[6];
    float weights[6], plain[6];

    check_begin("route: ties, zeros of both signs, -inf");
    route_row(ids, plain, logits, 6, 6, false, 1.0f);
    check_bytes("ids", ids, want, sizeof want);
    check(plain[0] == plain[1] && plain[2] == plain[3] && plain[3] == plain[4] && plain[5] == 0.0f);

    route_row(ids, weights, logits, 6, 1, true, 1.0f);
    check(weights[0] == 1.0f && ids[0] == 1);
}

static void test_normalise(void)
{
    float logits[6], weights[6], plain[6];
    int32_t ids[6];

    check_begin("route: normalised, then scaled, one rounding each");
    for (int round = 0; round < 100; round++) {
        for (int e = 0; e < 6; e++)
            logits[e] = random_float() / 4.0f;
        route_row(ids, plain, logits, 6, 3, false, 1.0f);
        float sum = plain[0] + plain[1] + plain[2];
        route_row(ids, weights, logits, 6, 3, true, 2.3f);
        for (int i = 0; i < 3; i++)
            check(weights[i] == plain[i] / sum * 2.3f);
        route_row(ids, weights, logits, 6, 3, false, 2.3f);
        for (int i = 0; i < 3; i++)
            check(weights[i] == plain[i] * 2.3f);
    }
}

/* Twenty experts, so that lanes 0 to 3 have two terms: the sum as kernel.h has it, written out. */
static void test_tree(void)
{
    float logits[20], lane[16], weight;
    int32_t id;

    check_begin("route: the sum over experts has 16 lanes and a fixed tree");
    for (int round = 0; round < 50; round++) {
        for (int e = 0; e < 20; e++) {
            logits[e] = e == 7 ? 3.0f : random_float() / 4.0f;
            lane[e % 16] = (e < 16 ? 0.0f : lane[e % 16]) + math_exp(logits[e] - 3.0f);
        }
        for (int i = 0; i < 8; i++)
            lane[i] += lane[i + 8];
        for (int i = 0; i < 4; i++)
            lane[i] += lane[i + 4];
        route_row(&id, &weight, logits, 20, 1, false, 1.0f);
        check(id == 7 && weight == 1.0f / ((lane[0] + lane[2]) + (lane[1] + lane[3])));
    }
}

static void test_nan(void)
{
    float logits[20], weights[5];
    int32_t ids[5];

    for (int at = 0; at < 20; at++) {
        check_begin("route: logit %d is NaN", at);
        for (int e = 0; e < 20; e++)
            logits[e] = random_float();
        logits[at] = NAN;
        route_row(ids, weights, logits, 20, 5, at % 2, 2.0f);
        for (int i = 0; i < 5; i++)
            check(ids[i] == i && isnan(weights[i]));
    }
    check_begin("route: an infinite maximum");
    logits[19] = 0.0f, logits[4] = INFINITY;
    route_row(ids, weights, logits, 20, 2, true, 1.0f);
    check(ids[0] == 4 && isnan(weights[0]) && isnan(weights[1]));
    for (int e = 0; e < 20; e++)
        logits[e] = -INFINITY;
    route_row(ids, weights, logits, 20, 2, false, 1.0f);
    check(ids[0] == 0 && ids[1] == 1 && isnan(weights[0]) && isnan(weights[1]));
}

int main(void)
{
    for (size_t s = 0; s < COUNT_OF(shapes); s++)
        test_choice(&shapes[s]);
    test_exact();
    test_normalise();
    test_tree();
    test_nan();
    return check_done();
}
