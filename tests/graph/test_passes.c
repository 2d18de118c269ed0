/* test_passes.c: what each pass does to graphs made by hand, and that none of them changes what random graphs compute.
 * Sharding has tests of its own: test_shard.c, test_shard_experts.c, test_gathered.c. */
#include "base/error.h"
#include "base/random.h"
#include "tests/graph/graphs.h"
#include "tests/graph/hashes.h"

#include <stdlib.h>

static void test_simplify(void)
{
    struct graph *g = open_graph();
    struct tensor *x = input_rows(g), *a = norm(g, x, "w"), *b = norm(g, x, "w"), *c = norm(g, x, "v");
    check_begin("simplify: the same value once, dead nodes not at all, outputs kept");
    graph_swiglu(g, a, c);                      /* nobody uses it */
    graph_output(graph_add(g, graph_add(g, a, b), c), "out");
    struct outputs want = run_graph(g, false);
    check_int(count(g, OP_rms_norm), 3);
    check_int(pass_simplify(g), 0);
    check_int(count(g, OP_rms_norm), 2);
    check_int(count(g, OP_swiglu), 0);
    check_int(count(g, OP_add), 2);
    struct outputs got = run_graph(g, false);
    check_outputs(&got, &want);
    graph_close(g);

    g = open_graph();
    x = input_rows(g);
    check_begin("simplify: an output that equals a value keeps its name");
    a = norm(g, x, "w");
    b = norm(g, x, "w");
    graph_output(b, "late");
    graph_output(graph_add(g, a, x), "out");
    check_int(pass_simplify(g), 0);
    check_int(count(g, OP_rms_norm), 1);
    check(is_output_of(g, "late") && is_output_of(g, "out"));
    graph_close(g);

    g = open_graph();
    x = input_rows(g);
    check_begin("simplify: two outputs that are equal are both there");
    graph_output(norm(g, x, "w"), "one");
    graph_output(norm(g, x, "w"), "two");
    check_int(pass_simplify(g), 0);
    check(is_output_of(g, "one") && is_output_of(g, "two"));
    graph_close(g);

    g = open_graph();
    x = input_rows(g);
    check_begin("simplify: other attributes are another value");
    struct tensor *w = graph_weight(g, "w", DTYPE_F32, WEIGHT_VECTOR, DIM(1), DIM(DIM_X));
    graph_output(graph_add(g, graph_rms_norm(g, x, w, 1e-5f), graph_rms_norm(g, x, w, 1e-6f)), "out");
    check_int(pass_simplify(g), 0);
    check_int(count(g, OP_rms_norm), 2);
    graph_close(g);
}

static void test_fuse(void)
{
    struct graph *g = open_graph();
    struct tensor *x = input_rows(g);
    check_begin("fuse: QKV become one matmul, add + norm + quantize a chain");
    g->int8_activations = true;
    g->layer = 0;
    x = graph_add(g, x, x);
    struct tensor *h = norm(g, x, "w");
    struct tensor *q = matmul(g, h, "q"), *k = matmul(g, h, "k"), *v = matmul(g, h, "v");
    graph_output(graph_add(g, graph_add(g, q, k), v), "out");
    struct outputs want = run_graph(g, false);
    check_int(pass_simplify(g), 0);
    check_int(count(g, OP_quantize), 1);        /* three before */
    check_int(pass_fuse_matmuls(g), 0);
    check_int(count(g, OP_matmul), 1);
    check_int(pass_fuse_rows(g), 0);
    check_int(count(g, OP_quantize), 0);
    check_int(count(g, OP_row_chain), 2);
    struct outputs got = run_graph(g, false);
    check_outputs(&got, &want);
    graph_close(g);

    g = open_graph();
    check_begin("fuse: a value inside a chain that is wanted outside stays (GO-01)");
    x = input_rows(g);
    struct tensor *sum = graph_add(g, x, x);
    h = norm(g, sum, "w");
    graph_output(sum, "sum");
    struct tensor *m = matmul(g, h, "m");
    graph_output(graph_add(g, m, sum), "out");
    want = run_graph(g, false);
    check_int(pass_simplify(g), 0);
    check_int(fuse_all(g), 0);
    check(count(g, OP_row_chain) >= 1);
    check(is_output_of(g, "sum") && is_output_of(g, "out"));
    got = run_graph(g, false);
    check_outputs(&got, &want);
    check_int(pass_place(g, true, packed_bytes), 0);
    check(sum->has_buffer);
    got = run_graph(g, true);
    check_outputs(&got, &want);
    graph_close(g);
}

static void split_rows(struct tensor *t)
{
    t->placement[AXIS_TP] = (struct placement){ .kind = PLACE_SPLIT, .dim = 0 };
}

/* The steps of every chain of a kind, by operator; 0 ends it. */
static void check_steps(const struct graph *g, enum op kind, const enum op *want, uint32_t n_chains)
{
    const struct node *chain = NULL;
    check_int(count(g, kind), n_chains);
    while (n_chains-- && (chain = find(g, kind, chain)) != NULL) {
        uint32_t i = 0;
        for (; *want; want++, i++)
            if (check(i < chain->n_steps))
                check_text(op_info[chain->step[i]->op].name, op_info[*want].name);
        check_int(chain->n_steps, i);
        want++;
    }
}

static void check_chains(const struct graph *g, const enum op *want, uint32_t n_chains)
{
    check_steps(g, OP_row_chain, want, n_chains);
}

/* Its threads have other rows of a chain's first step in other moments than their own. */
static void test_fuse_other_rows(void)
{
    struct graph *g = open_graph();
    check_begin("fuse: who reads other rows is not joined with their maker");
    struct tensor *x = input_rows(g), *order = graph_input(g, "order", DTYPE_I32, DIM_T);
    g->layer = 0;
    struct tensor *sum = norm(g, graph_add(g, x, x), "v");
    graph_output(norm(g, graph_rows(g, sum, order), "w"), "out");
    check_int(fuse_all(g), 0);
    check_chains(g, (enum op[]){ OP_add, OP_rms_norm, 0, OP_rows, OP_rms_norm, 0 }, 2);
    check(find(g, OP_row_chain, NULL)->out[0] == sum);          /* so all of its rows are in memory */
    graph_close(g);

    g = open_graph();
    check_begin("fuse: but with whoever else is beside it");
    x = input_rows(g);
    order = graph_input(g, "order", DTYPE_I32, DIM_T);
    g->layer = 0;
    sum = graph_add(g, x, x);
    graph_output(graph_add(g, sum, graph_rows(g, x, order)), "out");
    check_int(fuse_all(g), 0);
    check_chains(g, (enum op[]){ OP_add, OP_rows, OP_add, 0 }, 1);
    graph_close(g);

    /* with one expert for a token there are as many rows of experts as of tokens */
    g = open_graph();
    check_begin("fuse: a sum over experts is not joined with the maker of their rows");
    x = input_rows(g);
    g->layer = 0;
    struct tensor *logits = graph_matmul(g, x, graph_weight(g, "router", DTYPE_F32, WEIGHT_MATMUL, DIM(4), DIM(DIM_X)));
    struct node *route = graph_node(g, OP_route, &logits, 1, 2, &(struct node_attr){ .n_used = 1 });
    struct node *sort = graph_node(g, OP_sort_by_expert, route->out, 1, 3, &(struct node_attr){ .experts = { 0, 4 } });
    struct tensor *y = norm(g, graph_rows(g, x, sort->out[0]), "w");
    struct node *added = graph_node(g, OP_expert_sum, (struct tensor *[]){ y, sort->out[1], route->out[0], route->out[1] }, 4, 1, NULL);
    graph_output(graph_add(g, x, added->out[0]), "out");
    check_int(fuse_all(g), 0);
    check_chains(g, (enum op[]){ OP_rows, OP_rms_norm, 0, OP_expert_sum, OP_add, 0 }, 2);
    graph_close(g);
}

static void test_fuse_split_rows(void)
{
    struct graph *g = open_graph();
    check_begin("fuse: rows that are split are not joined with rows that are not");
    struct tensor *x = input_rows(g), *a = graph_add(g, x, x), *b = norm(g, a, "b"), *c = norm(g, a, "c"), *d = norm(g, c, "d");
    split_rows(c);
    split_rows(d);
    graph_output(b, "b");
    graph_output(d, "d");
    check_int(fuse_all(g), 0);
    check_chains(g, (enum op[]){ OP_embed, OP_add, OP_rms_norm, 0, OP_rms_norm, OP_rms_norm, 0 }, 2);
    const struct node *chain = find(g, OP_row_chain, NULL);
    check(chain && is_output_of(g, "b") && chain->n_out == 2);
    graph_close(g);
}

/* ---- epilogues ---- */
static void test_epilogues_of_a_model(void)
{
    struct graph *g = model_graph();
    struct outputs want = run_graph(g, false);
    struct strips strips;
    check_begin("epilogues: of a block as models have it");
    g->n_layers = N_LAYERS;
    check_int(pass_fuse_matmuls(g), 0);
    check_int(pass_fuse_epilogues(g), 0);
    enum op block[] = { OP_matmul, OP_rope, OP_kv_store, OP_rope, 0, OP_matmul, OP_add, 0, OP_matmul, OP_swiglu, 0, OP_matmul, OP_add, 0 };
    enum op all[N_LAYERS * COUNT_OF(block)];
    for (size_t i = 0; i < COUNT_OF(all); i++)
        all[i] = block[i % COUNT_OF(block)];
    check_steps(g, OP_matmul_chain, all, 4 * N_LAYERS);
    check_int(count(g, OP_matmul), 1);          /* the head */

    struct node *qkv = find(g, OP_matmul_chain, NULL), *output = find(g, OP_matmul_chain, qkv), *glu = find(g, OP_matmul_chain, output);
    check(chain_strips(&strips, qkv) == NULL);
    check_int(strips.n, 2);                     /* k with v, q alone */
    check(strips.of_product[0] == strips.of_product[1] && strips.of_product[1] != strips.of_product[2]);
    check_int(strips.of_step[2], strips.of_product[1]);
    check_int(strips.of_step[3], strips.of_product[2]);
    check_int(strips.strip[strips.of_product[1]].n_columns, KV_HEADS * WIDTH);
    check_int(strips.strip[0].unit, WIDTH);
    check(chain_strips(&strips, glu) == NULL);
    check_int(strips.n, 1);
    check_int(strips.strip[0].unit, WEIGHT_PANEL);
    check_int(qkv->n_out, 2);                   /* q turned and what is stored; k and v themselves nobody wants */
    struct outputs got = run_graph(g, false);
    check_outputs(&got, &want);
    graph_close(g);
}

/* Blocks of 32, and heads that no panel divides. */
static void test_units(void)
{
    static const struct { uint32_t head_dim, unit; } rows[] = { { 16, 32 }, { 32, 32 }, { 24, 96 }, { 40, 160 }, { 64, 64 } };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct graph *g = open_graph();
        struct strips strips;
        struct node_attr attr = { .head_dim = rows[i].head_dim, .eps = 1e-5f };
        struct dim heads = DIM(12 * rows[i].head_dim);
        check_begin("epilogues: heads of %u in blocks", rows[i].head_dim);
        struct tensor *x = input_rows(g), *w = graph_weight(g, "w", DTYPE_F32, WEIGHT_VECTOR, DIM(1), DIM(attr.head_dim));
        g->layer = 0;
        x = graph_matmul(g, x, graph_weight(g, "q", DTYPE_F32, WEIGHT_MATMUL, heads, DIM(DIM_X)));
        graph_output(graph_node(g, OP_quantize, (struct tensor *[]){ graph_head_norm(g, x, w, attr.head_dim, 1e-5f) }, 1, 1, NULL)->out[0], "out");
        check_int(pass_fuse_epilogues(g), 0);
        check_steps(g, OP_matmul_chain, (enum op[]){ OP_matmul, OP_head_norm, OP_quantize, 0 }, 1);
        check(find(g, OP_matmul_chain, NULL) && chain_strips(&strips, find(g, OP_matmul_chain, NULL)) == NULL);
        check_int(strips.strip[0].unit, rows[i].unit);
        graph_close(g);
    }
}

/* Each builds a graph with one product and says how many steps follow it. */
static struct tensor *sum_with_earlier(struct graph *g, struct tensor *x)
{
    struct tensor *other = norm(g, x, "v");
    return graph_add(g, other, matmul(g, x, "m"));
}

static struct tensor *sum_with_later(struct graph *g, struct tensor *x)
{
    struct tensor *y = matmul(g, x, "m");
    return graph_add(g, y, norm(g, x, "v"));
}

static struct tensor *whole_row(struct graph *g, struct tensor *x)
{
    return graph_add(g, norm(g, matmul(g, x, "m"), "v"), x);
}

static struct tensor *other_rows(struct graph *g, struct tensor *x)
{
    return graph_rows(g, matmul(g, x, "m"), graph_input(g, "order", DTYPE_I32, DIM_T));
}

static struct tensor *another_layer(struct graph *g, struct tensor *x)
{
    struct tensor *y = matmul(g, x, "m");
    g->layer++;
    return graph_add(g, y, x);
}

static struct tensor *wanted_itself(struct graph *g, struct tensor *x)
{
    struct tensor *y = matmul(g, x, "m");
    graph_output(y, "product");
    return graph_scale(g, graph_add(g, y, x), 2);
}

static struct tensor *split_sum(struct graph *g, struct tensor *x)
{
    struct tensor *y = graph_add(g, matmul(g, x, "m"), x);
    split_rows(y);
    return y;
}

static struct tensor *many_steps(struct graph *g, struct tensor *x)
{
    x = matmul(g, x, "m");
    for (uint32_t i = 0; i < NODE_MAX_STEPS + 2; i++)
        x = graph_scale(g, x, 2);
    return x;
}

static void test_epilogue_rules(void)
{
    static const struct { const char *what; struct tensor *(*build)(struct graph *g, struct tensor *x); uint32_t n_steps, n_out; } rows[] = {
        { "a sum with what was made before",                  sum_with_earlier, 1, 1 },
        { "not with what is made after the product",          sum_with_later, 0, 0 },
        { "not what needs its row whole, nor what follows",   whole_row, 0, 0 },
        { "not other rows",                                   other_rows, 0, 0 },
        { "not the next layer's",                             another_layer, 0, 0 },
        { "a product that is wanted itself stays an output",  wanted_itself, 2, 2 },
        { "not where a rank has its share of the rows",       split_sum, 0, 0 },
        { "as many steps as fit",                             many_steps, NODE_MAX_STEPS - 1, 1 },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct graph *g = open_graph();
        check_begin("epilogues: %s", rows[i].what);
        struct tensor *x = norm(g, input_rows(g), "first");
        g->layer = 0;
        graph_output(rows[i].build(g, x), "out");
        struct outputs want = run_graph(g, false);
        check_int(pass_fuse_epilogues(g), 0);
        const struct node *chain = find(g, OP_matmul_chain, NULL);
        check_int(chain ? chain->n_steps - 1 : 0, rows[i].n_steps);
        check_int(chain ? chain->n_out : 0, rows[i].n_out);
        struct outputs got = run_graph(g, false);
        check_outputs(&got, &want);
        check_int(pass_place(g, true, packed_bytes), 0);
        check_places(g);
        got = run_graph(g, true);
        check_outputs(&got, &want);
        graph_close(g);
    }
}

/* ---- prologues ---- */
static struct tensor *norm_before(struct graph *g, struct tensor *x)
{
    return matmul(g, norm(g, x, "v"), "m");
}

static struct tensor *norm_between(struct graph *g, struct tensor *x)
{
    return graph_scale(g, matmul(g, norm(g, x, "v"), "m"), 2);
}

static struct tensor *sum_is_wanted(struct graph *g, struct tensor *x)
{
    struct tensor *sum = graph_add(g, x, x), *y = matmul(g, norm(g, sum, "v"), "m");
    return graph_add(g, norm(g, y, "w"), sum);
}

static struct tensor *input_is_wanted(struct graph *g, struct tensor *x)
{
    struct tensor *h = norm(g, x, "v"), *y = matmul(g, h, "m");
    return graph_add(g, norm(g, y, "w"), h);
}

static struct tensor *input_is_output(struct graph *g, struct tensor *x)
{
    struct tensor *h = norm(g, x, "v");
    graph_output(h, "hidden");
    return matmul(g, h, "m");
}

static struct tensor *epilogue_takes_of_it(struct graph *g, struct tensor *x)
{
    struct tensor *sum = graph_add(g, x, x);
    return graph_add(g, matmul(g, norm(g, sum, "v"), "m"), sum);
}

static struct tensor *used_in_between(struct graph *g, struct tensor *x)
{
    struct tensor *sum = graph_add(g, x, x), *h = norm(g, sum, "v");
    struct tensor *other = matmul(g, sum, "m");
    return graph_add(g, norm(g, matmul(g, h, "k"), "w"), norm(g, other, "w"));
}

static void test_prologue_rules(void)
{
    static const struct { const char *what; struct tensor *(*build)(struct graph *g, struct tensor *x); uint32_t n_prologues, n_steps; } rows[] = {
        { "a norm before a product",                           norm_before, 1, 1 },
        { "and an epilogue behind it",                         norm_between, 1, 1 },
        { "what else it makes is for others",                  sum_is_wanted, 1, 2 },
        { "not what others want of the input",                 input_is_wanted, 0, 0 },
        { "not what is an output of the graph",                input_is_output, 0, 0 },
        { "not what the epilogue takes as well",               epilogue_takes_of_it, 0, 0 },
        { "not what someone uses before the product",          used_in_between, 0, 0 },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct graph *g = open_graph();
        check_begin("prologues: %s", rows[i].what);
        struct tensor *x = graph_rows(g, input_rows(g), graph_input(g, "first", DTYPE_I32, DIM_T));
        x = matmul(g, x, "first");
        g->layer = 0;
        graph_output(rows[i].build(g, x), "out");
        struct outputs want = run_graph(g, false);
        check_int(fuse_all(g), 0);
        uint32_t n_prologues = 0;
        for (const struct node *n = find(g, OP_matmul_chain, NULL); n; n = find(g, OP_matmul_chain, n))
            if (n->layer == 0 && n->product) {
                n_prologues++;
                check_int(n->product, rows[i].n_steps);
                check(n->out[n->n_out - 1] == n->step[n->product]->in[0]);          /* so it will have a place */
            }
        check_int(n_prologues, rows[i].n_prologues);
        struct outputs got = run_graph(g, false);
        check_outputs(&got, &want);
        check_int(pass_place(g, true, packed_bytes), 0);
        check_places(g);
        got = run_graph(g, true);
        check_outputs(&got, &want);
        graph_close(g);
    }
}

/* A layer is five regions, and the same on ranks with what they say to each other. */
static void test_regions_of_a_layer(void)
{
    static const struct { const char *layout; uint32_t n_regions, n_comm; } rows[] = { { "tp=1", 5, 0 }, { "tp=2,sp=1", 5, 2 }, { "tp=2,sp=2", 7, 4 } };
    struct graph *g = model_graph();
    g->int8_activations = true;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct graph *mine = shard(g, rows[i].layout, 1);
        uint32_t n_regions = 0, n_comm = 0;
        check_begin("prologues: the regions of a layer, %s", rows[i].layout);
        check_int(pass_simplify(mine), 0);
        check_int(fuse_all(mine), 0);
        for (const struct node *n = mine->first; n; n = n->next) {
            n_comm += n->layer == 1 && op_info[n->op].kind == KIND_COMM;
            n_regions += n->layer == 1 && op_info[n->op].kind != KIND_COMM;
        }
        check_int(n_regions, rows[i].n_regions);
        check_int(n_comm, rows[i].n_comm);
        graph_close(mine);
    }
    graph_close(g);
}

/* A sum over heads or ffn is whole only where one rank has all of it. */
static void test_epilogues_of_partial_sums(void)
{
    static const struct { const char *layout; uint32_t n_sums; } rows[] = {
        { "tp=1", 2 * N_LAYERS }, { "tp=2,sp=1", 0 }, { "tp=2,sp=2", 0 }, { "dp=2", 2 * N_LAYERS },
    };
    struct graph *g = model_graph();
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct graph *mine = shard(g, rows[i].layout, 0);
        uint32_t n_sums = 0;
        check_begin("epilogues: %s", rows[i].layout);
        check_int(fuse_all(mine), 0);
        for (const struct node *n = find(mine, OP_matmul_chain, NULL); n; n = find(mine, OP_matmul_chain, n))
            n_sums += n->step[n->n_steps - 1]->op == OP_add;
        check_int(n_sums, rows[i].n_sums);
        graph_close(mine);
    }
    graph_close(g);
}

/* ---- place ---- */
static void test_place(void)
{
    size_t bytes[2];
    for (int reuse = 0; reuse < 2; reuse++) {
        struct graph *g = open_graph();
        check_begin("place: %s", reuse ? "with reuse" : "without reuse");
        struct tensor *x = input_rows(g);
        for (int i = 0; i < 10; i++)
            x = graph_add(g, x, norm(g, x, i % 2 ? "w" : "v"));
        graph_output(x, "out");
        struct outputs want = run_graph(g, false);
        check_int(pass_place(g, reuse, packed_bytes), 0);
        check_places(g);
        struct outputs got = run_graph(g, true);
        check_outputs(&got, &want);
        bytes[reuse] = g->arena_bytes;
        graph_close(g);
    }
    check_begin("place: reuse takes a fraction");
    check(bytes[1] * 4 < bytes[0]);
    check(bytes[1] >= 2 * 8 * DIM_X * sizeof(float));
}

/* ---- verify ---- */
static void test_verify(void)
{
    struct graph *g = open_graph();
    struct tensor *x = input_rows(g), *a = norm(g, x, "w"), *b = graph_add(g, a, x);
    graph_output(b, "out");
    check_begin("verify: a good graph");
    check_int(graph_verify(g), 0);

    check_begin("verify: used before it is made");
    struct node *first = a->maker, *second = b->maker;
    first->prev->next = second;
    second->prev = first->prev;
    second->next = first;
    first->prev = second;
    first->next = NULL;
    g->last = first;
    check_int(graph_verify(g), ERR_FAILED);
    check(strstr(error_text(), "before it is made") != NULL);
    second->prev->next = first;
    first->prev = second->prev;
    first->next = second;
    second->prev = first;
    second->next = NULL;
    g->last = second;
    check_int(graph_verify(g), 0);

    check_begin("verify: a torn list");
    second->prev = NULL;
    check_int(graph_verify(g), ERR_FAILED);
    second->prev = first;

    check_begin("verify: a shape that its inputs do not give");
    a->dim[1].add++;
    check(graph_verify(g) < 0);
    a->dim[1].add--;

    check_begin("verify: two makers");
    second->out[0] = a;
    check_int(graph_verify(g), ERR_FAILED);
    second->out[0] = b;

    check_begin("verify: partial sums used before their reduction");
    a->placement[AXIS_TP] = (struct placement){ .kind = PLACE_PARTIAL, .n_parts = 2 };
    check_int(graph_verify(g), ERR_FAILED);
    a->placement[AXIS_TP] = (struct placement){ 0 };

    check_begin("verify: too few operands");
    second->n_in = 1;
    check_int(graph_verify(g), ERR_FAILED);
    second->n_in = 2;
    check_int(graph_verify(g), 0);
    graph_close(g);

    g = open_graph();
    x = input_rows(g);
    check_begin("builders refuse shapes that do not fit");
    check(!graph_matmul(g, x, graph_weight(g, "m", DTYPE_F32, WEIGHT_MATMUL, DIM(8), DIM(DIM_X + 1))));
    check(!graph_rms_norm(g, x, graph_weight(g, "w", DTYPE_F32, WEIGHT_VECTOR, DIM(1), DIM(DIM_X - 1)), 1e-5f));
    check(!graph_add(g, NULL, x));
    graph_close(g);
}

static void test_verify_split_rows(void)
{
    struct graph *g = open_graph();
    struct tensor *x = input_rows(g), *order = graph_input(g, "order", DTYPE_I32, DIM_T), *a = graph_add(g, x, x);
    g->layer = 0;
    struct { const char *what; struct node *reader; bool good; } rows[] = {
        { "all of a matmul", matmul(g, a, "m")->maker, false },
        { "others of the rows that are picked", graph_rows(g, a, order)->maker, false },
        { "those that an unsplit result wants", norm(g, a, "w")->maker, false },
        { "none, where the result is split as well", norm(g, a, "v")->maker, true },
    };
    split_rows(rows[1].reader->out[0]);
    split_rows(rows[3].reader->out[0]);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        check_begin("verify: of rows that are split a rank lacks %s", rows[i].what);
        for (size_t k = 0; k < COUNT_OF(rows); k++)
            rows[k].reader->in[0] = k == i ? a : x;
        check_int(graph_verify(g), 0);
        split_rows(a);
        check_int(graph_verify(g), rows[i].good ? 0 : ERR_FAILED);
        a->placement[AXIS_TP] = (struct placement){ 0 };
    }
    graph_close(g);

    g = open_graph();
    check_begin("verify: also inside chains");
    x = input_rows(g);
    a = graph_add(g, x, x);
    graph_output(norm(g, a, "w"), "out");
    check_int(fuse_all(g), 0);
    check_int(count(g, OP_add), 0);
    split_rows(a);
    check_int(graph_verify(g), ERR_FAILED);
    graph_close(g);
}

static void test_verify_epilogues(void)
{
    struct graph *g = open_graph();
    struct tensor *x = input_rows(g);
    g->layer = 0;
    struct tensor *y = graph_add(g, matmul(g, x, "m"), x), *z = graph_scale(g, y, 2);
    graph_output(z, "out");
    check_int(pass_fuse_epilogues(g), 0);
    struct node *chain = find(g, OP_matmul_chain, NULL);
    if (!check(chain && chain->n_steps == 3))
        return;
    struct node *product = chain->step[0], *sum = chain->step[1], *scale = chain->step[2];

    check_begin("verify: an epilogue needs more than columns");
    scale->op = OP_rms_norm;
    check(graph_verify(g) < 0 && strstr(error_text(), "more than the columns"));
    scale->op = OP_scale;
    check_int(graph_verify(g), 0);

    check_begin("verify: an epilogue on partial sums");
    product->out[0]->placement[AXIS_TP] = (struct placement){ .kind = PLACE_PARTIAL, .n_parts = 1 };
    check(graph_verify(g) < 0 && strstr(error_text(), "partial sums"));
    product->out[0]->placement[AXIS_TP] = (struct placement){ 0 };

    check_begin("verify: an epilogue on other rows");
    scale->out[0]->dim[0].symbol = SYMBOL_R;
    check(graph_verify(g) < 0 && strstr(error_text(), "other rows"));
    scale->out[0]->dim[0].symbol = SYMBOL_T;

    check_begin("verify: a step that has nothing of the product");
    scale->in[0] = x;
    check(graph_verify(g) < 0 && strstr(error_text(), "nothing of the product"));
    scale->in[0] = y;

    check_begin("verify: a step that takes what comes later, or is not the chain's");
    chain->step[1] = scale;
    chain->step[2] = sum;
    check(graph_verify(g) < 0 && strstr(error_text(), "what is not there"));
    chain->step[1] = sum;
    chain->step[2] = scale;
    check_int(graph_verify(g), 0);
    chain->n_in--;              /* the residual */
    check(graph_verify(g) < 0 && strstr(error_text(), "what is not there"));
    chain->n_in++;

    check_begin("verify: a chain without a product");
    chain->step[0] = sum;
    check(graph_verify(g) < 0);
    chain->step[0] = product;
    check_int(graph_verify(g), 0);
    graph_close(g);
}

static void test_verify_prologues(void)
{
    struct graph *g = open_graph();
    struct tensor *x = matmul(g, input_rows(g), "first");
    g->layer = 0;
    struct tensor *sum = graph_add(g, x, x), *h = norm(g, sum, "v");
    graph_output(sum, "sum");
    graph_output(graph_scale(g, matmul(g, h, "m"), 2), "out");
    check_int(fuse_all(g), 0);
    struct node *chain = find(g, OP_matmul_chain, find(g, OP_matmul_chain, NULL));
    check_begin("verify: a good prologue");
    if (!check(chain && chain->product == 2 && chain->n_steps == chain->product + 2))
        return;
    check_int(graph_verify(g), 0);
    struct node *product = chain->step[chain->product], *scale = chain->step[chain->product + 1], *first = chain->step[0];

    check_begin("verify: an epilogue that takes of the prologue");
    scale->in[0] = sum;
    check(graph_verify(g) < 0 && strstr(error_text(), "takes of the prologue"));
    scale->in[0] = product->out[0];

    check_begin("verify: a prologue that does not make the product's input");
    product->in[0] = x;
    check(graph_verify(g) < 0 && strstr(error_text(), "does not make"));
    product->in[0] = h;

    check_begin("verify: a prologue with an effect, or of other rows");
    enum op op = first->op;
    first->op = OP_kv_store;
    check(graph_verify(g) < 0 && strstr(error_text(), "not every thread"));
    first->op = op;
    first->out[0]->dim[0].symbol = SYMBOL_R;
    check(graph_verify(g) < 0 && strstr(error_text(), "not every thread"));
    first->out[0]->dim[0].symbol = SYMBOL_T;
    check_int(graph_verify(g), 0);
    graph_close(g);
}

/* ---- random graphs ---- */
static struct graph *random_graph(uint64_t seed)
{
    static const char *const names[] = { "a", "b", "c", "d" };
    struct graph *g = open_graph();
    struct tensor *made[64];
    uint32_t n = 0, n_outputs = 0;
    g->int8_activations = random_u64(seed, 1000) & 1;
    made[n++] = input_rows(g);
    g->layer = 0;
    for (uint32_t i = 0; n < 40; i++) {
        uint64_t r = random_u64(seed, i);
        struct tensor *x = made[r % n], *y = made[(r >> 8) % n], *t = NULL;
        const char *w = names[r >> 16 & 3];
        if (random_u64(seed, 500 + i) % 8 == 0)
            g->layer++;
        switch (r >> 24 & 3) {
        case 0: t = norm(g, x, w); break;
        case 1: t = graph_add(g, x, y); break;
        case 2: t = graph_swiglu(g, x, y); break;
        case 3: t = matmul(g, x, w); break;
        }
        made[n++] = t;
        if (t && !t->is_output && n_outputs < 8 && random_u64(seed, 2000 + i) % 6 == 0) {
            char *name = arena_string(&g->arena, "out0");
            name[3] = (char)('0' + n_outputs++);
            graph_output(t, name);
        }
    }
    graph_output(made[n - 1], "last");
    return g;
}

/* Equal values never are outputs twice here: that is a test of its own above. */
static bool outputs_differ(const struct outputs *out)
{
    for (uint32_t i = 0; i < out->n; i++)
        for (uint32_t k = 0; k < i; k++)
            if (out->of[i].value == out->of[k].value)
                return false;
    return true;
}

static void test_random_graphs(void)
{
    uint32_t n_fewer = 0, n_epilogues = 0, n_graphs = 0;
    for (uint64_t seed = 0; seed < 300; seed++)
        for (unsigned passes = 0; passes < 64; passes++) {
            struct graph *g = random_graph(seed);
            struct outputs want = run_graph(g, false);
            if (!outputs_differ(&want)) {
                graph_close(g);
                break;
            }
            if (!passes)
                n_graphs++;
            check_begin("random graph %u, passes %u", (unsigned)seed, passes);
            if (passes & 1)
                check_int(pass_simplify(g), 0);
            if (passes & 2)
                check_int(pass_fuse_matmuls(g), 0);
            if (passes & 4)
                check_int(pass_fuse_epilogues(g), 0);
            if (passes & 8)
                check_int(pass_fuse_rows(g), 0);
            if (passes & 16)
                check_int(pass_fuse_prologues(g), 0);
            check_int(pass_place(g, passes & 32, packed_bytes), 0);
            check_places(g);
            struct outputs got = run_graph(g, true);
            check_outputs(&got, &want);
            n_fewer += count(g, OP_row_chain) > 0;
            n_epilogues += count(g, OP_matmul_chain) > 0;
            graph_close(g);
        }
    check_begin("random graphs have something to fuse");
    check(n_graphs > 150 && n_fewer > 16 * n_graphs && n_epilogues > 16 * n_graphs);
}

int main(void)
{
    test_simplify();
    test_fuse();
    test_fuse_other_rows();
    test_fuse_split_rows();
    test_epilogues_of_a_model();
    test_units();
    test_epilogue_rules();
    test_epilogues_of_partial_sums();
    test_prologue_rules();
    test_regions_of_a_layer();
    test_place();
    test_verify();
    test_verify_split_rows();
    test_verify_epilogues();
    test_verify_prologues();
    test_random_graphs();
    return check_done();
}
