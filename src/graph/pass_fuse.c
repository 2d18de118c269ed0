/* pass_fuse.c: fewer, longer parallel regions; pass_epilogue.c comes between the two.
 *
 *   fuse_matmuls    matmuls of one input become one node with several weights (QKV; gate and up): one wait instead of three
 *   fuse_rows       runs of row operators become a chain (residual + norm + quantize): a row passes through all of them while
 *                   it is in L1, and what only the chain itself uses never reaches memory
 *
 * Neither changes what is computed for an element, so every output keeps its bits.  A value that is wanted outside a
 * chain, or is an output of the graph, stays an output of the chain. */
#include "graph/ops.h"

#include "base/base.h"
#include "base/error.h"

#include <stdlib.h>

/* ---- matmuls ---- */
static bool can_join(const struct node *a, const struct node *b)
{
    bool same = a->op == b->op && (a->op == OP_matmul || (a->op == OP_expert_matmul && a->in[1] == b->in[1]));
    return same && a->in[0] == b->in[0] && a->layer == b->layer && !a->attr.sum_label && !b->attr.sum_label &&
           a->n_out + b->n_out <= NODE_MAX_OUTPUTS;
}

int pass_fuse_matmuls(struct graph *g)
{
    for (struct node *n = g->first; n; n = n->next)
        for (struct node *m = n->next, *after; m && m->layer == n->layer; m = after) {
            after = m->next;
            if (!can_join(n, m))
                continue;
            for (uint32_t i = 0; i < m->n_out; i++) {
                n->in[n->n_in++] = m->in[node_first_weight(m) + i];
                m->out[i]->maker = n;
                n->out[n->n_out++] = m->out[i];
            }
            graph_remove(g, m);
            graph_report(g, n, "matmuls of one input -> one matmul of several weights");
        }
    return graph_verify(g);
}

/* ---- row operators ---- */
/* It reads rows of its first input that other threads may not have made yet. */
static bool reads_other_rows(const struct node *n)
{
    return n->op == OP_rows || n->op == OP_expert_sum;
}

/* The longest run of row operators from n on that fits one node. */
static struct node *grow_chain(struct node *chain, struct node *n, const uint32_t *uses)
{
    struct node *last = n;
    struct node trial = { .op = OP_row_chain };
    for (struct node *m = n; m && op_info[m->op].kind == KIND_ROWS && nodes_share_rows(m, n) &&
         trial.n_steps < NODE_MAX_STEPS; m = m->next) {
        if (reads_other_rows(m) && node_makes(&trial, m->in[0]))
            break;
        trial.step[trial.n_steps++] = m;
        if (!chain_operands(&trial, uses))
            continue;           /* a longer run may need fewer outputs */
        *chain = trial;
        last = m;
    }
    return chain->n_steps > 1 ? last : NULL;
}

static struct node *replace_by_chain(struct graph *g, struct node *first, struct node *last, const struct node *chain)
{
    struct node *n = arena_new(&g->arena, struct node);
    if (!n)
        return NULL;
    *n = *chain;
    n->layer = last->layer;
    graph_replace(g, first, last, n);
    graph_report(g, n, "row operators -> one chain");
    return n;
}

int pass_fuse_rows(struct graph *g)
{
    uint32_t *uses = graph_count_uses(g);
    if (!uses)
        return ERR_NO_MEMORY;
    for (struct node *n = g->first; n; n = n->next) {
        struct node chain = { 0 };
        if (op_info[n->op].kind != KIND_ROWS)
            continue;
        struct node *last = grow_chain(&chain, n, uses);
        if (last && !(n = replace_by_chain(g, n, last, &chain))) {
            free(uses);
            return error_set(ERR_NO_MEMORY, "no memory for the graph");
        }
    }
    free(uses);
    return graph_verify(g);
}
