#include "comm/tree.h"
#include "tests/check.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_PARTS = 16, MAX_N = 1100 };

/* Magnitudes from 2^-20 to 2^20, so that another order of additions gives other bits. */
static float part_value(uint32_t part, size_t i)
{
    uint32_t x = (uint32_t)i * 2654435761u + part * 40503u + 12345u;
    x ^= x >> 15, x *= 0x2c1b3c6du, x ^= x >> 12, x *= 0x297a2d39u, x ^= x >> 15;
    float magnitude = (float)(1u << x % 21) / (float)(1u << (x >> 8) % 21);
    return magnitude * ((float)(int32_t)(x | 1) * 0x1p-31f);
}

/* The definition.  A tree is written as (left right); a leaf is a part, a letter from a. */
static float value_of(const char **tree, size_t i)
{
    char c = *(*tree)++;
    if (c != '(')
        return part_value((uint32_t)(c - 'a'), i);
    float left = value_of(tree, i);
    float sum = left + value_of(tree, i);
    (*tree)++;                  /* the closing one */
    return sum;
}

static const struct { const char *tree; uint32_t n_parts; uint8_t n_merges[MAX_PARTS]; } rows[] = {
    { "a",                          1,  { 0 } },
    { "(ab)",                       2,  { 0, 1 } },
    { "((ab)c)",                    3,  { 0, 1, 1 } },
    { "(a(bc))",                    3,  { 0, 0, 2 } },
    { "((ab)(cd))",                 4,  { 0, 1, 0, 2 } },
    { "(a((bc)d))",                 4,  { 0, 0, 1, 2 } },       /* shares 5:3 of 8 groups: {0-3} {4} | {5} {6,7} */
    { "(((ab)(cd))e)",              5,  { 0, 1, 0, 2, 1 } },
    { "(((ab)(cd))((ef)(gh)))",     8,  { 0, 1, 0, 2, 0, 1, 0, 3 } },
    { "((((((((ab)c)d)e)f)g)h)i)",  9,  { 0, 1, 1, 1, 1, 1, 1, 1, 1 } },
    { "((((ab)(cd))((ef)(gh)))((ij)(kl)))", 12, { 0, 1, 0, 2, 0, 1, 0, 3, 0, 1, 0, 3 } },
    { "((((ab)(cd))((ef)(gh)))(((ij)(kl))((mn)(op))))", 16, { 0, 1, 0, 2, 0, 1, 0, 3, 0, 1, 0, 2, 0, 1, 0, 4 } },
    { "(a(b(c(d(e(f(g(h(i(j(k(l(m(n(op)))))))))))))))", 16, { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 15 } },
};
static const size_t lengths[] = { 1, 7, 16, 255, 256, 257, 576, MAX_N };

static float parts[MAX_PARTS][MAX_N + 1], want[MAX_N], got[MAX_N + 1];

static void fill(uint32_t n_parts)
{
    for (uint32_t p = 0; p < n_parts; p++)
        for (size_t i = 0; i < MAX_N; i++)
            parts[p][i] = part_value(p, i);
}

/* alias: the part whose place the sum takes; n_parts: a place of its own. */
static void test_row(size_t row, size_t n, uint32_t alias)
{
    const float *part[MAX_PARTS];
    uint32_t n_parts = rows[row].n_parts;
    float *out = alias < n_parts ? parts[alias] : got;

    fill(n_parts);
    for (uint32_t p = 0; p < n_parts; p++)
        part[p] = parts[p];
    for (size_t i = 0; i < n; i++) {
        const char *tree = rows[row].tree;
        want[i] = value_of(&tree, i);
    }
    got[n] = 42.0f;
    tree_sum_f32(out, part, rows[row].n_merges, n_parts, n);
    check_bytes(rows[row].tree, out, want, n * sizeof *out);
    check(got[n] == 42.0f);
    for (uint32_t p = 0; p < n_parts; p++)
        for (size_t i = p == alias ? n : 0; i < MAX_N; i++)
            if (parts[p][i] != part_value(p, i)) {
                check_int(i, -1);       /* a part was written to */
                return;
            }
}

/* ---- several results, absent parts ------------------------------------------------------------------------------------ */
static const struct { const char *trees; uint32_t n_parts, n_out; uint8_t n_merges[MAX_PARTS]; } forests[] = {
    { "a",                          1,  1, { 0 } },
    { "(ab)",                       2,  1, { 0, 1 } },
    { "ab",                         2,  2, { 0, 0 } },
    { "a(bc)",                      3,  2, { 0, 0, 1 } },        /* a rank's groups {1} {2,3} of 4 */
    { "(ab)c",                      3,  2, { 0, 1, 0 } },
    { "(a(b(cd)))",                 4,  1, { 0, 0, 0, 3 } },
    { "((ab)(cd))(ef)g",            7,  3, { 0, 1, 0, 2, 0, 1, 0 } },
    { "a(bc)(((de)(fg))((hi)(jk)))(l(mn))(op)", 16, 5, { 0, 0, 1, 0, 1, 0, 2, 0, 1, 0, 3, 0, 0, 2, 0, 1 } },
    { "((((ab)(cd))((ef)(gh)))(((ij)(kl))((mn)(op))))", 16, 1, { 0, 1, 0, 2, 0, 1, 0, 3, 0, 1, 0, 2, 0, 1, 0, 4 } },
    { "abcdefghijklmnop",           16, 16, { 0 } },
};

struct value {
    bool here;
    float x;
};

/* The definition, where only the parts of the mask are there. */
static struct value masked_value(const char **tree, size_t i, uint32_t mask)
{
    char c = *(*tree)++;
    if (c != '(')
        return (struct value){ mask >> (c - 'a') & 1, part_value((uint32_t)(c - 'a'), i) };
    struct value left = masked_value(tree, i, mask), right = masked_value(tree, i, mask);
    (*tree)++;                  /* the closing one */
    if (left.here && right.here)
        return (struct value){ true, left.x + right.x };
    return left.here ? left : right;
}

/* Result k takes the place of part (k + shift) mod n_parts; shift = n_parts: places of their own.  -0 is a part's first
 * element, so that an absent part that is added as a zero is seen. */
static void test_forest(size_t row, size_t n, uint32_t mask, uint32_t shift)
{
    static float outs[MAX_PARTS][MAX_N + 1], wants[MAX_PARTS][MAX_N];
    uint32_t n_parts = forests[row].n_parts, n_out = forests[row].n_out;
    const char *tree = forests[row].trees;
    const float *part[MAX_PARTS];
    float *out[MAX_PARTS];

    fill(n_parts);
    for (uint32_t p = 0; p < n_parts; p++) {
        parts[p][0] = -0.0f;
        part[p] = mask >> p & 1 ? parts[p] : NULL;
    }
    for (uint32_t k = 0; k < n_out; k++) {
        const char *this = tree;
        for (size_t i = 0; i < n; i++) {
            tree = this;
            struct value v = masked_value(&tree, i, mask);
            wants[k][i] = i > 0 && v.here ? v.x : -0.0f;
        }
        out[k] = shift < n_parts ? parts[(k + shift) % n_parts] : outs[k];
        out[k][n] = 42.0f;
    }
    check(n == 0 || *tree == 0);
    tree_reduce_f32(out, n_out, part, forests[row].n_merges, n_parts, n);
    for (uint32_t k = 0; k < n_out; k++) {
        check_bytes(forests[row].trees, out[k], wants[k], n * sizeof **out);
        check(out[k][n] == 42.0f);
    }
}

static void test_forests(void)
{
    static const size_t few[] = { 1, 255, 257, 600 };
    for (size_t r = 0; r < COUNT_OF(forests); r++) {
        uint32_t n_parts = forests[r].n_parts, all = (1u << n_parts) - 1;
        check_begin("%u parts, %u results, some absent: %s", n_parts, forests[r].n_out, forests[r].trees);
        for (uint32_t step = 0, mask = 0; step < 40; step++, mask = step == 1 ? all : (mask * 40503u + 12289u) & all)
            for (size_t l = 0; l < COUNT_OF(few); l++)
                test_forest(r, few[l], mask, (step * 5 + (uint32_t)l) % (n_parts + 1));
        test_forest(r, 0, all, n_parts);
    }
}

int main(void)
{
    for (size_t r = 0; r < COUNT_OF(rows); r++) {
        check_begin("%u parts: %s", rows[r].n_parts, rows[r].tree);
        for (size_t l = 0; l < COUNT_OF(lengths); l++)
            for (uint32_t alias = 0; alias <= rows[r].n_parts; alias++)
                test_row(r, lengths[l], alias);
    }
    check_begin("no parts: zeros");
    memset(got, 0xff, sizeof got);
    tree_sum_f32(got, NULL, NULL, 0, 100);
    check_bytes("sum", got, (float[100]){ 0 }, 100 * sizeof *got);

    test_forests();

    check_begin("the rows can tell trees apart");
    const char *a = "((ab)c)", *b = "(a(bc))";
    int n_differ = 0;
    for (size_t i = 0; i < MAX_N; i++) {
        const char *left = a, *right = b;
        n_differ += value_of(&left, i) != value_of(&right, i);
    }
    check(n_differ > MAX_N / 10);
    return check_done();
}
