/* test_experts.c: rows sorted by expert, and the sum over a token's experts, against their definitions; and that ranks which hold some of
 * the experts each give, joined, the bits of one rank that holds all. */
#include "base/random.h"
#include "comm/tree.h"
#include "graph/mesh.h"
#include "run/instr.h"
#include "tests/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_EXPERTS = 160, MAX_CHOSEN = 64, MAX_ROWS = 24, MAX_COLUMNS = 600, MAX_RANKS = 8, MAX_PAIRS = MAX_ROWS * MAX_CHOSEN };

/* ---- a step of tokens at their experts ---- */
struct routed {
    uint32_t n_experts, n_chosen, n_rows, n_columns;
    int32_t ids[MAX_PAIRS];                         /* [row][choice], as a router gives them: in no order of id */
    float weights[MAX_PAIRS];
};

/* Magnitudes from 2^-20 to 2^20, so that another order of additions gives other bits; now and then a zero of either sign. */
static float odd_float(uint64_t key, uint64_t i)
{
    uint64_t r = random_u64(key, i);
    if (r % 61 == 0)
        return r & 64 ? -0.0f : 0.0f;
    return (float)(int32_t)(r >> 32) * 0x1p-31f * (float)(1u << (r & 31) % 21) / (float)(1u << (r >> 5 & 31) % 21);
}

static void choose(struct routed *routed, uint64_t key)
{
    for (uint32_t row = 0; row < routed->n_rows; row++) {
        int32_t all[MAX_EXPERTS];
        for (uint32_t e = 0; e < routed->n_experts; e++)
            all[e] = (int32_t)e;
        for (uint32_t i = 0; i < routed->n_chosen; i++) {
            uint32_t at = row * routed->n_chosen + i, other = i + (uint32_t)(random_u64(key, at) % (routed->n_experts - i));
            routed->ids[at] = all[other];
            all[other] = all[i];
            routed->weights[at] = odd_float(key + 1, at);
        }
    }
}

/* What expert e makes of a row, column i. */
static float expert_output(const struct routed *routed, uint32_t row, uint32_t expert, uint32_t i)
{
    return odd_float(7, ((uint64_t)row * routed->n_experts + expert) * MAX_COLUMNS + i);
}

/* ---- a program of two instructions ---- */
struct rank {
    struct mesh mesh;
    struct program program;
    struct node_attr attr;
    struct instr sort, sum;
    uint32_t active[MAX_EXPERTS + 1], begin[MAX_EXPERTS + 1];
    int32_t row_from[MAX_PAIRS], row_to[MAX_PAIRS];
    float *y, *parts;                               /* [pairs][columns], [parts][rows][columns] */
};

static struct operand operand(void *base, uint32_t n_columns, size_t element_bytes)
{
    return (struct operand){ .base = base, .row_bytes = n_columns * element_bytes, .n_columns = n_columns };
}

/* came: rows are those that came from other ranks, of at most MAX_ROWS. */
static void rank_init(struct rank *r, struct routed *routed, struct range experts, const struct tree *tree, bool came)
{
    uint32_t k = routed->n_chosen;
    mesh_parse(&r->mesh, "tp=1");
    r->attr = (struct node_attr){ .experts = experts, .tree = *tree };
    r->program = (struct program){ .options.mesh = &r->mesh, .active = r->active };
    r->program.count[SYMBOL_T] = came ? 1 : routed->n_rows;
    r->program.count[SYMBOL_U] = MAX_ROWS;
    r->program.n_came = came ? routed->n_rows : 0;
    r->sort = (struct instr){ .op = OP_sort_by_expert, .attr = &r->attr, .rows = { came ? SYMBOL_U : SYMBOL_T, false } };
    r->sort.in[0] = operand(routed->ids, k, sizeof(int32_t));
    r->sort.out[0] = operand(r->row_from, 1, sizeof(int32_t));
    r->sort.out[1] = operand(r->row_to, k, sizeof(int32_t));
    r->sort.out[2] = operand(r->begin, 1, sizeof(uint32_t));
    r->sum = r->sort;
    r->sum.op = OP_expert_sum;
    r->sum.in[0] = operand(r->y, routed->n_columns, sizeof(float));
    r->sum.in[1] = r->sort.out[1];
    r->sum.in[2] = r->sort.in[0];
    r->sum.in[3] = operand(routed->weights, k, sizeof(float));
    r->sum.out[0] = operand(r->parts, routed->n_columns, sizeof(float));
    memset(r->row_from, 0x55, sizeof r->row_from);
    memset(r->row_to, 0x55, sizeof r->row_to);
    memset(r->begin, 0x55, sizeof r->begin);
}

/* Sorts, lets the experts compute, sums. */
static void rank_run(struct rank *r, const struct routed *routed)
{
    program_sort_by_expert(&r->program, &r->sort);
    for (uint32_t e = r->attr.experts.begin; e < r->attr.experts.end; e++)
        for (uint32_t at = r->begin[e - r->attr.experts.begin]; at < r->begin[e - r->attr.experts.begin + 1]; at++)
            for (uint32_t i = 0; i < routed->n_columns; i++)
                r->y[(size_t)at * routed->n_columns + i] = expert_output(routed, (uint32_t)r->row_from[at], e, i);
    for (uint32_t row = 0; row < routed->n_rows; row++)
        program_expert_sum(&r->program, &r->sum, row, 0);
}

/* ---- sorting ---- */
static void check_sorted(const struct rank *r, const struct routed *routed, uint32_t max_rows)
{
    struct range here = r->attr.experts;
    uint32_t k = routed->n_chosen, at = 0, n_active = 0;
    bool same = true;
    for (uint32_t e = here.begin; e < here.end; e++) {
        uint32_t first = at;
        check_int(r->begin[e - here.begin], at);
        for (uint32_t i = 0; i < routed->n_rows * k; i++)
            if (routed->ids[i] == (int32_t)e) {
                same = same && r->row_from[at] == (int32_t)(i / k) && r->row_to[i] == (int32_t)at;
                at++;
            }
        if (at > first)
            check_int(r->active[n_active++], e - here.begin);
    }
    check_int(r->begin[here.end - here.begin], at);
    check_int(r->program.n_pairs, at);
    check_int(r->program.n_active, n_active);
    for (uint32_t i = 0; i < routed->n_rows * k; i++)
        if ((uint32_t)routed->ids[i] < here.begin || (uint32_t)routed->ids[i] >= here.end)
            same = same && r->row_to[i] == -1;
    for (; at < max_rows * k; at++)
        same = same && r->row_from[at] == 0;
    check(same && "rows are where the definition has them");
    if (at < MAX_PAIRS)
        check_int(r->row_from[at], 0x55555555);
}

static void test_sort(void)
{
    static const struct { uint32_t n_experts, n_chosen, n_rows; struct range here; bool came; } rows[] = {
        { 8, 2, 17, { 0, 8 }, false },      { 8, 2, 17, { 3, 5 }, false },          { 8, 2, 17, { 0, 0 }, false },
        { 1, 1, 3, { 0, 1 }, false },       { 160, 64, 24, { 0, 160 }, false },     { 160, 64, 24, { 100, 160 }, true },
        { 128, 8, 5, { 64, 128 }, true },   { 64, 6, 0, { 0, 64 }, true },          { 5, 5, 24, { 1, 4 }, true },
    };
    static struct routed routed;
    static struct rank r;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        check_begin("sort: %u of %u experts for %u %s, %u to %u here", rows[i].n_chosen, rows[i].n_experts, rows[i].n_rows,
                    rows[i].came ? "rows that came" : "tokens", rows[i].here.begin, rows[i].here.end);
        routed = (struct routed){ .n_experts = rows[i].n_experts, .n_chosen = rows[i].n_chosen, .n_rows = rows[i].n_rows };
        choose(&routed, i);
        rank_init(&r, &routed, rows[i].here, &(struct tree){ 0 }, rows[i].came);
        program_sort_by_expert(&r.program, &r.sort);
        check_sorted(&r, &routed, rows[i].came ? MAX_ROWS : rows[i].n_rows);
    }
    check_begin("sort: ids that are none are nobody's");         /* what a step that has failed may leave */
    routed = (struct routed){ .n_experts = 8, .n_chosen = 2, .n_rows = 2, .ids = { -1, 8, INT32_MIN, INT32_MAX } };
    rank_init(&r, &routed, (struct range){ 2, 8 }, &(struct tree){ 0 }, false);
    program_sort_by_expert(&r.program, &r.sort);
    check_sorted(&r, &routed, 2);
}

/* ---- sums ---- */
struct sum {
    bool is_there;
    float value;
};

/* The definition, over groups [lo, hi): in ascending order of expert within a group, a complete tree above. */
static struct sum defined(const struct routed *routed, const struct label_info *label, uint32_t lo, uint32_t hi, uint32_t row, uint32_t i)
{
    struct sum sum = { false, 0 };
    struct range group = label_group(label, lo);
    if (hi - lo > 1) {
        struct sum left = defined(routed, label, lo, (lo + hi) / 2, row, i), right = defined(routed, label, (lo + hi) / 2, hi, row, i);
        if (left.is_there && right.is_there)
            return (struct sum){ true, left.value + right.value };
        return left.is_there ? left : right;
    }
    for (uint32_t e = group.begin; e < group.end; e++)
        for (uint32_t c = 0; c < routed->n_chosen; c++)
            if (routed->ids[row * routed->n_chosen + c] == (int32_t)e) {
                volatile float product = routed->weights[row * routed->n_chosen + c] * expert_output(routed, row, e, i);
                sum = (struct sum){ true, sum.is_there ? sum.value + product : product };
            }
    return sum;
}

static float *floats(size_t n)
{
    float *p = malloc((n + 1) * sizeof *p);
    memset(p, 0x55, (n + 1) * sizeof *p);
    return p;
}

/* A part of a row that has none of the row's experts is -0 in every bit. */
static void check_absent(const struct rank *r, const struct routed *routed, const struct tree *tree)
{
    uint32_t n = routed->n_columns;
    for (uint32_t row = 0; row < routed->n_rows; row++) {
        bool has_one = false, is_zero = true;
        for (uint32_t c = 0; c < routed->n_chosen; c++)
            has_one |= r->row_to[row * routed->n_chosen + c] >= 0;
        for (uint32_t i = 0; i < tree->n_parts * n; i++) {
            union { float f; uint32_t u; } value = { .f = r->parts[((size_t)(i / n) * routed->n_rows + row) * n + i % n] };
            is_zero = is_zero && value.u == 0x80000000u;
        }
        if (!has_one)
            check(is_zero);
    }
}

/* n ranks share the experts by weight (NULL: alike); their parts are joined. */
static void sum_on_ranks(float *out, struct routed *routed, const struct label_info *label, const uint32_t *weight, uint32_t n)
{
    static struct rank rank[MAX_RANKS];
    size_t n_floats = (size_t)routed->n_rows * routed->n_columns;
    const float *part[MAX_GROUPS];
    uint32_t first[MAX_RANKS + 1];
    struct joined_tree joined = { .first = first };
    struct label_info labels[N_LABELS] = { [LABEL_EXPERTS] = *label };
    label_join(&joined, label, weight, n, 0, n);
    check_int(joined.n_roots, 1);
    for (uint32_t r = 0; r < n; r++) {
        struct tree tree;
        label_rank_tree(&tree, label, weight, n, r);
        check_int(tree.n_parts, first[r + 1] - first[r]);
        rank[r].y = floats((size_t)routed->n_rows * routed->n_chosen * routed->n_columns);
        rank[r].parts = floats(tree.n_parts * n_floats);
        rank_init(&rank[r], routed, label_range(labels, LABEL_EXPERTS, weight, n, r), &tree, r % 2 == 1);
        rank_run(&rank[r], routed);
        check_absent(&rank[r], routed, &tree);
        check(memcmp(rank[r].parts + tree.n_parts * n_floats, "UUUU", 4) == 0 && "nothing is written behind the parts");
        for (uint32_t i = 0; i < tree.n_parts; i++)
            part[first[r] + i] = rank[r].parts + i * n_floats;
    }
    tree_reduce_f32(&out, 1, part, joined.n_merges, joined.n_parts, n_floats);
    for (uint32_t r = 0; r < n; r++) {
        free(rank[r].y);
        free(rank[r].parts);
    }
}

static void test_sum(void)
{
    static const struct { uint32_t n_experts, n_chosen, n_columns, n_groups; } rows[] = {
        { 4, 1, 1, 0 },  { 8, 2, 7, 0 },     { 8, 8, 257, 0 },  { 12, 3, 33, 0 },  { 60, 4, 256, 0 },  { 64, 6, 600, 0 },
        { 128, 8, 96, 0 }, { 128, 33, 17, 64 }, { 160, 64, 300, 0 }, { 5, 2, 40, 0 }, { 1, 1, 300, 0 }, { 64, 64, 9, 64 },
    };
    static const struct { uint32_t n, weight[MAX_RANKS]; } ranks[] = {
        { 1, { 1 } }, { 2, { 1, 1 } }, { 2, { 5, 3 } }, { 3, { 1, 0, 1 } }, { 3, { 1, 6, 1 } }, { 4, { 1, 1, 1, 1 } },
        { 5, { 1, 1, 1, 1, 1 } }, { 8, { 1, 1, 1, 1, 1, 1, 1, 1 } },
    };
    static struct routed routed;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct label_info label = { .n_elements = rows[i].n_experts, .width = 1, .unit = 1, .n_groups = rows[i].n_groups };
        routed = (struct routed){
            .n_experts = rows[i].n_experts, .n_chosen = rows[i].n_chosen, .n_rows = 6, .n_columns = rows[i].n_columns,
        };
        choose(&routed, 100 + i);
        size_t n_floats = (size_t)routed.n_rows * routed.n_columns;
        float *want = floats(n_floats), *got = floats(n_floats);
        for (uint32_t at = 0; at < n_floats; at++)
            want[at] = defined(&routed, &label, 0, label_n_groups(&label), at / routed.n_columns, at % routed.n_columns).value;
        for (size_t r = 0; r < COUNT_OF(ranks); r++) {
            char name[64];
            check_begin("sum: %u of %u experts, %u columns, %u groups, on %u ranks (%zu)", routed.n_chosen, routed.n_experts,
                        routed.n_columns, label_n_groups(&label), ranks[r].n, r);
            snprintf(name, sizeof name, "of %u ranks", ranks[r].n);
            sum_on_ranks(got, &routed, &label, ranks[r].weight, ranks[r].n);
            check_bytes(name, got, want, n_floats * sizeof *got);
        }
        free(want);
        free(got);
    }
}

int main(void)
{
    test_sort();
    test_sum();
    return check_done();
}
