/* test_partition.c: units, groups, shares and the canonical tree.
 *
 * The property that everything stands on: the sum that ranks make of their maximal subtrees, joined, is bit for bit the sum that
 * one rank makes, for every number of ranks and every share in whole groups. */
#include "graph/partition.h"
#include "base/error.h"
#include "base/random.h"
#include "tests/check.h"

#include <string.h>

#define HEADS(n, width_, unit_) { .n_elements = (n), .width = (width_), .unit = (unit_) }

static void test_share_items(void)
{
    static const struct { const char *name; uint32_t n_items, n_ranks, weight[4], want[4]; } rows[] = {
        { "eight on two",               8, 2, { 1, 1 },       { 4, 4 } },
        { "nine on two",                9, 2, { 1, 1 },       { 4, 5 } },
        { "a fast and a slow rank",    16, 2, { 5, 3 },       { 10, 6 } },
        { "more ranks than items",      2, 3, { 1, 1, 1 },    { 0, 1, 1 } },
        { "one with nothing",           8, 3, { 1, 0, 1 },    { 4, 0, 4 } },
        { "nothing to deal",            0, 2, { 1, 1 },       { 0, 0 } },
        { "thirty layers on four",     30, 4, { 1, 1, 1, 1 }, { 7, 8, 7, 8 } },
        { "large weights do not wrap",  8, 2, { 65535, 65535 }, { 4, 4 } },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        uint32_t end = 0;
        check_begin("share_items: %s", rows[i].name);
        for (uint32_t r = 0; r < rows[i].n_ranks; r++) {
            struct range range = share_items(rows[i].n_items, rows[i].weight, rows[i].n_ranks, r);
            check_int(range.begin, end);
            check_int(range.end - range.begin, rows[i].want[r]);
            end = range.end;
        }
        check_int(end, rows[i].n_items);
    }
    check_begin("share_items: equal parts differ by one at most");
    for (uint32_t n_items = 0; n_items < 70; n_items++)
        for (uint32_t n = 1; n < 20; n++)
            for (uint32_t r = 0; r < n; r++) {
                struct range range = share_items(n_items, NULL, n, r);
                check(range.end - range.begin == n_items / n || range.end - range.begin == n_items / n + 1);
            }
}

static void test_units(void)
{
    static const struct { uint32_t width, block, want; } rows[] = {
        { 64, 32, 1 }, { 32, 32, 1 }, { 16, 32, 2 }, { 8, 32, 4 }, { 1, 32, 32 }, { 1, 256, 256 }, { 96, 32, 1 }, { 80, 32, 2 }, { 20, 32, 8 }, { 1, 1, 1 }, { 7, 1, 1 },
    };
    check_begin("label_unit");
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        check_int(label_unit(rows[i].width, rows[i].block), rows[i].want);
    check_begin("label_n_groups: 16 from 2,048 columns on");
    check_int(label_n_groups(&(struct label_info)HEADS(2047, 1, 1)), 8);
    check_int(label_n_groups(&(struct label_info)HEADS(2048, 1, 1)), 16);
    check_int(label_n_groups(&(struct label_info)HEADS(9, 64, 1)), 8);
    check_int(label_n_groups(&(struct label_info)HEADS(32, 64, 1)), 16);
}

static const struct label_info shapes[] = {
    HEADS(9, 64, 1), HEADS(8, 8, 4), HEADS(6, 16, 2), HEADS(3, 32, 1), HEADS(1, 64, 1), HEADS(32, 64, 1), HEADS(40, 128, 1), HEADS(172, 1, 32),
    HEADS(224, 1, 32), HEADS(1536, 1, 32), HEADS(2080, 1, 32), HEADS(2048, 1, 256), HEADS(5461, 1, 32), HEADS(31, 1, 32), HEADS(7, 1, 1),
};

static void test_groups(void)
{
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        const struct label_info *label = &shapes[i];
        uint32_t end = 0, n_units = DIV_UP(label->n_elements, label->unit), n_groups = label_n_groups(label);
        check_begin("groups of %u elements in units of %u", label->n_elements, label->unit);
        for (uint32_t g = 0; g < n_groups; g++) {
            struct range range = label_group(label, g);
            check_int(range.begin, MIN(end, label->n_elements));
            check_int(range.begin, MIN(g * n_units / n_groups * label->unit, label->n_elements));
            check(range.end == label->n_elements || range.end % label->unit == 0);
            end = range.end;
        }
        check_int(end, label->n_elements);
    }
}

/* ---- ranges ---- */
static void test_heads(void)
{
    static const struct { const char *name; uint32_t heads, kv_heads, tp, weight[8]; struct range q[8], kv[8]; } rows[] = {
        { "nine heads on two ranks: 4 + 5, the KV head between them on both", 9, 3, 2, { 1, 1 }, { { 0, 4 }, { 4, 9 } }, { { 0, 2 }, { 1, 3 } } },
        { "nine heads on three ranks", 9, 3, 3, { 1, 1, 1 }, { { 0, 2 }, { 2, 5 }, { 5, 9 } }, { { 0, 1 }, { 0, 2 }, { 1, 3 } } },
        { "three heads on four ranks: one holds nothing", 3, 1, 4, { 1, 1, 1, 1 }, { { 0, 0 }, { 0, 1 }, { 1, 2 }, { 2, 3 } },
          { { 0, 0 }, { 0, 1 }, { 0, 1 }, { 0, 1 } } },
        { "shares 5:3", 8, 2, 2, { 5, 3 }, { { 0, 5 }, { 5, 8 } }, { { 0, 2 }, { 1, 2 } } },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct label_info labels[N_LABELS] = {
            [LABEL_HEADS] = HEADS(rows[i].heads, 64, 1),
            [LABEL_KV_HEADS] = { rows[i].kv_heads, 64, 1, LABEL_HEADS, rows[i].heads / rows[i].kv_heads, 0 },
        };
        check_begin("%s", rows[i].name);
        for (uint32_t r = 0; r < rows[i].tp; r++) {
            struct range q = label_range(labels, LABEL_HEADS, rows[i].weight, rows[i].tp, r), kv = label_range(labels, LABEL_KV_HEADS, rows[i].weight, rows[i].tp, r);
            check_int(q.end - q.begin, rows[i].q[r].end - rows[i].q[r].begin);
            check_int(kv.end - kv.begin, rows[i].kv[r].end - rows[i].kv[r].begin);
            if (q.begin < q.end) {
                check_int(q.begin, rows[i].q[r].begin);
                check_int(kv.begin, rows[i].kv[r].begin);
            }
        }
    }
}

/* Whatever is dealt, all of it is dealt once, in order; a vocabulary needs no whole groups. */
static void test_ranges_cover(void)
{
    check_begin("ranges cover every label once");
    for (size_t i = 0; i < COUNT_OF(shapes); i++)
        for (uint32_t n = 1; n <= 8; n++) {
            struct label_info labels[N_LABELS] = { [LABEL_FFN] = shapes[i], [LABEL_VOCAB] = { .n_elements = 301, .width = 1, .unit = 16 } };
            uint32_t end = 0, ids = 0;
            for (uint32_t r = 0; r < n; r++) {
                struct range range = label_range(labels, LABEL_FFN, NULL, n, r), vocab = label_range(labels, LABEL_VOCAB, NULL, n, r);
                if (range.begin < range.end)
                    check_int(range.begin, end);
                end = range.begin < range.end ? range.end : end;
                check_int(vocab.begin, ids);
                ids = vocab.end;
            }
            check_int(end, shapes[i].n_elements);
            check_int(ids, 301);
        }
}

/* ---- trees ---- */
/* The stack machine of the header, written again: pushes value[i], merges, and leaves what is left in `stack`. */
static uint32_t run_tree(float *stack, const float *value, const uint8_t *n_merges, uint32_t n)
{
    uint32_t depth = 0;
    for (uint32_t i = 0; i < n; i++) {
        stack[depth++] = value[i];
        for (uint32_t m = 0; m < n_merges[i]; m++, depth--)
            stack[depth - 2] += stack[depth - 1];
    }
    return depth;
}

/* The canonical tree by its definition: a complete binary tree over groups, an absent group is no +0. */
static bool sum_by_definition(float *sum, const struct label_info *label, const float *group_sum, uint32_t lo, uint32_t hi)
{
    if (hi - lo == 1) {
        struct range range = label_group(label, lo);
        *sum = group_sum[lo];
        return range.begin < range.end;
    }
    float a, b;
    bool has_a = sum_by_definition(&a, label, group_sum, lo, (lo + hi) / 2), has_b = sum_by_definition(&b, label, group_sum, (lo + hi) / 2, hi);
    *sum = has_a && has_b ? a + b : has_a ? a : b;
    return has_a || has_b;
}

static void check_joined(const struct label_info *label, const float *group_sum, const uint32_t *weight, uint32_t n)
{
    float parts[MAX_GROUPS], stack[MAX_GROUPS], want;
    uint32_t first[MAX_GROUPS + 1], n_parts = 0;
    struct joined_tree joined = { .first = first };
    label_join(&joined, label, weight, n, 0, n);
    for (uint32_t r = 0; r < n; r++) {
        struct range groups = share_items(label_n_groups(label), weight, n, r);
        struct tree tree;
        float leaves[MAX_GROUPS];
        uint32_t leaf = 0;
        label_rank_tree(&tree, label, weight, n, r);
        for (uint32_t g = groups.begin; g < groups.end; g++) {
            struct range range = label_group(label, g);
            if (range.begin == range.end)
                continue;
            if (!check(leaf < tree.n_leaves && tree.leaf[leaf].begin == range.begin && tree.leaf[leaf].end == range.end))
                return;
            leaves[leaf++] = group_sum[g];
        }
        check_int(tree.n_leaves, leaf);
        check_int(joined.first[r], n_parts);
        check_int(run_tree(parts + n_parts, leaves, tree.n_merges, tree.n_leaves), tree.n_parts);
        n_parts += tree.n_parts;
    }
    check_int(joined.n_parts, n_parts);
    check_int(joined.first[n], n_parts);
    check_int(run_tree(stack, parts, joined.n_merges, n_parts), 1);
    check_int(joined.n_roots, 1);
    sum_by_definition(&want, label, group_sum, 0, label_n_groups(label));
    check_bytes("the joined sum", &stack[0], &want, sizeof want);
}

/* Values of many magnitudes, so that another order would round otherwise. */
static void random_sums(float *sums, uint64_t key)
{
    for (uint32_t g = 0; g < MAX_GROUPS; g++) {
        uint64_t r = random_u64(key, g);
        sums[g] = ((float)(r >> 40) - 8388608.0f) * (float)(1u << (r & 15));
    }
}

static void test_trees(void)
{
    float sums[MAX_GROUPS];
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        uint32_t n_groups = label_n_groups(&shapes[i]);
        check_begin("the tree of %u elements of %u columns in units of %u", shapes[i].n_elements, shapes[i].width, shapes[i].unit);
        for (uint64_t seed = 0; seed < 20; seed++) {
            random_sums(sums, seed);
            for (uint32_t n = 1; n <= n_groups; n++)
                check_joined(&shapes[i], sums, NULL, n);
        }
        /* every split in two, and random ones, in whole groups */
        for (uint32_t a = 0; a <= n_groups; a++)
            check_joined(&shapes[i], sums, (const uint32_t[]){ a, n_groups - a }, 2);
        for (uint64_t seed = 0; seed < 200; seed++) {
            uint32_t weight[MAX_GROUPS] = { 0 }, n = 1 + (uint32_t)(random_u64(seed, 99) % n_groups);
            for (uint32_t g = 0; g < n_groups; g++)
                weight[random_u64(seed, g) % n]++;
            random_sums(sums, seed);
            check_joined(&shapes[i], sums, weight, n);
        }
    }
}

/* The test above compares sums; this shows that another tree would have given another. */
static void test_trees_can_differ(void)
{
    float sums[MAX_GROUPS], in_order, tree;
    uint32_t n_other = 0;
    check_begin("the tree is not the sum in order");
    for (uint64_t seed = 0; seed < 20; seed++) {
        random_sums(sums, seed);
        in_order = sums[0];
        for (uint32_t g = 1; g < 8; g++)
            in_order += sums[g];
        sum_by_definition(&tree, &shapes[0], sums, 0, 8);
        n_other += in_order != tree;
    }
    check(n_other > 3);
}

static void test_subtrees(void)
{
    struct tree tree;
    const struct label_info *eight = &(struct label_info)HEADS(8, 64, 1);
    check_begin("shares 5:3 of 8 groups send {0-3},{4} and {5},{6,7}");
    label_rank_tree(&tree, eight, (const uint32_t[]){ 5, 3 }, 2, 0);
    check_int(tree.n_leaves, 5);
    check_int(tree.n_parts, 2);
    label_rank_tree(&tree, eight, (const uint32_t[]){ 5, 3 }, 2, 1);
    check_int(tree.n_leaves, 3);
    check_int(tree.n_parts, 2);
}

/* Twice `half` ranks: the parts of two neighbours are joined, and are then what one of `half` ranks holds. */
static void check_joined_in_runs(const struct label_info *label, const float *group_sum, uint32_t half)
{
    float want[MAX_GROUPS], got[MAX_GROUPS];
    for (uint32_t run = 0; run < half; run++) {
        float leaves[MAX_GROUPS], parts[MAX_GROUPS];
        uint32_t first[3], n_parts = 0;
        struct joined_tree joined = { .first = first };
        struct tree tree;
        for (uint32_t r = 2 * run; r < 2 * run + 2; r++) {
            label_rank_tree(&tree, label, NULL, 2 * half, r);
            for (uint32_t i = 0; i < tree.n_leaves; i++)
                for (uint32_t g = 0; g < label_n_groups(label); g++)
                    if (label_group(label, g).begin == tree.leaf[i].begin && label_group(label, g).end == tree.leaf[i].end)
                        leaves[i] = group_sum[g];
            n_parts += run_tree(parts + n_parts, leaves, tree.n_merges, tree.n_leaves);
        }
        label_join(&joined, label, NULL, 2 * half, 2 * run, 2 * run + 2);
        check_int(joined.n_parts, n_parts);
        check_int(run_tree(got, parts, joined.n_merges, n_parts), joined.n_roots);
        label_rank_tree(&tree, label, NULL, half, run);
        for (uint32_t i = 0; i < tree.n_leaves; i++)
            for (uint32_t g = 0; g < label_n_groups(label); g++)
                if (label_group(label, g).begin == tree.leaf[i].begin && label_group(label, g).end == tree.leaf[i].end)
                    leaves[i] = group_sum[g];
        check_int(run_tree(want, leaves, tree.n_merges, tree.n_leaves), joined.n_roots);
        check_bytes("the run's sums", got, want, joined.n_roots * sizeof *want);
    }
}

static void test_runs(void)
{
    float sums[MAX_GROUPS];
    for (size_t i = 0; i < COUNT_OF(shapes); i++)
        for (uint32_t half = 1; half <= 4; half++) {
            check_begin("%u elements in units of %u: pairs of %u ranks joined", shapes[i].n_elements, shapes[i].unit, 2 * half);
            random_sums(sums, half);
            check_joined_in_runs(&shapes[i], sums, half);
        }
}

/* ---- what is refused ---- */
static void test_check(void)
{
    static const struct { const char *name; uint32_t heads, width, n, weight[3]; int want; } rows[] = {
        { "equal, eight ranks",               9, 64, 8,  { 0 },       0 },
        { "equal, more ranks than groups",    9, 64, 9,  { 0 },       ERR_USAGE },
        { "sixteen groups take nine ranks",  32, 64, 9,  { 0 },       0 },
        { "eighths",                          9, 64, 2,  { 5, 3 },    0 },
        { "quarters written large",           9, 64, 2,  { 300, 100 }, 0 },
        { "thirds",                           9, 64, 2,  { 1, 2 },    ERR_USAGE },
        { "sixteenths of eight groups",       9, 64, 2,  { 11, 5 },   ERR_USAGE },
        { "sixteenths of sixteen groups",    32, 64, 2,  { 11, 5 },   0 },
        { "nothing for one",                  9, 64, 3,  { 4, 0, 4 }, 0 },
        { "nothing for all",                  9, 64, 2,  { 0, 0 },    ERR_USAGE },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct label_info label = HEADS(rows[i].heads, rows[i].width, 1);
        check_begin("label_check: %s", rows[i].name);
        bool equal = strncmp(rows[i].name, "equal", 5) == 0 || rows[i].n > 3;
        check_int(label_check(&label, "heads", "tp", equal ? NULL : rows[i].weight, rows[i].n), rows[i].want);
    }
}

int main(void)
{
    test_share_items();
    test_units();
    test_groups();
    test_heads();
    test_ranges_cover();
    test_trees();
    test_trees_can_differ();
    test_subtrees();
    test_runs();
    test_check();
    return check_done();
}
