#include "base/float_mode.h"
#include "kernel/cpu.h"
#include "kernel/kernel.h"
#include "tests/check.h"

#include <math.h>
#include <string.h>

/* The other values of a row's block are zeros.  want_q are the quants of x. */
static const struct { const char *name; float x[4]; int8_t want_q[4]; float want_d; } rows[] = {
    { "zeros",                      { 0, -0.0f, 0, 0 },                 { 0, 0, 0, 0 },         0 },
    { "too small to tell from 0",   { 0.9e-30f, -1e-40f, 0, 0 },        { 0, 0, 0, 0 },         0 },
    { "small",                      { 1e-30f, -1e-30f, 1e-40f, 0 },     { 127, -127, 0, 0 },    1e-30f / 127 },
    { "the largest float",          { 3.4028235e38f, -3.4028235e38f, 1.7e38f, 1 }, { 127, -127, 63, 0 }, 3.4028235e38f / 127 },
    { "halves go to even",          { 127, 0.5f, 1.5f, -2.5f },         { 127, 0, 2, -2 },      1 },
    { "negative largest",           { -127, 126.5f, 125.5f, -126.5f },  { -127, 126, 126, -126 }, 1 },
    { "a scale that is no power",   { 3, -1, 2, 0.01f },                { 127, -42, 85, 0 },    3.0f / 127 },
    { "infinity",                   { 1, INFINITY, 2, 3 },              { 0, 0, 0, 0 },         NAN },
    { "minus infinity",             { -INFINITY, 0, 0, 0 },             { 0, 0, 0, 0 },         NAN },
    { "not a number",               { 1, 2, NAN, 3 },                   { 0, 0, 0, 0 },         NAN },
    { "minus not a number",         { 1, 2, 3, -NAN },                  { 0, 0, 0, 0 },         NAN },
};

static bool can_run(const struct kernels *kernels)
{
    return (kernels->needs & cpu_features()) == kernels->needs;
}

static void check_block(const struct act_block *block, const int8_t *q, float d)
{
    struct act_block want = { .d = d, .s = d };
    int32_t sum = q[0] + q[1] + q[2] + q[3];
    memcpy(want.q + 12, q, 4);
    if (!isnan(d)) {
        want.s = d * (float)sum;
        want.start8 = -8 * sum;
        want.start128 = -128 * sum;
    }
    check_bytes("block", block, &want, sizeof want);
}

static void test_rows(const struct kernels *kernels)
{
    for (size_t r = 0; r < COUNT_OF(rows); r++) {
        float x[3 * ACT_BLOCK] = { 0 };                 /* the block in the middle; its neighbours are not its business */
        struct act_block blocks[4];
        check_begin("%s: %s", kernels->name, rows[r].name);
        memcpy(x + ACT_BLOCK + 12, rows[r].x, sizeof rows[r].x);
        memset(blocks, 0xa5, sizeof blocks);
        kernels->quantize(blocks, x, 3 * ACT_BLOCK);
        check_block(blocks + 0, rows[0].want_q, 0);
        check_block(blocks + 1, rows[r].want_q, rows[r].want_d);
        check_block(blocks + 2, rows[0].want_q, 0);
        check_int(blocks[3].q[0], (int8_t)0xa5);
    }
}

/* Any bits at all, and then values of one scale: every variant gives the block that the portable C gives. */
static void test_variants(const struct kernels *kernels)
{
    enum { K = 64 * ACT_BLOCK };
    static float x[K + 1];
    static struct act_block want[K / ACT_BLOCK], got[K / ACT_BLOCK];
    uint64_t state = 1;

    check_begin("%s: random blocks as in portable C", kernels->name);
    for (int round = 0; round < 200; round++) {
        for (int i = 0; i < K + 1; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            uint32_t bits = (uint32_t)(state >> 32);
            x[i] = (float)(int32_t)bits * 0x1p-27f;
            if (round % 2 && (bits & 0x7f800000) != 0x7f800000)
                memcpy(x + i, &bits, sizeof bits);
        }
        kernels_all[0]->quantize(want, x + 1, K);       /* no alignment is promised */
        kernels->quantize(got, x + 1, K);
        check_bytes("blocks", got, want, sizeof want);
    }
}

int main(void)
{
    cpu_float_mode_set();
    for (size_t v = 0; v < n_kernels; v++)
        if (can_run(kernels_all[v])) {
            test_rows(kernels_all[v]);
            test_variants(kernels_all[v]);
        }
    return check_done();
}
