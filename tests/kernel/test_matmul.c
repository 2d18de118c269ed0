#include "base/dtype.h"
#include "base/float_mode.h"
#include "kernel/cpu.h"
#include "kernel/kernel.h"
#include "tests/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CANARY 0xa5
#define MAX_PARTS TREE_MAX_GROUPS

static uint64_t random_state;

static uint32_t random_u32(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 32);
}

static float random_float(float limit)
{
    return ((float)(random_u32() >> 8) * 0x1p-23f - 1.0f) * limit;
}

/* ---- trees: what follows each group, for any K ------------------------------------------------------------------------ */
static const struct tree_row { const char *name; uint32_t n_groups, n_parts; uint8_t n_merges[TREE_MAX_GROUPS]; } trees[] = {
    { "one chain",          0,  1, { 0 } },                                      /* stands for tree = NULL */
    { "one group",          1,  1, { 0 } },
    { "8 groups",           8,  1, { 0, 1, 0, 2, 0, 1, 0, 3 } },
    { "16 groups",          16, 1, { 0, 1, 0, 2, 0, 1, 0, 3, 0, 1, 0, 2, 0, 1, 0, 4 } },
    { "8 groups apart",     8,  8, { 0 } },
    { "16 groups apart",    16, 16, { 0 } },
    { "groups 3 to 7 of 8", 5,  2, { 0, 0, 1, 0, 2 } },
    { "groups 1 to 6 of 8", 6,  4, { 0, 0, 1, 0, 1, 0 } },
    { "5 groups",           5,  1, { 0, 1, 0, 2, 1 } },
};

/* Groups as even as whole units allow; where there are fewer units than groups, some are empty. */
static struct sum_tree tree_of(const struct tree_row *row, uint32_t k, uint32_t unit)
{
    struct sum_tree tree = { .n_groups = row->n_groups, .n_parts = row->n_parts };
    for (uint32_t g = 0; g < row->n_groups; g++) {
        tree.end[g] = g + 1 == row->n_groups ? k : k / unit * (g + 1) / row->n_groups * unit;
        tree.n_merges[g] = row->n_merges[g];
    }
    return tree;
}

/* ---- one product ---------------------------------------------------------------------------------------------------- */
struct problem {
    enum dtype type;
    bool int8;
    uint32_t n, k, t;
    const struct tree_row *tree_row;
    struct sum_tree tree;
    size_t row_bytes, x_stride, y_floats;
    uint8_t *rows, *packed, *x;         /* rows as in a file, x as the kernel takes it */
    float *x_f32;                       /* [t][k] what x stands for */
    struct matmul_args args;            /* all but y */
};

/* Where the f16 numbers of a block are: d, and the one for minimums (0: none).  All other bytes may be any. */
static const struct { uint8_t d, m; } scales_at[N_DTYPES] = {
    [DTYPE_Q4_1] = { 0, 2 }, [DTYPE_Q5_1] = { 0, 2 }, [DTYPE_Q2_K] = { 80, 82 }, [DTYPE_Q3_K] = { 108, 0 },
    [DTYPE_Q4_K] = { 0, 2 }, [DTYPE_Q5_K] = { 0, 2 }, [DTYPE_Q6_K] = { 208, 0 },
};

/* The least K that a group of the tree can have. */
static uint32_t unit_of(enum dtype type, bool int8)
{
    return MAX(dtype_info[type].block, int8 ? ACT_BLOCK : 1);
}

/* A weight block of any bits, with scales that are neither infinite nor large. */
static void random_weights(uint8_t *to, enum dtype type, size_t n_bytes)
{
    const uint32_t block = dtype_info[type].bytes;
    for (size_t i = 0; i < n_bytes; i++)
        to[i] = (uint8_t)random_u32();
    for (size_t i = 0; i < n_bytes; i += block) {
        float value = random_float(2.0f);
        uint16_t f16 = f32_to_f16(value / 64), bf16 = f32_to_bf16(value);
        if (type == DTYPE_F32)
            memcpy(to + i, &value, 4);
        else if (type == DTYPE_MXFP4)
            to[i] = (uint8_t)(118 + random_u32() % 8);
        else
            memcpy(to + i + scales_at[type].d, type == DTYPE_BF16 ? &bf16 : &f16, 2);
        f16 = f32_to_f16(random_float(0.1f));
        if (scales_at[type].m)
            memcpy(to + i + scales_at[type].m, &f16, 2);
    }
}

static void *allocate(size_t n_bytes)
{
    return aligned_alloc(64, ROUND_UP(n_bytes, 64));
}

/* Packs the weights again, after a test has changed them. */
static void problem_pack(struct problem *p)
{
    uint32_t n_panels = DIV_UP(p->n, PANEL_ROWS), middle = n_panels / 2;
    matmul_pack(p->packed, p->type, p->rows, p->row_bytes, p->n, p->k, middle, n_panels);
    matmul_pack(p->packed, p->type, p->rows, p->row_bytes, p->n, p->k, 0, middle);
}

/* Makes x again out of x_f32, which becomes what its blocks stand for. */
static void problem_set_x(struct problem *p)
{
    for (uint32_t t = 0; t < p->t; t++) {
        float *from = p->x_f32 + (size_t)t * p->k;
        struct act_block *blocks = (void *)(p->x + t * p->x_stride);
        if (!p->int8)
            memcpy(blocks, from, p->k * sizeof *from);
        else
            kernels_all[0]->quantize(blocks, from, p->k);
        for (uint32_t i = 0; p->int8 && i < p->k; i++)
            from[i] = blocks[i / ACT_BLOCK].d * (float)blocks[i / ACT_BLOCK].q[i % ACT_BLOCK];
    }
}

static void problem_open(struct problem *p, enum dtype type, bool int8, uint32_t n, uint32_t k, uint32_t t, size_t tree)
{
    *p = (struct problem) { .type = type, .int8 = int8, .n = n, .k = k, .t = t, .tree_row = trees + tree };
    p->tree = tree_of(p->tree_row, k, unit_of(type, int8));
    p->row_bytes = dtype_bytes(type, k) + 6;
    p->x_stride = int8 ? k / 32 * sizeof(struct act_block) + 4 : k * sizeof(float) + 12;
    p->rows = malloc(n * p->row_bytes);
    p->packed = allocate(matmul_packed_bytes(type, n, k));
    p->x = malloc(t * p->x_stride);
    p->x_f32 = malloc(t * k * sizeof(float));
    for (uint32_t i = 0; i < n; i++)
        random_weights(p->rows + i * p->row_bytes, type, p->row_bytes - 6);
    for (size_t i = 0; i < (size_t)t * k; i++)
        p->x_f32[i] = random_float(4.0f);
    problem_pack(p);
    problem_set_x(p);
    p->args = (struct matmul_args) {
        .w = p->packed, .x = p->x, .x_stride = p->x_stride, .k = k, .n_rows = n, .panel1 = DIV_UP(n, PANEL_ROWS), .t1 = t,
        .y_stride = n + 3, .part_stride = (n + 3) * t + 5, .tree = p->tree.n_groups ? &p->tree : NULL,
    };
    p->y_floats = p->args.part_stride * p->tree.n_parts + 16;
}

static void problem_close(struct problem *p)
{
    free(p->rows);
    free(p->packed);
    free(p->x);
    free(p->x_f32);
}

/* All of y: canaries, and the outputs of the range in args. */
static float *problem_run(const struct problem *p, const struct kernels *kernels)
{
    struct matmul_args args = p->args;
    args.y = malloc(p->y_floats * sizeof(float));
    memset(args.y, CANARY, p->y_floats * sizeof(float));
    (p->int8 ? kernels->matmul_int8 : kernels->matmul_f32)[p->type](&args);
    return args.y;
}

static bool is_canary(float value)
{
    static const uint8_t canary[4] = { CANARY, CANARY, CANARY, CANARY };
    return !memcmp(&value, canary, sizeof value);
}

static bool can_run(const struct kernels *kernels)
{
    return (kernels->needs & cpu_features()) == kernels->needs;
}

static const char *const type_names[] = { "f32 activations", "int8 activations" };

/* ---- every variant against the portable C ----------------------------------------------------------------------------- */
static const struct { uint32_t n, k, t; } shapes[] = {
    { 1, 32, 1 }, { 15, 64, 2 }, { 17, 96, 3 }, { 33, 160, 4 }, { 100, 576, 5 }, { 16, 32, 7 }, { 32, 2048, 8 },
    { 33, 352, 9 }, { 15, 1536, 1 }, { 100, 2080, 19 }, { 48, 512, 17 }, { 81, 320, 1 }, { 64, 1056, 13 },
    { 1, 256, 4 }, { 17, 768, 1 }, { 33, 1280, 6 }, { 15, 2304, 11 }, { 100, 1792, 2 }, { 81, 256, 3 },
    { 17, 37, 6 }, { 33, 177, 12 }, { 100, 1, 3 }, { 16, 2079, 2 },
    { 33, 352, 79 }, { 50, 1280, 64 }, { 17, 256, 270 }, { 17, 2304, 65 },      /* many rows, which AMX takes */
};

static void compare_variants(const struct problem *p)
{
    float *want = problem_run(p, kernels_all[0]);
    for (size_t v = 1; v < n_kernels; v++) {
        if (!can_run(kernels_all[v]))
            continue;
        float *got = problem_run(p, kernels_all[v]);
        check_bytes(kernels_all[v]->name, got, want, p->y_floats * sizeof(float));
        free(got);
    }
    free(want);
}

static void test_variants(enum dtype type, bool int8)
{
    for (size_t s = 0; s < COUNT_OF(shapes); s++) {
        if (shapes[s].k % unit_of(type, int8) || (shapes[s].t > 32 && !int8))
            continue;
        for (size_t tree = 0; tree < COUNT_OF(trees); tree++) {
            struct problem p;
            random_state = s * 100 + tree;
            check_begin("%s %s, N=%u K=%u T=%u, %s: variants agree", dtype_info[type].name, type_names[int8],
                        shapes[s].n, shapes[s].k, shapes[s].t, trees[tree].name);
            problem_open(&p, type, int8, shapes[s].n, shapes[s].k, shapes[s].t, tree);
            compare_variants(&p);
            p.args.panel0 = p.args.panel1 / 3;                      /* a range in the middle */
            p.args.panel1 -= p.args.panel1 / 4;
            p.args.t0 = p.t / 3;
            p.args.t1 -= p.t / 5;
            compare_variants(&p);
            problem_close(&p);
        }
    }
}

/* A row of x gives the same bits alone as among others. */
static void test_alone(enum dtype type, bool int8)
{
    struct problem p;
    check_begin("%s %s: a row alone", dtype_info[type].name, type_names[int8]);
    random_state = 1;
    problem_open(&p, type, int8, 40, ROUND_UP(608, unit_of(type, int8)), 51, 2);
    for (size_t v = 0; v < n_kernels; v++) {
        if (!can_run(kernels_all[v]))
            continue;
        struct problem one = p;
        float *all = problem_run(&p, kernels_all[v]);
        for (uint32_t t = 0; t < p.t; t++) {
            one.args.t0 = t;
            one.args.t1 = t + 1;
            float *alone = problem_run(&one, kernels_all[v]);
            check_bytes(kernels_all[v]->name, alone + t * p.args.y_stride, all + t * p.args.y_stride, p.n * sizeof(float));
            free(alone);
        }
        free(all);
    }
    problem_close(&p);
}

/* ---- the portable C against plain double arithmetic ------------------------------------------------------------------- */

/* Parts of a tree are sums over consecutive groups: where part p ends in K. */
static void part_ends(uint32_t ends[MAX_PARTS], const struct problem *p)
{
    uint32_t depth = 0;
    ends[0] = p->k;
    for (uint32_t g = 0; g < p->tree.n_groups; g++) {
        depth += 1u - p->tree.n_merges[g];
        ends[depth - 1] = p->tree.end[g];
    }
}

/* Sums of K roundings: each is at most half an ulp of what has been added, in magnitude. */
static void check_output(const struct problem *p, const float *w, uint32_t n, uint32_t t, const float *y)
{
    const float *x = p->x_f32 + (size_t)t * p->k;
    uint32_t ends[MAX_PARTS], begin = 0;
    part_ends(ends, p);
    for (uint32_t part = 0; part < p->tree.n_parts; part++) {
        double sum = 0, magnitude = 0, got = y[part * p->args.part_stride + t * p->args.y_stride + n];
        for (uint32_t k = begin; k < ends[part]; k++) {
            sum += (double)x[k] * w[k];
            magnitude += fabs((double)x[k] * w[k]);
        }
        if (!(fabs(got - sum) <= (magnitude + 1e-30) * (2 + sqrt(p->k)) * 0x1p-23))
            check_text("far off", dtype_info[p->type].name);
        begin = ends[part];
    }
}

static void check_reference(const struct problem *p)
{
    float *y = problem_run(p, kernels_all[0]), *w = malloc(p->k * sizeof(float));
    for (uint32_t n = 0; n < p->n; n++) {
        dequantize_row(w, p->rows + n * p->row_bytes, p->type, p->k);
        for (uint32_t t = 0; t < p->t; t++)
            check_output(p, w, n, t, y);
    }
    uint32_t n_written = 0;
    for (size_t i = 0; i < p->y_floats; i++)
        n_written += !is_canary(y[i]);
    check_int(n_written, p->n * p->t * p->tree.n_parts);
    free(w);
    free(y);
}

static void test_reference(enum dtype type, bool int8)
{
    for (size_t tree = 0; tree < COUNT_OF(trees); tree++) {
        struct problem p;
        check_begin("%s %s, %s: near the sum in double", dtype_info[type].name, type_names[int8], trees[tree].name);
        random_state = tree;
        problem_open(&p, type, int8, 35, ROUND_UP(1088, unit_of(type, int8)), 5, tree);
        check_reference(&p);
        problem_close(&p);
    }
}

/* Quants and sub-scales of all bits set or clear, scales of zero, subnormal, largest and negative. */
static void test_extremes(enum dtype type, bool int8)
{
    static const uint16_t scales[] = { 0, 0x8000, 1, 0x83ff, 0x7bff, 0xfbff, 0x3c00 };
    static const uint8_t quants[] = { 0, 0x80, 0xff, 0x7f }, e8m0[COUNT_OF(scales)] = { 0, 1, 2, 3, 127, 200, 100 };
    const uint32_t block = dtype_info[type].bytes;
    struct problem p;

    check_begin("%s %s: extremes", dtype_info[type].name, type_names[int8]);
    random_state = 2;
    problem_open(&p, type, int8, COUNT_OF(scales) * COUNT_OF(quants), 6 * unit_of(type, int8), 53, 2);
    for (uint32_t n = 0; n < p.n; n++)
        for (uint8_t *b = p.rows + n * p.row_bytes; b < p.rows + (n + 1) * p.row_bytes - 6; b += block) {
            memset(b, quants[n % COUNT_OF(quants)], block);
            if (type == DTYPE_MXFP4)
                *b = e8m0[n / COUNT_OF(quants)];
            else
                memcpy(b + scales_at[type].d, scales + n / COUNT_OF(quants), 2);
            if (scales_at[type].m)
                memcpy(b + scales_at[type].m, scales + random_u32() % COUNT_OF(scales), 2);
        }
    for (uint32_t i = 0; i < p.k * p.t; i++)
        p.x_f32[i] = i / p.k == 0 ? 127.0f : i / p.k == 1 ? -127.0f : i / p.k == 2 ? 0.0f : p.x_f32[i];
    problem_pack(&p);
    problem_set_x(&p);
    check_reference(&p);
    compare_variants(&p);
    problem_close(&p);
}

/* Scales that are not finite: every variant gives NaN where the portable C does, and else its bits. */
static void test_bad_scales(enum dtype type, bool int8)
{
    static const uint16_t bad[] = { 0x7c00, 0xfc00, 0x7e00, 0xfe01 };
    struct problem p;

    check_begin("%s %s: scales that are not finite", dtype_info[type].name, type_names[int8]);
    random_state = 5;
    problem_open(&p, type, int8, 40, 4 * unit_of(type, int8), 49, 0);
    for (uint32_t n = 0; n < p.n; n += 3) {
        uint8_t *b = p.rows + n * p.row_bytes + n % 4 * dtype_info[type].bytes;
        if (type == DTYPE_MXFP4)
            *b = (uint8_t)(255 - n % 2);
        else
            memcpy(b + (n % 2 ? scales_at[type].m : scales_at[type].d), bad + n % COUNT_OF(bad), 2);
    }
    problem_pack(&p);
    float *want = problem_run(&p, kernels_all[0]);
    for (size_t v = 1; v < n_kernels; v++) {
        if (!can_run(kernels_all[v]))
            continue;
        float *got = problem_run(&p, kernels_all[v]);
        for (uint32_t i = 0; i < p.n * p.t; i++) {
            size_t at = i / p.n * p.args.y_stride + i % p.n;
            check(isnan(got[at]) ? isnan(want[at]) : !memcmp(got + at, want + at, sizeof *got));
        }
        free(got);
    }
    free(want);
    problem_close(&p);
}

/* One bad value in a row of x spoils every output of that row and of no other. */
static void test_not_finite(enum dtype type, bool int8)
{
    struct problem p;
    check_begin("%s %s: NaN and infinity in x", dtype_info[type].name, type_names[int8]);
    random_state = 3;
    const uint32_t unit = MAX(unit_of(type, int8), 32);
    problem_open(&p, type, int8, 20, 8 * unit, 54, 2);
    for (uint32_t n = 0; n < p.n; n++)                              /* infinity times this is no NaN: but then minus it is */
        memcpy(p.rows + n * p.row_bytes + dtype_bytes(type, 7 * unit), p.rows + n * p.row_bytes + dtype_bytes(type, 2 * unit),
               dtype_bytes(type, unit));
    problem_pack(&p);
    p.x_f32[2 * p.k + 77] = NAN;
    p.x_f32[4 * p.k + 2 * unit + 7] = INFINITY;
    p.x_f32[4 * p.k + 7 * unit + 7] = -INFINITY;
    problem_set_x(&p);
    for (size_t v = 0; v < n_kernels; v++) {
        if (!can_run(kernels_all[v]))
            continue;
        float *y = problem_run(&p, kernels_all[v]);
        for (uint32_t i = 0; i < p.n * p.t; i++)
            check_int(isnan(y[i / p.n * p.args.y_stride + i % p.n]), i / p.n == 2 || i / p.n == 4);
        free(y);
    }
    problem_close(&p);
}

/* The merges of 8 groups, written out. */
static void test_tree(enum dtype type, bool int8)
{
    struct problem p;
    check_begin("%s %s: the tree of 8 groups", dtype_info[type].name, type_names[int8]);
    random_state = 4;
    problem_open(&p, type, int8, 16, 8 * MAX(unit_of(type, int8), 32), 1, 4);
    float *apart = problem_run(&p, kernels_all[0]), want[PANEL_ROWS];
    for (uint32_t n = 0; n < p.n; n++) {
        float g[8];
        for (int i = 0; i < 8; i++)
            g[i] = apart[i * p.args.part_stride + n];
        want[n] = ((g[0] + g[1]) + (g[2] + g[3])) + ((g[4] + g[5]) + (g[6] + g[7]));
    }
    p.tree = tree_of(trees + 2, p.k, MAX(unit_of(type, int8), 32));
    float *got = problem_run(&p, kernels_all[0]);
    check_bytes("tree", got, want, sizeof want);
    free(apart);
    free(got);
    problem_close(&p);
}

static void test_nothing_to_do(void)
{
    struct problem p;
    struct sum_tree none = { .n_groups = 0 };
    check_begin("no group and no K: y is not touched");
    problem_open(&p, DTYPE_Q4_0, true, 16, 32, 1, 1);
    for (size_t v = 0; v < n_kernels; v++)
        for (int i = 0; i < 2 && can_run(kernels_all[v]); i++) {
            struct problem empty = p;
            empty.args.k = i ? p.k : 0;
            empty.args.tree = i ? &none : NULL;
            float *y = problem_run(&empty, kernels_all[v]);
            for (size_t j = 0; j < p.y_floats; j++)
                check(is_canary(y[j]));
            free(y);
        }
    problem_close(&p);
}

static void test_find(void)
{
    const struct kernels *best, *c;
    check_begin("kernels by name");
    check_int(kernels_find(&best, NULL), 0);
    check(can_run(best));
    check_int(kernels_find(&c, "c"), 0);
    check(c == kernels_all[0]);
    check(kernels_find(&c, "abacus") < 0);
}

/* With arguments I and N: one part of N of the types, the one number I. */
int main(int n_args, char **args)
{
    const unsigned part = n_args == 3 ? (unsigned)atoi(args[1]) : 0, n_parts = n_args == 3 ? (unsigned)atoi(args[2]) : 1;

    cpu_float_mode_set();
    for (enum dtype type = 0; type < N_DTYPES; type++)
        for (int int8 = 0; int8 < 2; int8++) {
            if (type % n_parts != part || !(int8 ? kernels_all[0]->matmul_int8 : kernels_all[0]->matmul_f32)[type])
                continue;
            test_variants(type, int8);
            test_alone(type, int8);
            test_reference(type, int8);
            test_tree(type, int8);
            test_not_finite(type, int8);
            if (dtype_info[type].block > 1) {
                test_extremes(type, int8);
                test_bad_scales(type, int8);
            }
        }
    test_nothing_to_do();
    test_find();
    return check_done();
}
