/* print.c: a graph as text and as a drawing for Graphviz. */
#include "graph/graph.h"

#include "base/base.h"

#include <stdlib.h>
#include <string.h>

static void print_dims(const struct tensor *t, FILE *to)
{
    fputs(dtype_info[t->type].name, to);
    uint32_t n_parts = tensor_n_parts(t);
    if (n_parts != 1)
        fprintf(to, "[%u parts]", n_parts);
    for (uint32_t d = 0; d < t->n_dims; d++) {
        const struct dim *dim = &t->dim[d];
        if (dim->mul > 1)
            fprintf(to, "[%llu*%s", (unsigned long long)dim->mul, symbol_name[dim->symbol]);
        else if (dim->mul)
            fprintf(to, "[%s", symbol_name[dim->symbol]);
        else
            fprintf(to, "[%llu", (unsigned long long)dim->add);
        if (dim->label)
            fprintf(to, " %s", label_name[dim->label]);
        fputc(']', to);
    }
}

static void print_placement(const struct tensor *t, FILE *to)
{
    for (int a = 0; a < N_AXES; a++)
        if (t->placement[a].kind == PLACE_SPLIT)
            fprintf(to, " split(%s, %s)", axis_name[a], t->placement[a].dim ? label_name[t->placement[a].label] : "rows");
        else if (t->placement[a].kind == PLACE_PARTIAL)
            fprintf(to, " partial(%s, %s)", axis_name[a], label_name[t->placement[a].label]);
}

/* Which part of the tensor in the file a weight is. */
static void print_slice(const struct tensor *t, FILE *to)
{
    const struct weight *w = t->weight;
    if (w->rows.end - w->rows.begin != w->n_rows)
        fprintf(to, "[%u:%u]", w->rows.begin, w->rows.end);
    if (w->columns.end - w->columns.begin != w->n_columns)
        fprintf(to, "[:,%u:%u]", w->columns.begin, w->columns.end);
    if (w->use == WEIGHT_EXPERTS)
        fprintf(to, "[experts %u:%u]", w->experts.begin, w->experts.end);
    if (t->placement[AXIS_DP].kind == PLACE_SPLIT)
        fprintf(to, "[panels %u:%u]", w->stored.begin, w->stored.end);
}

static void print_weight(const struct tensor *t, FILE *to)
{
    fputs(t->weight->name, to);
    print_slice(t, to);
    fprintf(to, ":%s", dtype_info[t->weight->type].name);
}

static void print_operand(const struct tensor *t, FILE *to)
{
    if (t->weight)
        print_weight(t, to);
    else
        fprintf(to, "%%%u", t->id);
}

static void print_attr(const struct node *n, FILE *to)
{
    const struct node_attr *a = &n->attr;
    switch (n->op) {
    case OP_matmul:
        if (a->sum_label)
            fprintf(to, " sum=%s groups=%u parts=%u", label_name[a->sum_label], a->tree.n_leaves, a->tree.n_parts);
        break;
    case OP_attention:
        fprintf(to, " cache=%u heads=%u.. kv=%u..", a->cache_layer, a->first_head, a->first_kv_head);
        break;
    case OP_kv_store:
        fprintf(to, " cache=%u", a->cache_layer);
        break;
    case OP_route:
        fprintf(to, " used=%u", a->n_used);
        break;
    case OP_sort_by_expert:
        fprintf(to, " experts=%u:%u", a->experts.begin, a->experts.end);
        break;
    case OP_expert_sum:
        fprintf(to, " groups=%u parts=%u", a->tree.n_leaves, a->tree.n_parts);
        break;
    case OP_dispatch:
        fprintf(to, " ranks=%u", a->n_ranks);
        break;
    case OP_combine:
        fprintf(to, " ranks=%u parts=%u", a->n_ranks, a->joined.n_parts);
        break;
    case OP_all_gather:
    case OP_gather_weight:
        fprintf(to, " axis=%s", axis_name[a->axis]);
        break;
    case OP_reduce_scatter:
    case OP_all_reduce:
        fprintf(to, " axis=%s parts=%u", axis_name[a->axis], a->joined.n_parts);
        break;
    case OP_send:
        fprintf(to, " to stage %u", a->peer);
        break;
    case OP_receive:
        fprintf(to, " from stage %u", a->peer);
        break;
    default:
        break;
    }
}

static void print_steps(const struct node *n, FILE *to)
{
    for (uint32_t i = 0; i < n->n_steps; i++) {
        fprintf(to, "%s%s(", i ? "; " : " { ", op_info[n->step[i]->op].name);
        for (uint32_t j = 0; j < n->step[i]->n_in; j++) {
            fputs(j ? ", " : "", to);
            print_operand(n->step[i]->in[j], to);
        }
        fputc(')', to);
        print_attr(n->step[i], to);
        for (uint32_t j = 0; j < n->step[i]->n_out; j++)
            fprintf(to, "%s%%%u", j ? ", " : " -> ", n->step[i]->out[j]->id);
    }
    if (n->n_steps)
        fputs(" }", to);
}

static void print_node(const struct node *n, FILE *to)
{
    double flops, weight_bytes;
    for (uint32_t i = 0; i < n->n_out; i++) {
        const struct tensor *t = n->out[i];
        fprintf(to, "%s%%%u %s%s", i ? ", " : "  ", t->id, t->name, *t->name ? " " : "");
        print_dims(t, to);
        print_placement(t, to);
        if (t->has_buffer)
            fprintf(to, " @%zu+%zu", t->offset, t->n_bytes);
        if (t->is_output)
            fputs(" output", to);
    }
    fprintf(to, " = %s(", op_info[n->op].name);
    for (uint32_t i = 0; i < n->n_in; i++) {
        fputs(i ? ", " : "", to);
        print_operand(n->in[i], to);
    }
    fputc(')', to);
    print_attr(n, to);
    print_steps(n, to);
    op_info[n->op].cost(n, &flops, &weight_bytes);
    if (weight_bytes > 0)
        fprintf(to, "   # %.3g MFLOP a row, %.3g MB of weights", flops / 1e6, weight_bytes / 1e6);
    fputc('\n', to);
}

static bool is_early(const struct node *n)
{
    return n->op == OP_gather_weight && n->attr.early;
}

/* Whether n stands among the nodes of a layer.  A gathering that starts early does so among those of the layer before its own. */
static bool stands_in(const struct node *n, int layer)
{
    while (is_early(n) && n->next)
        n = n->next;
    return layer == LAYER_ANY || n->layer == layer;
}

/* Calls `visit` for what the nodes of a layer take from others: once each, in the order of first use. */
static void each_taken(const struct graph *g, int layer, void (*visit)(const struct tensor *t, int layer, FILE *to), FILE *to)
{
    bool *seen = layer == LAYER_ANY ? NULL : calloc(g->n_tensors + 1, sizeof *seen);
    for (const struct node *n = g->first; n && seen; n = n->next)
        for (uint32_t i = 0; i < n->n_in; i++) {
            const struct tensor *t = n->in[i];
            if (!stands_in(n, layer) || !t->maker || stands_in(t->maker, layer) || seen[t->id])
                continue;
            seen[t->id] = true;
            visit(t, layer, to);
        }
    free(seen);
}

static void print_taken(const struct tensor *t, int layer, FILE *to)
{
    (void)layer;
    fprintf(to, "  %%%u %s%s", t->id, t->name, *t->name ? " " : "");
    print_dims(t, to);
    print_placement(t, to);
    fprintf(to, " is made before by %s\n", op_info[t->maker->op].name);
}

bool graph_has_layer(const struct graph *g, int layer)
{
    for (const struct node *n = g->first; n; n = n->next)
        if (n->layer == layer)
            return true;
    return false;
}

void graph_print_text(const struct graph *g, int only, FILE *to)
{
    int layer = LAYER_ANY;
    each_taken(g, only, print_taken, to);
    for (const struct node *n = g->first; n; n = n->next) {
        if (!stands_in(n, only))
            continue;
        if (n->layer != layer)
            fprintf(to, "layer %d:\n", n->layer);
        layer = n->layer;
        print_node(n, to);
    }
    fprintf(to, "symbols:");
    for (int s = SYMBOL_T; s < N_SYMBOLS; s++)
        fprintf(to, " %s <= %llu", symbol_name[s], (unsigned long long)g->symbol_max[s]);
    if (g->arena_bytes)
        fprintf(to, "; arena %zu bytes", g->arena_bytes);
    fputc('\n', to);
}

/* ---- the drawing: what is on a label is short, the text has the rest ---- */
static void draw_name(const char *name, int layer, FILE *to)
{
    char prefix[32];
    size_t n = (size_t)snprintf(prefix, sizeof prefix, "blk.%d.", layer);
    if (!strncmp(name, prefix, n))
        name += n;
    n = strlen(name);
    fprintf(to, "%.*s", (int)(n > 7 && !strcmp(name + n - 7, ".weight") ? n - 7 : n), name);
}

static void draw_weight(const struct tensor *t, int layer, FILE *to)
{
    const struct weight *w = t->weight;
    fputs("\\n", to);
    draw_name(w->name, layer, to);
    print_slice(t, to);
    fprintf(to, " %s", dtype_info[w->type].name);
}

/* Of a chain, the step that makes t. */
static const struct node *maker_of(const struct tensor *t)
{
    const struct node *n = t->maker;
    for (uint32_t i = 0; i < n->n_steps; i++)
        for (uint32_t j = 0; j < n->step[i]->n_out; j++)
            if (n->step[i]->out[j] == t)
                return n->step[i];
    return n;
}

static void draw_taken(const struct tensor *t, int layer, FILE *to)
{
    fprintf(to, "  n%u [shape=ellipse, style=solid, label=\"", t->id);
    if (t->maker->op == OP_gather_weight)
        draw_name(t->name, layer, to);
    else
        fputs(op_info[maker_of(t)->op].name, to);
    fputs("\"];\n", to);
}

static void draw_node(const struct node *n, int layer, FILE *to)
{
    static const char *const color[] = {
        [KIND_INPUT] = "white", [KIND_ROWS] = "lightyellow", [KIND_REGION] = "lightblue", [KIND_COMM] = "salmon",
    };
    const char *fill = n->op == OP_row_chain ? color[KIND_ROWS] : color[op_info[n->op].kind];
    fprintf(to, "  n%u [fillcolor=%s, label=\"", n->out[0]->id, fill);
    if (!n->n_steps)
        fputs(op_info[n->op].name, to);
    for (uint32_t i = 0; i < n->n_steps; i++)
        fprintf(to, "%s%s", i ? ", " : "", op_info[n->step[i]->op].name);
    if (op_info[n->op].kind == KIND_COMM && n->op != OP_gather_wait)
        print_attr(n, to);
    for (uint32_t i = 0; i < n->n_in; i++)
        if (n->in[i]->weight)
            draw_weight(n->in[i], layer, to);
    fputs("\"];\n", to);
}

static void draw_label(const struct tensor *t, FILE *to)
{
    if (maker_of(t)->op == OP_kv_store) {
        fputs("KV cache", to);
        return;
    }
    print_dims(t, to);
    for (int a = 0; a < N_AXES; a++) {
        const struct placement *p = &t->placement[a];
        if (p->kind != PLACE_REPLICATED)
            fprintf(to, "\\n%s over %s", p->kind == PLACE_PARTIAL ? "partial" : p->dim ? "split" : "rows split", axis_name[a]);
    }
}

/* Where a weight is waited for. */
static uint32_t wait_id(const struct tensor *t)
{
    for (const struct node *n = t->maker; n; n = n->next)
        if (n->op == OP_gather_wait && n->in[0] == t)
            return n->out[0]->id;
    return t->id;
}

/* A weight comes to its use through its wait.  Gatherings that start one after the other hang together, so that they stand beside
 * the layer and not across it. */
static void draw_edges(const struct node *n, int layer, FILE *to)
{
    for (uint32_t i = 0; i < n->n_in; i++) {
        const struct tensor *t = n->in[i];
        if (t->maker && is_early(t->maker) && n->op != OP_gather_wait) {
            fprintf(to, "  n%u -> n%u;\n", wait_id(t), n->out[0]->id);
        } else if (t->maker) {
            fprintf(to, "  n%u -> n%u [label=\"", stands_in(t->maker, layer) ? t->maker->out[0]->id : t->id, n->out[0]->id);
            draw_label(t, to);
            fputs("\"];\n", to);
        }
    }
    if (is_early(n) && n->prev && is_early(n->prev) && stands_in(n->prev, layer))
        fprintf(to, "  n%u -> n%u [style=dotted, arrowhead=none];\n", n->prev->out[0]->id, n->out[0]->id);
}

void graph_print_dot(const struct graph *g, int only, FILE *to)
{
    fputs("digraph stoa {\n  rankdir=TB;\n  node [shape=box, style=filled, fontname=\"monospace\", fontsize=11];\n"
          "  edge [fontname=\"monospace\", fontsize=9];\n", to);
    each_taken(g, only, draw_taken, to);
    for (const struct node *n = g->first; n; n = n->next)
        if (stands_in(n, only)) {
            draw_node(n, only, to);
            draw_edges(n, only, to);
        }
    fputs("}\n", to);
}
