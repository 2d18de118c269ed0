/* test_shard_experts.c: how a mixture of experts is spread: whole experts on each rank, the canonical tree over expert id cut and joined
 * again, tokens that travel where experts are spread over groups of dp. */
#include "base/error.h"
#include "tests/graph/graphs.h"
#include "tests/graph/hashes.h"

enum { EXPERTS = 12, USED = 3, EXPERT_FFN = 64 };

/* One layer: x + experts(norm(x)). */
static struct graph *experts_graph(enum dtype type, bool int8_activations)
{
    struct graph *g = open_graph();
    struct dim all = DIM_OF(EXPERTS, LABEL_EXPERTS, 1), ffn = DIM(EXPERT_FFN), embd = DIM(DIM_X);
    g->int8_activations = int8_activations;
    graph_label(g, LABEL_EXPERTS, EXPERTS, EXPERT_FFN, 1);
    g->layer = 0;
    struct tensor *x = input_rows(g), *h = norm(g, x, "norm");
    struct tensor *logits = graph_matmul(g, h, graph_weight(g, "router", DTYPE_F32, WEIGHT_MATMUL, DIM(EXPERTS), embd));
    struct node_attr attr = { .n_used = USED, .normalise = true, .scale = 1 };
    struct tensor *y = graph_experts(g, h, logits, graph_expert_weight(g, "gate", false, type, all, ffn, embd),
                                     graph_expert_weight(g, "up", false, type, all, ffn, embd),
                                     graph_expert_weight(g, "down", false, type, all, embd, ffn), &attr);
    graph_output(graph_add(g, x, y), "out");
    return g;
}

static void test_built(void)
{
    struct graph *g = experts_graph(DTYPE_Q8_0, true);
    static const enum op ops[] = {
        OP_route, OP_dispatch, OP_sort_by_expert, OP_rows, OP_expert_matmul, OP_expert_matmul, OP_swiglu, OP_quantize, OP_expert_matmul,
        OP_expert_sum, OP_combine, OP_add,
    };
    check_begin("experts: a model says route, dispatch, sort, three matmuls, sum and combine");
    const struct node *n = find(g, OP_route, NULL);
    for (size_t i = 0; i < COUNT_OF(ops); i++) {
        while (n && n->op == OP_quantize && ops[i] != OP_quantize)      /* of x, before it travels */
            n = n->next;
        if (!check(n != NULL))
            break;
        check_text(op_info[n->op].name, op_info[ops[i]].name);
        n = n->next;
    }
    n = find(g, OP_dispatch, NULL);
    check(n->attr.n_ranks == 0 && n->in[0]->type == DTYPE_ACT8 && n->out[0]->type == DTYPE_ACT8);
    n = find(g, OP_rows, NULL);
    check_int(n->out[0]->dim[0].mul, 1);
    check_int(n->out[0]->dim[0].symbol, SYMBOL_P);
    check_int((int64_t)g->symbol_max[SYMBOL_P], (int64_t)g->symbol_max[SYMBOL_T] * USED);
    check_int(graph_verify(g), 0);
    graph_close(g);
}

static void test_refused(void)
{
    struct graph *g = open_graph();
    struct dim all = DIM_OF(EXPERTS, LABEL_EXPERTS, 1), few = DIM_OF(EXPERTS - 1, LABEL_EXPERTS, 1);
    struct dim ffn = DIM(EXPERT_FFN), embd = DIM(DIM_X);
    graph_label(g, LABEL_EXPERTS, EXPERTS, EXPERT_FFN, 1);
    struct tensor *x = input_rows(g);
    struct tensor *logits = graph_matmul(g, x, graph_weight(g, "router", DTYPE_F32, WEIGHT_MATMUL, DIM(EXPERTS), embd));
    struct tensor *gate = graph_expert_weight(g, "gate", false, DTYPE_F32, all, ffn, embd);
    struct tensor *down = graph_expert_weight(g, "down", false, DTYPE_F32, all, embd, ffn);
    struct node_attr attr = { .n_used = USED, .scale = 1 };
    const struct {
        const char *what;
        struct tensor *gate, *up, *down;
        uint32_t n_used;
    } rows[] = {
        { "fewer matrices than experts", gate, graph_expert_weight(g, "few", false, DTYPE_F32, few, ffn, embd), down, USED },
        { "a matrix for all", gate, graph_weight(g, "flat", DTYPE_F32, WEIGHT_MATMUL, ffn, embd), down, USED },
        { "gate in blocks and up not", graph_expert_weight(g, "blocks", false, DTYPE_Q8_0, all, ffn, embd), gate, down, USED },
        { "other columns", gate, down, down, USED },
        { "no expert chosen", gate, gate, down, 0 },
        { "more chosen than there are", gate, gate, down, EXPERTS + 1 },
        { "a weight that is missing", gate, NULL, down, USED },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        check_begin("experts: refused: %s", rows[i].what);
        attr.n_used = rows[i].n_used;
        check(!graph_experts(g, x, logits, rows[i].gate, rows[i].up, rows[i].down, &attr));
    }
    check_begin("experts: and what fits is built");
    attr.n_used = EXPERTS;
    check(graph_experts(g, x, logits, gate, gate, down, &attr) != NULL);
    graph_close(g);
}

/* ---- who holds what ---- */
static const struct { const char *layout, *shares; uint32_t n_ep; } layouts[] = {
    { "tp=1", NULL, 1 }, { "ep=2", NULL, 2 }, { "tp=4", NULL, 4 }, { "tp=5", NULL, 5 }, { "tp=2", "5,3", 2 }, { "tp=2", "0,1", 2 },
    { "tp=3", "1,0,1", 3 }, { "dp=2,ep=2", NULL, 2 }, { "dp=4,ep=4", NULL, 4 }, { "dp=2,tp=2,ep=4", NULL, 4 },
    { "dp=4,tp=2,ep=4", NULL, 4 }, { "dp=2,tp=3,ep=6", NULL, 6 }, { "dp=2,tp=2,ep=4", "3,1", 4 },
};

/* Ranks of one set of experts, in the order of their number in it. */
static uint32_t rank_at(const struct mesh *mesh, uint32_t number)
{
    for (uint32_t rank = 0; rank < mesh_n_ranks(mesh); rank++)
        if (mesh_coordinate(mesh, rank, AXIS_EP) == number && mesh_coordinate(mesh, rank, AXIS_DP) < mesh_island(mesh))
            return rank;
    check(!"there is such a rank");
    return 0;
}

/* What a rank holds is the same in its weights, in its sort and in its part of the tree. */
static void check_held(struct graph *mine, struct range want)
{
    static const char *const names[] = { "gate", "up", "down" };
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        const struct weight *w = weight_of(mine, names[i]);
        if (!w)
            continue;
        check_int(w->experts.begin, want.begin);
        check_int(w->experts.end, want.end);
        check_int(w->rows.end - w->rows.begin, w->n_rows);             /* whole experts */
        check_int(w->columns.end - w->columns.begin, w->n_columns);
        check_int(w->stored.end - w->stored.begin, (want.end - want.begin) * DIV_UP(w->n_rows, WEIGHT_PANEL));
    }
    const struct node *sort = find(mine, OP_sort_by_expert, NULL), *sum = find(mine, OP_expert_sum, NULL);
    if (!check(sort && sum))
        return;
    check_int(sort->attr.experts.begin, want.begin);
    check_int(sort->attr.experts.end, want.end);
    uint32_t at = want.begin;
    for (uint32_t i = 0; i < sum->attr.tree.n_leaves; i++) {
        check_int(sum->attr.tree.leaf[i].begin, at);
        at = sum->attr.tree.leaf[i].end;
    }
    check_int(at, want.end);
}

static void test_held(void)
{
    struct graph *g = experts_graph(DTYPE_F32, false);
    for (size_t i = 0; i < COUNT_OF(layouts); i++) {
        struct mesh mesh;
        uint32_t next = 0;
        check_begin("experts: %s %s: every expert is on one rank", layouts[i].layout, layouts[i].shares ? layouts[i].shares : "");
        mesh_parse(&mesh, layouts[i].layout);
        check_int(mesh_parse_shares(&mesh, layouts[i].shares, NULL), 0);
        check_int(mesh.size[AXIS_EP], layouts[i].n_ep);
        for (uint32_t number = 0; number < layouts[i].n_ep; number++) {
            struct graph *mine = shard_as(g, layouts[i].layout, layouts[i].shares, false, rank_at(&mesh, number));
            if (!mine)
                continue;
            struct range held = find(mine, OP_sort_by_expert, NULL)->attr.experts;
            if (held.end > held.begin)                                 /* who holds nothing says [0, 0) */
                check_int(held.begin, next);
            next = MAX(next, held.end);
            check_held(mine, held);
            graph_close(mine);
        }
        check_int(next, EXPERTS);
    }
    check_begin("experts: shares of 5 and 3 are five and three of eight groups");
    struct graph *mine = shard_as(g, "tp=2", "5,3", false, 0);
    check_int(find(mine, OP_sort_by_expert, NULL)->attr.experts.end, 7);       /* floor(5 * 12 / 8) */
    graph_close(mine);
    graph_close(g);
}

/* ---- how sums meet ---- */
/* The additions of a stack machine as text: leaves are letters. */
struct stack {
    char entry[MAX_GROUPS][256];
    uint32_t depth;
};

static void push(struct stack *s, const char *text, uint32_t n_merges)
{
    snprintf(s->entry[s->depth++], sizeof s->entry[0], "%s", text);
    for (; n_merges; n_merges--, s->depth--) {
        char joined[600];
        snprintf(joined, sizeof joined, "(%s%s)", s->entry[s->depth - 2], s->entry[s->depth - 1]);
        snprintf(s->entry[s->depth - 2], sizeof s->entry[0], "%.255s", joined);
    }
}

static void push_tree(struct stack *s, const struct tree *tree)
{
    for (uint32_t i = 0; i < tree->n_leaves; i++)
        push(s, (char[]){ (char)('a' + tree->leaf[i].begin), 0 }, tree->n_merges[i]);
}

static void push_joined(struct stack *s, const struct stack *parts, const struct joined_tree *joined)
{
    check_int(parts->depth, joined->n_parts);
    for (uint32_t i = 0; i < joined->n_parts; i++)
        push(s, parts->entry[i], joined->n_merges[i]);
}

/* What one line along dp makes at home: the parts that one rank of tp has. */
static struct stack sums_of_line(const struct graph *g, size_t row, const struct mesh *mesh, uint32_t tp)
{
    struct stack parts = { .depth = 0 }, home = { .depth = 0 };
    uint32_t island = mesh_island(mesh);
    struct node_attr combine = { .n_ranks = 0 };
    for (uint32_t at = 0; at < island; at++) {
        struct graph *mine = shard_as(g, layouts[row].layout, layouts[row].shares, false, rank_at(mesh, tp * island + at));
        const struct node *sum = find(mine, OP_expert_sum, NULL), *n = find(mine, OP_combine, NULL);
        check_int(n != NULL, island > 1);
        uint32_t before = parts.depth;
        push_tree(&parts, &sum->attr.tree);
        check_int(parts.depth - before, sum->attr.tree.n_parts);
        if (n) {
            check_int(n->attr.joined.first[at], before);
            check_int(n->attr.joined.first[at + 1], parts.depth);
            check(!at || combine.joined.n_parts == n->attr.joined.n_parts);
            check(!at || !memcmp(combine.joined.n_merges, n->attr.joined.n_merges, MAX_GROUPS));
            combine = n->attr;
            combine.joined.first = NULL;                    /* it goes with its graph */
        }
        graph_close(mine);
    }
    if (island == 1)
        return parts;
    push_joined(&home, &parts, &combine.joined);
    check_int(home.depth, combine.joined.n_roots);
    return home;
}

/* The reduction along tp, of whichever rank. */
static void test_joined(void)
{
    struct graph *g = experts_graph(DTYPE_F32, false), *one = shard(g, "tp=1", 0);
    struct stack want = { .depth = 0 };
    push_tree(&want, &find(one, OP_expert_sum, NULL)->attr.tree);
    check_begin("experts: one rank adds 8 groups of 12 experts in one tree");
    check_int(want.depth, 1);
    check_text(want.entry[0], "(((ab)(de))((gh)(jk)))");
    for (size_t i = 0; i < COUNT_OF(layouts); i++) {
        struct mesh mesh;
        struct stack parts = { .depth = 0 }, got = { .depth = 0 };
        check_begin("experts: %s %s: the same tree", layouts[i].layout, layouts[i].shares ? layouts[i].shares : "");
        mesh_parse(&mesh, layouts[i].layout);
        mesh_parse_shares(&mesh, layouts[i].shares, NULL);
        for (uint32_t tp = 0; tp < mesh.size[AXIS_TP]; tp++) {
            struct stack line = sums_of_line(g, i, &mesh, tp);
            for (uint32_t k = 0; k < line.depth; k++)
                push(&parts, line.entry[k], 0);
        }
        struct graph *mine = shard_as(g, layouts[i].layout, layouts[i].shares, false, 0);
        const struct node *reduce = find(mine, OP_reduce_scatter, NULL);
        check_int(reduce != NULL, mesh.size[AXIS_TP] > 1);
        if (reduce) {
            check_int(reduce->attr.sum_label, LABEL_EXPERTS);
            push_joined(&got, &parts, &reduce->attr.joined);
        } else {
            got = parts;
        }
        check_int(got.depth, 1);
        check_text(got.entry[0], want.entry[0]);
        graph_close(mine);
    }
    graph_close(one);
    graph_close(g);
}

/* ---- tokens that travel ---- */
static void test_islands(void)
{
    struct graph *g = experts_graph(DTYPE_Q8_0, true);
    for (size_t i = 0; i < COUNT_OF(layouts); i++) {
        struct mesh mesh;
        mesh_parse(&mesh, layouts[i].layout);
        uint32_t island = mesh_island(&mesh), tp = mesh.size[AXIS_TP];
        for (uint32_t rank = 0; rank < mesh_n_ranks(&mesh); rank++) {
            check_begin("experts: %s %s, rank %u: %s", layouts[i].layout, layouts[i].shares ? layouts[i].shares : "", rank,
                        island > 1 ? "tokens travel" : "tokens stay");
            struct graph *mine = shard_as(g, layouts[i].layout, layouts[i].shares, false, rank);
            struct node *dispatch = find(mine, OP_dispatch, NULL), *combine = find(mine, OP_combine, NULL);
            check_int(count(mine, OP_dispatch), island > 1);
            check_int(count(mine, OP_combine), island > 1);
            check_int(mine->symbol_max[SYMBOL_U], mine->symbol_max[SYMBOL_T] * island);
            check_int(find(mine, OP_rows, NULL)->out[0]->dim[0].symbol, SYMBOL_P);
            check_int(mine->symbol_max[SYMBOL_P], mine->symbol_max[SYMBOL_U] * USED);
            check_int(find(mine, OP_expert_sum, NULL)->out[0]->dim[0].symbol, island > 1 ? SYMBOL_U : SYMBOL_T);
            if (island > 1 && check(dispatch && combine)) {
                uint32_t own = mesh_coordinate(&mesh, rank, AXIS_EP) % island;
                struct range held = find(mine, OP_sort_by_expert, NULL)->attr.experts;
                check_int(dispatch->attr.n_ranks, island);
                check_int(combine->attr.n_ranks, island);
                check_int(dispatch->attr.axis, AXIS_EP);
                check_int(combine->attr.axis, AXIS_EP);
                check_int(dispatch->attr.experts_of[own].begin, held.begin);
                check_int(dispatch->attr.experts_of[own].end, held.end);
                for (uint32_t k = 1; k < island; k++)
                    check_int(dispatch->attr.experts_of[k].begin, dispatch->attr.experts_of[k - 1].end);
                if (tp == 1)
                    check(dispatch->attr.experts_of[0].begin == 0 && dispatch->attr.experts_of[island - 1].end == EXPERTS);
                check(combine->in[1] == dispatch->out[3] && "the book of what went where");
                check_int(dispatch->out[3]->dim[0].mul, island);
                check_int(dispatch->out[3]->dim[0].add, 2 * island);
                check_int(combine->out[0]->dim[0].symbol, SYMBOL_T);
                check_int(tensor_n_parts(combine->out[0]), tp > 1 ? combine->attr.joined.n_roots : 1);
            }
            struct outputs want = run_graph(mine, false);
            check_int(fuse_all(mine), 0);
            check_int(count_all(mine, OP_expert_matmul), 2);           /* gate and up are one */
            check_int(pass_overlap(mine), 0);
            check_int(pass_place(mine, true, packed_bytes), 0);
            check_places(mine);
            struct outputs got = run_graph(mine, true);
            check_outputs(&got, &want);
            graph_close(mine);
        }
    }
    graph_close(g);
}

static void test_layouts_refused(void)
{
    struct mesh mesh;
    struct graph *g = experts_graph(DTYPE_F32, false), *dense = model_graph(), *mine = NULL;
    check_begin("experts: more ranks than groups");
    mesh_parse(&mesh, "dp=16,ep=16");
    check_int(pass_shard(&mine, g, &mesh, false, 0), ERR_USAGE);
    check_begin("experts: ep over dp for a model that has none");
    mesh_parse(&mesh, "dp=2,ep=2");
    check_int(pass_shard(&mine, dense, &mesh, false, 0), ERR_USAGE);
    check(strstr(error_text(), "has none") != NULL);
    graph_close(g);
    graph_close(dense);
}

/* ---- the verifier ---- */
static void test_verified(void)
{
    struct graph *g = experts_graph(DTYPE_F32, false);
    struct node *sort = find(g, OP_sort_by_expert, NULL), *first = find(g, OP_expert_matmul, NULL), *sum = find(g, OP_expert_sum, NULL);
    struct node *dispatch = find(g, OP_dispatch, NULL);
    struct { const char *what; struct tensor **operand, *wrong; } rows[] = {
        { "ids that are weights, to sort", &sort->in[0], dispatch->out[2] },
        { "ids that are weights, to dispatch", &dispatch->in[1], dispatch->in[2] },
        { "rows that are no beginnings", &first->in[1], sort->out[0] },
        { "rows of tokens as rows of experts", &sum->in[0], dispatch->out[0] },
        { "rows that are no choices", &sum->in[1], sort->out[0] },
        { "ids and weights exchanged", &sum->in[2], sum->in[3] },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct tensor *right = *rows[i].operand;
        check_begin("verify: %s", rows[i].what);
        check_int(graph_verify(g), 0);
        *rows[i].operand = rows[i].wrong;
        check(graph_verify(g) < 0);
        *rows[i].operand = right;
    }
    graph_close(g);
}

int main(void)
{
    test_built();
    test_refused();
    test_held();
    test_joined();
    test_islands();
    test_layouts_refused();
    test_verified();
    return check_done();
}
