#include "graph/graph.h"

#include "base/base.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

const char *const symbol_name[N_SYMBOLS] = { "1", "T", "R", "U", "P" };

struct graph *graph_open(void)
{
    struct graph *g = calloc(1, sizeof *g);
    if (!g) {
        error_set(ERR_NO_MEMORY, "out of memory for a graph");
        return NULL;
    }
    g->layer = LAYER_ANY;
    return g;
}

void graph_close(struct graph *g)
{
    if (!g)
        return;
    arena_close(&g->arena);
    free(g);
}

void graph_label(struct graph *g, enum label label, uint32_t n_elements, uint32_t width, uint32_t unit)
{
    g->labels[label] = (struct label_info){ .n_elements = n_elements, .width = width, .unit = unit, .n_groups = g->n_groups };
}

void graph_label_follows(struct graph *g, enum label label, uint32_t n_elements, enum label of, uint32_t per_element)
{
    g->labels[label] = (struct label_info){ .n_elements = n_elements, .width = g->labels[of].width, .unit = 1,
                                            .follows = of, .per_element = per_element };
}

struct tensor *graph_tensor(struct graph *g, enum dtype type)
{
    struct tensor *t = arena_new(&g->arena, struct tensor);
    if (!t) {
        error_set(ERR_NO_MEMORY, "out of memory for a graph");
        return NULL;
    }
    t->id = g->n_tensors++;
    t->type = type;
    t->name = "";
    return t;
}

struct node *graph_node(struct graph *g, enum op op, struct tensor *const *in, uint32_t n_in, uint32_t n_out, const struct node_attr *attr)
{
    assert(n_in <= NODE_MAX_INPUTS && n_out <= NODE_MAX_OUTPUTS);
    for (uint32_t i = 0; i < n_in; i++)
        if (!in[i])
            return NULL;
    struct node *n = arena_new(&g->arena, struct node);
    if (!n) {
        error_set(ERR_NO_MEMORY, "out of memory for a graph");
        return NULL;
    }
    n->op = op;
    n->layer = g->layer;
    n->n_in = n_in;
    n->n_out = n_out;
    if (attr)
        n->attr = *attr;
    for (uint32_t i = 0; i < n_in; i++)
        n->in[i] = in[i];
    for (uint32_t i = 0; i < n_out; i++) {
        if (!(n->out[i] = graph_tensor(g, DTYPE_F32)))
            return NULL;
        n->out[i]->maker = n;
    }
    if (op_info[op].shape(g, n) < 0) {
        error_prefix(ERR_BAD_FILE, "%s in layer %d", op_info[op].name, n->layer);
        return NULL;
    }
    n->prev = g->last;
    *(g->last ? &g->last->next : &g->first) = n;
    g->last = n;
    return n;
}

static struct tensor *one(struct graph *g, enum op op, struct tensor *a, struct tensor *b, const struct node_attr *attr)
{
    struct node *n = graph_node(g, op, (struct tensor *[]){ a, b }, op_info[op].n_inputs, 1, attr);
    return n ? n->out[0] : NULL;
}

uint32_t graph_cache_group(struct graph *g, uint32_t window, uint32_t head_dim)
{
    uint32_t i = 0;
    while (i < g->n_cache_groups && (g->cache_group[i].window != window || g->cache_group[i].head_dim != head_dim))
        i++;
    if (i == GRAPH_MAX_CACHE_GROUPS)
        error_set(ERR_BAD_FILE, "layers keep their keys in more than %d ways", GRAPH_MAX_CACHE_GROUPS);
    else if (i == g->n_cache_groups)
        g->cache_group[g->n_cache_groups++] = (struct cache_group){ .window = window, .head_dim = head_dim };
    return i;
}

struct tensor *graph_input(struct graph *g, const char *name, enum dtype type, struct dim dim)
{
    int layer = g->layer;
    g->layer = LAYER_ANY;
    struct node *n = graph_node(g, OP_input, NULL, 0, 1, NULL);
    g->layer = layer;
    if (!n)
        return NULL;
    n->out[0]->name = name;
    n->out[0]->type = type;
    n->out[0]->n_dims = 1;
    n->out[0]->dim[0] = dim;
    return n->out[0];
}

struct tensor *graph_weight(struct graph *g, const char *name, enum dtype type, enum weight_use use, struct dim rows, struct dim columns)
{
    struct tensor *t = graph_tensor(g, type);
    if (!t || !(t->weight = arena_new(&g->arena, struct weight)) || !(t->name = arena_string(&g->arena, name)))
        return NULL;
    *t->weight = (struct weight){ .name = t->name, .type = type, .use = use, .n_rows = rows.add, .n_columns = columns.add,
                                  .rows = { 0, (uint32_t)rows.add }, .columns = { 0, (uint32_t)columns.add } };
    t->weight->experts.end = 1;
    t->weight->stored.end = DIV_UP((uint32_t)rows.add, WEIGHT_PANEL);
    t->n_dims = 2;
    t->dim[0] = rows;
    t->dim[1] = columns;
    return t;
}

struct tensor *graph_expert_weight(struct graph *g, const char *name, bool per_expert, enum dtype type, struct dim experts, struct dim rows,
                                   struct dim columns)
{
    struct tensor *t = graph_weight(g, name, type, WEIGHT_EXPERTS, rows, columns);
    if (!t)
        return NULL;
    t->weight->experts.end = (uint32_t)experts.add;
    t->weight->per_expert = per_expert;
    t->weight->stored.end *= (uint32_t)experts.add;
    t->n_dims = 3;
    t->dim[0] = experts;
    t->dim[1] = rows;
    t->dim[2] = columns;
    return t;
}

void graph_output(struct tensor *t, const char *name)
{
    if (!t)
        return;
    t->name = name;
    t->is_output = true;
}

struct tensor *graph_embed(struct graph *g, struct tensor *tokens, struct tensor *table)
{
    return one(g, OP_embed, tokens, table, NULL);
}

struct tensor *graph_rms_norm(struct graph *g, struct tensor *x, struct tensor *weight, float eps)
{
    return one(g, OP_rms_norm, x, weight, &(struct node_attr){ .eps = eps });
}

/* x as a matmul with w takes it. */
static struct tensor *matmul_input(struct graph *g, struct tensor *x, const struct tensor *w)
{
    return g->int8_activations && dtype_info[w->type].block > 1 ? one(g, OP_quantize, x, NULL, NULL) : x;
}

struct tensor *graph_matmul(struct graph *g, struct tensor *x, struct tensor *w)
{
    if (!x || !w)
        return NULL;
    struct label_info *summed = &g->labels[w->dim[1].label];
    if (w->dim[1].label)
        summed->unit = MAX(summed->unit, label_unit(summed->width, MAX(dtype_info[w->type].block, dtype_info[DTYPE_ACT8].block)));
    x = matmul_input(g, x, w);
    return one(g, OP_matmul, x, w, &(struct node_attr){ .sum_label = w->dim[1].label });
}

struct tensor *graph_add(struct graph *g, struct tensor *a, struct tensor *b)
{
    return one(g, OP_add, a, b, NULL);
}

struct tensor *graph_add_bias(struct graph *g, struct tensor *x, struct tensor *bias)
{
    return one(g, OP_add_bias, x, bias, NULL);
}

struct tensor *graph_geglu(struct graph *g, struct tensor *gate, struct tensor *up)
{
    return one(g, OP_geglu, gate, up, NULL);
}

struct tensor *graph_scale(struct graph *g, struct tensor *x, float factor)
{
    return one(g, OP_scale, x, NULL, &(struct node_attr){ .scale = factor });
}

struct tensor *graph_softcap(struct graph *g, struct tensor *x, float cap)
{
    return one(g, OP_softcap, x, NULL, &(struct node_attr){ .softcap = cap });
}

struct tensor *graph_head_norm(struct graph *g, struct tensor *x, struct tensor *weight, uint32_t head_dim, float eps)
{
    return one(g, OP_head_norm, x, weight, &(struct node_attr){ .head_dim = head_dim, .eps = eps });
}

struct tensor *graph_swiglu(struct graph *g, struct tensor *gate, struct tensor *up)
{
    return one(g, OP_swiglu, gate, up, NULL);
}

struct tensor *graph_rope_angles(struct graph *g, struct tensor *positions, struct tensor *factors, const struct node_attr *attr)
{
    struct node *n = graph_node(g, OP_rope_angles, (struct tensor *[]){ positions, factors }, factors ? 2 : 1, 1, attr);
    return n ? n->out[0] : NULL;
}

struct tensor *graph_rope(struct graph *g, struct tensor *x, struct tensor *angles, const struct node_attr *attr)
{
    return one(g, OP_rope, x, angles, attr);
}

struct tensor *graph_kv_store(struct graph *g, struct tensor *k, struct tensor *v, const struct node_attr *attr)
{
    return one(g, OP_kv_store, k, v, attr);
}

struct tensor *graph_attention(struct graph *g, struct tensor *q, struct tensor *stored, const struct node_attr *attr)
{
    return one(g, OP_attention, q, stored, attr);
}

struct tensor *graph_rows(struct graph *g, struct tensor *x, struct tensor *rows)
{
    return one(g, OP_rows, x, rows, NULL);
}

/* The rows of each expert, expert after expert, times its matrices. */
static struct tensor *expert_matmul(struct graph *g, struct tensor *x, struct tensor *begin, struct tensor *w)
{
    struct node *n = graph_node(g, OP_expert_matmul, (struct tensor *[]){ x, begin, w }, 3, 1, NULL);
    return n ? n->out[0] : NULL;
}

struct tensor *graph_experts(struct graph *g, struct tensor *x, struct tensor *logits, struct tensor *gate, struct tensor *up,
                             struct tensor *down, const struct node_attr *attr)
{
    if (!gate || !up || !down)
        return NULL;
    if ((dtype_info[gate->type].block > 1) != (dtype_info[up->type].block > 1)) {
        error_set(ERR_BAD_FILE, "tensor %s is in blocks and %s is not, or the other way", gate->name, up->name);
        return NULL;
    }
    g->symbol_max[SYMBOL_P] = MAX(g->symbol_max[SYMBOL_P], g->symbol_max[SYMBOL_T] * attr->n_used);
    struct node_attr experts = { .sum_label = gate->dim[0].label, .experts = { 0, (uint32_t)gate->dim[0].add } };
    struct node *route = graph_node(g, OP_route, &logits, 1, 2, attr);
    if (!route)
        return NULL;
    struct tensor *ids = route->out[0], *weights = route->out[1];
    struct node *sent = graph_node(g, OP_dispatch, (struct tensor *[]){ matmul_input(g, x, gate), ids, weights }, 3, 4, &experts);
    struct node *sort = sent ? graph_node(g, OP_sort_by_expert, &sent->out[1], 1, 3, &experts) : NULL;
    if (!sort)
        return NULL;
    struct tensor *rows = one(g, OP_rows, sent->out[0], sort->out[0], NULL), *begin = sort->out[2];
    struct tensor *gated = expert_matmul(g, rows, begin, gate), *lifted = expert_matmul(g, rows, begin, up);
    struct tensor *inner = graph_swiglu(g, gated, lifted);
    struct tensor *y = inner ? expert_matmul(g, matmul_input(g, inner, down), begin, down) : NULL;
    struct node *sum = graph_node(g, OP_expert_sum, (struct tensor *[]){ y, sort->out[1], sent->out[1], sent->out[2] }, 4, 1, &experts);
    struct node *n = sum ? graph_node(g, OP_combine, (struct tensor *[]){ sum->out[0], sent->out[3], ids }, 3, 1, &experts) : NULL;
    return n ? n->out[0] : NULL;
}

uint32_t node_first_weight(const struct node *n)
{
    return n->op == OP_expert_matmul ? 2 : 1;
}

bool node_multiplies(const struct node *n)
{
    return n->op == OP_matmul || n->op == OP_expert_matmul;
}

void graph_remove(struct graph *g, struct node *n)
{
    *(n->prev ? &n->prev->next : &g->first) = n->next;
    *(n->next ? &n->next->prev : &g->last) = n->prev;
}

void graph_move_before(struct graph *g, struct node *n, struct node *place)
{
    graph_remove(g, n);
    n->prev = place->prev;
    n->next = place;
    *(place->prev ? &place->prev->next : &g->first) = n;
    place->prev = n;
}

void graph_replace_uses(struct graph *g, struct tensor *old, struct tensor *by, const char *what)
{
    if (g->log)
        fprintf(g->log, "%%%u -> %%%u  %s\n", old->id, by->id, what);
    for (struct node *n = g->first; n; n = n->next)
        for (uint32_t i = 0; i < n->n_in; i++)
            if (n->in[i] == old)
                n->in[i] = by;
    if (old->is_output) {
        old->is_output = false;
        graph_output(by, old->name);
    }
}

void graph_replace(struct graph *g, struct node *first, struct node *last, struct node *by)
{
    by->prev = first->prev;
    by->next = last->next;
    *(by->prev ? &by->prev->next : &g->first) = by;
    *(by->next ? &by->next->prev : &g->last) = by;
    for (uint32_t i = 0; i < by->n_out; i++)
        by->out[i]->maker = by;
}

void graph_report(const struct graph *g, const struct node *n, const char *what)
{
    if (g->log)
        fprintf(g->log, "%%%u  %s\n", n->out[0]->id, what);
}

static void count_uses(const struct node *n, uint32_t *uses)
{
    for (uint32_t s = 0; s < n->n_steps; s++)
        count_uses(n->step[s], uses);
    for (uint32_t i = 0; !n->n_steps && i < n->n_in; i++)
        uses[n->in[i]->id]++;
}

uint32_t *graph_count_uses(const struct graph *g)
{
    uint32_t *uses = calloc(g->n_tensors + 1, sizeof *uses);
    if (!uses) {
        error_set(ERR_NO_MEMORY, "out of memory for a pass");
        return NULL;
    }
    for (const struct node *n = g->first; n; n = n->next) {
        count_uses(n, uses);
        for (uint32_t i = 0; i < n->n_out; i++)
            uses[n->out[i]->id] += n->out[i]->is_output;
    }
    return uses;
}

uint64_t dim_at(const struct dim *dim, uint64_t symbol_value)
{
    return dim->mul * symbol_value + dim->add;
}

uint64_t dim_max(const struct graph *g, const struct dim *dim)
{
    return dim_at(dim, g->symbol_max[dim->symbol]);
}

uint64_t tensor_columns(const struct tensor *t)
{
    uint64_t n = 1;
    for (uint32_t d = 1; d < t->n_dims; d++)
        n *= t->dim[d].add;
    return n;
}

size_t tensor_row_bytes(const struct tensor *t)
{
    size_t bytes = dtype_bytes(t->type, tensor_columns(t));
    return t->type == DTYPE_ACT8 && bytes % (16 * CACHE_LINE) == 0 ? bytes + CACHE_LINE : bytes;
}

uint32_t tensor_n_parts(const struct tensor *t)
{
    for (int a = 0; a < N_AXES; a++)
        if (t->placement[a].kind == PLACE_PARTIAL)
            return t->placement[a].n_parts;
    return 1;
}

void graph_each_weight(struct graph *g, void (*visit)(struct tensor *, void *), void *user)
{
    for (struct node *n = g->first; n; n = n->next)
        for (uint32_t i = 0; i < n->n_in; i++) {
            struct tensor *t = n->in[i];
            if (t->weight && t->weight->visit != g->n_visits + 1) {
                t->weight->visit = g->n_visits + 1;
                visit(t, user);
            }
        }
    g->n_visits++;
}

struct byte_sum {
    size_t n_bytes;
    packed_bytes_fn *packed_bytes;
};

static void add_weight(struct tensor *t, void *user)
{
    struct byte_sum *sum = user;
    const struct weight *w = t->weight;
    uint32_t n_columns = w->columns.end - w->columns.begin;
    if (w->use == WEIGHT_MATMUL || w->use == WEIGHT_EXPERTS)
        sum->n_bytes += (w->stored.end - w->stored.begin) * sum->packed_bytes(w->type, WEIGHT_PANEL, n_columns);
    else if (w->use == WEIGHT_VECTOR)
        sum->n_bytes += sizeof(float) * n_columns;
}

size_t graph_weight_bytes(struct graph *g, packed_bytes_fn *packed_bytes)
{
    struct byte_sum sum = { 0, packed_bytes };
    graph_each_weight(g, add_weight, &sum);
    return sum.n_bytes;
}
