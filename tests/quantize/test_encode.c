#include "base/quant.h"
#include "quantize/encode.h"
#include "quantize/fit.h"
#include "tests/check.h"
#include "tests/text/golden.h"

#include <math.h>
#include <string.h>

#define N (1 << 16)

static float gauss[N], tails[N], shifted[N], back[N];
static uint8_t stored[4 * N];

/* As make_encode_goldens.py: sums of twelve draws, which f32 holds exactly. */
static void make_weights(void)
{
    uint32_t state = 1;
    for (int i = 0; i < N; i++) {
        int32_t sum = -393216;
        for (int k = 0; k < 12; k++) {
            state = state * 1664525 + 1013904223;
            sum += (int32_t)(state >> 16);
        }
        gauss[i] = (float)sum / 65536;
        tails[i] = gauss[i] * gauss[i] * gauss[i];
        shifted[i] = gauss[i] + 1.5f;
    }
}

static double error_of(const float *x, enum dtype type, size_t n)
{
    double error = 0, all = 0;
    encode_row(stored, x, NULL, type, n);
    dequantize_row(back, stored, type, n);
    for (size_t i = 0; i < n; i++) {
        double e = (double)x[i] - back[i];
        error += e * e;
        all += (double)x[i] * x[i];
    }
    return sqrt(error / all);
}

static void test_against_peer(void)
{
    static const struct { const char *name; const float *x; } rows[] = { { "gauss", gauss }, { "tails", tails }, { "shifted", shifted } };
    json_t *golden = golden_load("encode.json");
    for (enum dtype type = 0; type < N_DTYPES; type++) {
        const json_t *peer = json_object_get(golden, dtype_info[type].name);
        if (!encode_can(type) || dtype_info[type].block == 1)
            continue;
        check_begin("%s: no larger error than llama.cpp's", dtype_info[type].name);
        check(peer != NULL);
        for (size_t i = 0; i < COUNT_OF(rows); i++) {
            double ours = error_of(rows[i].x, type, N), theirs = json_real_value(json_object_get(peer, rows[i].name));
            if (!check(ours > 0 && ours <= theirs))
                printf("  %s: %g, llama.cpp %g\n", rows[i].name, ours, theirs);
        }
    }
    json_decref(golden);
}

static void test_floats(void)
{
    check_begin("F32, F16, BF16: each number as it rounds");
    check(error_of(tails, DTYPE_F32, N) == 0);
    error_of(tails, DTYPE_F16, N);
    for (int i = 0; i < N; i++)
        check(back[i] == f16_to_f32(f32_to_f16(tails[i])));
    error_of(tails, DTYPE_BF16, N);
    for (int i = 0; i < N; i++)
        check(back[i] == bf16_to_f32(f32_to_bf16(tails[i])));
}

/* Weights that stand on a grid of the type, its ends among them, come back as they were. */
static void test_grid(void)
{
    static const enum dtype types[] = { DTYPE_Q4_0, DTYPE_Q5_0, DTYPE_Q8_0, DTYPE_IQ4_NL, DTYPE_Q4_1, DTYPE_Q5_1 };
    for (size_t t = 0; t < COUNT_OF(types); t++) {
        const struct quant_info info = quant_info[types[t]];
        static float x[1024];
        uint32_t state = 1;
        check_begin("%s: what it can say is said exactly", dtype_info[types[t]].name);
        for (int i = 0; i < 1024; i += 32) {
            struct quant_block block = { .d = f32_to_f16(0.01f * (float)(i + 32)), .m = f32_to_f16(-0.3f) };
            uint8_t bytes[64];
            for (int k = 0; k < 32; k++)
                block.q[k] = (uint8_t)((state = state * 1664525 + 1013904223) >> (32 - info.bits));
            block.q[3] = types[t] == DTYPE_Q8_0;        /* -128 is not used there */
            block.q[17] = (uint8_t)((1 << info.bits) - 1);
            for (int k = 0; k < 32 && types[t] == DTYPE_Q8_0; k++)
                block.q[k] = MAX(block.q[k], 1);
            quant_pack(bytes, &block, types[t]);
            dequantize_row(x + i, bytes, types[t], 32);
        }
        check(error_of(x, types[t], 1024) == 0);
    }
}

/* The largest error beside the largest weight that a block of 256 may have, whatever the other weights are. */
static const struct { const char *name; float first, step, every_7th, error; } edges[] = {
    { "zeros", 0, 0, 0, 0 },
    { "the same everywhere", 0.37f, 0, 0, 0.01f },
    { "the same everywhere, negative", -0.37f, 0, 0, 0.01f },
    { "a ramp", -1, 1.0f / 128, 0, 0.3f },
    { "one size, two signs", 0.5f, 0, -1, 0.3f },
    { "one outlier in seven, others nothing", 0, 0, 1, 0.15f },
    { "the largest that f16 holds", 65504, 0, 0, 0.01f },
    { "the same, negative and with others", -65504, 100, 3, 0.3f },
    { "both ends of f16", 65504, 0, -131008, 0.3f },
    { "nothing that f16 holds", 1e-12f, 1e-14f, 0, 1 },
    { "subnormal numbers", 1e-41f, 0, 1e-42f, 1 },
};

static void test_edges(void)
{
    for (size_t e = 0; e < COUNT_OF(edges); e++)
        for (enum dtype type = 0; type < N_DTYPES; type++) {
            float x[256], largest = 0;
            if (!encode_can(type) || dtype_info[type].block == 1)
                continue;
            check_begin("%s: %s", dtype_info[type].name, edges[e].name);
            for (int i = 0; i < 256; i++) {
                x[i] = edges[e].first + edges[e].step * (float)i + (i % 7 == 3 ? edges[e].every_7th : 0);
                largest = fmaxf(largest, fabsf(x[i]));
            }
            error_of(x, type, 256);
            for (int i = 0; i < 256; i++)
                if (!check(fabsf(back[i] - x[i]) <= edges[e].error * largest))
                    printf("  weight %d: %g became %g\n", i, x[i], back[i]);
        }
}

static void test_levels(void)
{
    float one[16], x[16], level[16];
    struct levels levels;
    check_begin("IQ4_NL: the nearest of its 16 levels");
    levels_init(&levels, DTYPE_IQ4_NL);
    for (int i = 0; i < 16; i++)
        one[i] = 1;
    for (int at = -1400; at < 1400; at += 16) {
        for (int i = 0; i < 16; i++)
            x[i] = 0.1f * (float)(at + i) + 0.01f;          /* never in the middle */
        fit_levels(level, x, one, 16, 1, 0, &levels);
        for (int i = 0; i < 16; i++) {
            float best = INFINITY;
            for (int q = 0; q < 16; q++)
                best = fminf(best, fabsf(x[i] - quant_values_iq4[q]));
            check(fabsf(x[i] - level[i]) == best);
        }
    }
}

/* A scale that many thousands of others do not beat by much. */
static void test_search(void)
{
    static const enum dtype types[] = { DTYPE_Q4_0, DTYPE_Q3_K, DTYPE_Q6_K, DTYPE_IQ4_NL };
    for (size_t t = 0; t < COUNT_OF(types); t++) {
        struct levels levels;
        double all = 0, all_best = 0;
        float ones[32], level[32];
        levels_init(&levels, types[t]);
        check_begin("%s: near the best scale of all", dtype_info[types[t]].name);
        for (int i = 0; i < 32; i++)
            ones[i] = 1;
        for (int block = 0; block < 50; block++) {
            const float *x = gauss + 32 * block;
            struct fit fit;
            float best = INFINITY;
            fit_scale(&fit, x, ones, 32, &levels);
            for (int i = 1; i < 4000; i++)
                for (int sign = -1; sign <= 1; sign += 2)
                    best = fminf(best, fit_levels(level, x, ones, 32, (float)(sign * i) * 0.001f, 0, &levels));
            check(fit.error <= 1.2f * best);
            all += fit.error;
            all_best += best;
        }
        check(all <= 1.02 * all_best);
    }
}

static void test_importance(void)
{
    static float importance[N];
    check_begin("an important column has a smaller error, the others not much more");
    for (int i = 0; i < N; i++)
        importance[i] = i % 32 == 5 ? 100 : 1;
    for (enum dtype type = 0; type < N_DTYPES; type++) {
        double error[2] = { 0 }, rest[2] = { 0 };
        if (!encode_can(type) || dtype_info[type].block == 1)
            continue;
        for (int k = 0; k < 2; k++) {
            encode_row(stored, gauss, k ? importance : NULL, type, N);
            dequantize_row(back, stored, type, N);
            for (int i = 0; i < N; i++)
                *(i % 32 == 5 ? &error[k] : &rest[k]) += (double)(back[i] - gauss[i]) * (back[i] - gauss[i]);
        }
        if (!check(error[1] < 0.5 * error[0] && rest[1] < 2 * rest[0]))
            printf("  %s: %g to %g, others %g to %g\n", dtype_info[type].name, error[0], error[1], rest[0], rest[1]);
    }
}

int main(void)
{
    make_weights();
    test_against_peer();
    test_floats();
    test_grid();
    test_edges();
    test_levels();
    test_search();
    test_importance();
    return check_done();
}
