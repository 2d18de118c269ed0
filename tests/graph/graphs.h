/* graphs.h: what the tests of passes are made of: small graphs, the model that they shard, and words that look into a graph. */
#ifndef STOA_TESTS_GRAPH_GRAPHS_H
#define STOA_TESTS_GRAPH_GRAPHS_H

#include "graph/graph.h"
#include "tests/check.h"

#include <stdio.h>
#include <string.h>

enum { DIM_X = 96 };

/* As dense as the file. */
static inline size_t packed_bytes(enum dtype type, uint32_t n_rows, uint32_t k)
{
    return dtype_bytes(type, (size_t)n_rows * k);
}

/* ---- graphs made by hand ---- */
static inline struct graph *open_graph(void)
{
    struct graph *g = graph_open();
    g->symbol_max[SYMBOL_T] = 8;
    g->symbol_max[SYMBOL_R] = 2;
    g->symbol_max[SYMBOL_NONE] = 0;
    g->n_layers = 1;
    return g;
}

static inline struct tensor *input_rows(struct graph *g)
{
    struct tensor *table = graph_weight(g, "table", DTYPE_F32, WEIGHT_LOOKUP, DIM(50), DIM(DIM_X));
    return graph_embed(g, graph_input(g, "tokens", DTYPE_I32, DIM_T), table);
}

static inline struct tensor *norm(struct graph *g, struct tensor *x, const char *name)
{
    return graph_rms_norm(g, x, graph_weight(g, name, DTYPE_F32, WEIGHT_VECTOR, DIM(1), DIM(DIM_X)), 1e-5f);
}

static inline struct tensor *matmul(struct graph *g, struct tensor *x, const char *name)
{
    return graph_matmul(g, x, graph_weight(g, name, DTYPE_Q8_0, WEIGHT_MATMUL, DIM(DIM_X), DIM(DIM_X)));
}

static inline uint32_t count(const struct graph *g, enum op op)
{
    uint32_t n = 0;
    for (const struct node *at = g->first; at; at = at->next)
        n += at->op == op;
    return n;
}

/* Those inside chains too. */
static inline uint32_t count_all(const struct graph *g, enum op op)
{
    uint32_t n = count(g, op);
    for (const struct node *at = g->first; at; at = at->next)
        for (uint32_t s = 0; s < at->n_steps; s++)
            n += at->step[s]->op == op;
    return n;
}

static inline struct node *find(const struct graph *g, enum op op, const struct node *after)
{
    struct node *n = after ? after->next : g->first;
    while (n && n->op != op)
        n = n->next;
    return n;
}

static inline int fuse_all(struct graph *g)
{
    int err;
    if ((err = pass_fuse_matmuls(g)) < 0 || (err = pass_fuse_epilogues(g)) < 0 || (err = pass_fuse_rows(g)) < 0)
        return err;
    return pass_fuse_prologues(g);
}

static inline bool is_output_of(const struct graph *g, const char *name)
{
    for (const struct node *n = g->first; n; n = n->next)
        for (uint32_t i = 0; i < n->n_out; i++)
            if (n->out[i]->is_output && !strcmp(n->out[i]->name, name))
                return true;
    return false;
}

/* ---- a model ---- */
enum { HEADS = 9, KV_HEADS = 3, WIDTH = 32, FFN = 96, VOCAB = 301, N_LAYERS = 4 };

/* A block of the kind that models have, four times.  Layer i sees the window windows[i], or all where windows is NULL. */
static inline struct graph *windowed_graph(const uint32_t *windows)
{
    struct graph *g = open_graph();
    char name[32];
    g->n_layers = N_LAYERS;
    graph_label(g, LABEL_HEADS, HEADS, WIDTH, 1);
    graph_label_follows(g, LABEL_KV_HEADS, KV_HEADS, LABEL_HEADS, HEADS / KV_HEADS);
    graph_label(g, LABEL_FFN, FFN, 1, 1);
    graph_label(g, LABEL_VOCAB, VOCAB, 1, 16);
    struct dim heads = DIM_OF(HEADS, LABEL_HEADS, WIDTH), kv = DIM_OF(KV_HEADS, LABEL_KV_HEADS, WIDTH);
    struct dim ffn = DIM_OF(FFN, LABEL_FFN, 1), x_dim = DIM(DIM_X);
    struct tensor *positions = graph_input(g, "positions", DTYPE_I32, DIM_T), *rows = graph_input(g, "rows", DTYPE_I32, DIM_R);
    struct node_attr attr = { .head_dim = WIDTH, .n_rotated = WIDTH, .rope = { .base = 1e4f, .magnitude = 1 },
                              .heads_per_kv = HEADS / KV_HEADS, .scale = 1 };
    struct tensor *angles = graph_rope_angles(g, positions, NULL, &attr);
    g->layer = 0;
    struct tensor *x = input_rows(g);
    for (uint32_t i = 0; i < N_LAYERS; i++) {
        struct tensor *w[7];
        static const char *const names[] = { "q", "k", "v", "o", "gate", "up", "down" };
        const struct dim row[] = { heads, kv, kv, x_dim, ffn, ffn, x_dim }, column[] = { x_dim, x_dim, x_dim, heads, x_dim, x_dim, ffn };
        g->layer = (int)i;
        attr.cache_layer = i;
        attr.cache_group = graph_cache_group(g, windows ? windows[i] : 0, WIDTH);
        for (uint32_t k = 0; k < 7; k++) {
            snprintf(name, sizeof name, "%s.%u", names[k], i);
            w[k] = graph_weight(g, name, DTYPE_F32, WEIGHT_MATMUL, row[k], column[k]);
        }
        struct tensor *h = norm(g, x, "norm");
        struct tensor *stored = graph_kv_store(g, graph_rope(g, graph_matmul(g, h, w[1]), angles, &attr), graph_matmul(g, h, w[2]), &attr);
        struct tensor *a = graph_attention(g, graph_rope(g, graph_matmul(g, h, w[0]), angles, &attr), stored, &attr);
        x = graph_add(g, x, graph_matmul(g, a, w[3]));
        h = norm(g, x, "norm2");
        x = graph_add(g, x, graph_matmul(g, graph_swiglu(g, graph_matmul(g, h, w[4]), graph_matmul(g, h, w[5])), w[6]));
    }
    struct tensor *head = graph_weight(g, "head", DTYPE_F32, WEIGHT_MATMUL, DIM_OF(VOCAB, LABEL_VOCAB, 1), x_dim);
    graph_output(graph_matmul(g, graph_rows(g, x, rows), head), "logits");
    return g;
}

static inline struct graph *model_graph(void)
{
    return windowed_graph(NULL);
}

struct wanted_weight {
    const char *name;
    struct weight *found;
};

static inline void find_weight(struct tensor *t, void *user)
{
    struct wanted_weight *wanted = user;
    if (!strcmp(t->name, wanted->name))
        wanted->found = t->weight;
}

/* NULL, with a check that failed, when the graph has no weight of this name. */
static inline struct weight *weight_of(struct graph *g, const char *name)
{
    struct wanted_weight wanted = { name, NULL };
    graph_each_weight(g, find_weight, &wanted);
    check(wanted.found != NULL);
    return wanted.found;
}

static inline void check_slice(struct graph *g, const char *name, uint32_t row, uint32_t row_end, uint32_t column, uint32_t column_end)
{
    const struct weight *w = weight_of(g, name);
    if (!w)
        return;
    check_int(w->rows.begin, row);
    check_int(w->rows.end, row_end);
    check_int(w->columns.begin, column);
    check_int(w->columns.end, column_end);
}

/* The leaves of a contraction are in columns of the rank's own slice, and cover it. */
static inline void check_leaves(const struct graph *g, const char *weight, uint32_t n_columns)
{
    const struct node *n = g->first;
    uint32_t end = 0;
    while (n && (n->op != OP_matmul || strcmp(n->in[1]->name, weight)))
        n = n->next;
    if (!check(n != NULL))
        return;
    for (uint32_t i = 0; i < n->attr.tree.n_leaves; i++) {
        check_int(n->attr.tree.leaf[i].begin, end);
        end = n->attr.tree.leaf[i].end;
    }
    check_int(end, n_columns);
    check_int(tensor_n_parts(n->out[0]), n->attr.tree.n_parts);
}

/* NULL, with a check that failed, when the pass refuses. */
static inline struct graph *shard_as(const struct graph *g, const char *layout, const char *shares, bool gathered, uint32_t rank)
{
    struct mesh mesh;
    struct graph *mine = NULL;
    if (!check_int(mesh_parse(&mesh, layout), 0) || !check_int(mesh_parse_shares(&mesh, shares, NULL), 0) ||
        !check_int(pass_shard(&mine, g, &mesh, gathered, rank), 0))
        return NULL;
    return mine;
}

static inline struct graph *shard(const struct graph *g, const char *layout, uint32_t rank)
{
    return shard_as(g, layout, NULL, false, rank);
}

#endif
