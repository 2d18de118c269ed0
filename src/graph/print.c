/* print.c: a graph as text and as a drawing for Graphviz. */
#include "graph/graph.h"

#include "base/base.h"

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

static void print_weight(const struct tensor *t, FILE *to)
{
    const struct weight *w = t->weight;
    fputs(w->name, to);
    if (w->rows.end - w->rows.begin != w->n_rows)
        fprintf(to, "[%u:%u]", w->rows.begin, w->rows.end);
    if (w->columns.end - w->columns.begin != w->n_columns)
        fprintf(to, "[:,%u:%u]", w->columns.begin, w->columns.end);
    if (w->use == WEIGHT_EXPERTS)
        fprintf(to, "[experts %u:%u]", w->experts.begin, w->experts.end);
    if (t->placement[AXIS_DP].kind == PLACE_SPLIT)
        fprintf(to, "[panels %u:%u]", w->stored.begin, w->stored.end);
    fprintf(to, ":%s", dtype_info[w->type].name);
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
        fprintf(to, ") -> %%%u", n->step[i]->out[0]->id);
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

void graph_print_text(const struct graph *g, FILE *to)
{
    int layer = LAYER_ANY;
    for (const struct node *n = g->first; n; n = n->next) {
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

void graph_print_dot(const struct graph *g, FILE *to)
{
    static const char *const color[] = {
        [KIND_INPUT] = "white", [KIND_ROWS] = "lightyellow", [KIND_REGION] = "lightblue", [KIND_COMM] = "salmon",
    };
    fputs("digraph stoa {\n  rankdir=TB;\n  node [shape=box, style=filled, fontname=\"monospace\"];\n", to);
    for (const struct node *n = g->first; n; n = n->next) {
        fprintf(to, "  n%u [fillcolor=%s, label=\"%s", n->out[0]->id, color[op_info[n->op].kind], op_info[n->op].name);
        for (uint32_t i = 0; i < n->n_steps; i++)
            fprintf(to, "%s%s", i ? "; " : ": ", op_info[n->step[i]->op].name);
        for (uint32_t i = 0; i < n->n_in; i++)
            if (n->in[i]->weight) {
                fputs("\\n", to);
                print_weight(n->in[i], to);
            }
        print_attr(n, to);
        fputs("\"];\n", to);
        for (uint32_t i = 0; i < n->n_in; i++) {
            const struct tensor *t = n->in[i];
            if (!t->maker)
                continue;
            fprintf(to, "  n%u -> n%u [label=\"", t->maker->out[0]->id, n->out[0]->id);
            print_dims(t, to);
            print_placement(t, to);
            fputs("\"];\n", to);
        }
    }
    fputs("}\n", to);
}
