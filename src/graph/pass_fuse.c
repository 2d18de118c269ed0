/* pass_fuse.c: fewer, longer parallel regions.
 *
 *   matmuls of one input      become one node with several weights (QKV; gate and up): one wait instead of three
 *   runs of row operators     become a chain (residual + norm + quantize; RoPE of q and k + cache write; SwiGLU + quantize):
 *                             a row passes through all of them while it is in L1, and what only the chain itself uses
 *                             never reaches memory
 *
 * Neither changes what is computed for an element, so every output keeps its bits.  A value that is wanted outside a
 * chain, or is an output of the graph, stays an output of the chain. */
#include "graph/graph.h"

#include "base/base.h"
#include "base/error.h"

#include <stdlib.h>

static void report(const struct graph *g, const struct node *n, const char *what)
{
    if (g->log)
        fprintf(g->log, "%%%u  %s\n", n->out[0]->id, what);
}

/* ---- matmuls ---- */
static bool can_join(const struct node *a, const struct node *b)
{
    bool same = (a->op == OP_matmul && b->op == OP_matmul) || (a->op == OP_expert_matmul && b->op == OP_expert_matmul && a->in[1] == b->in[1]);
    return same && a->in[0] == b->in[0] && a->layer == b->layer && !a->attr.sum_label && !b->attr.sum_label &&
           a->n_out + b->n_out <= NODE_MAX_OUTPUTS;
}

static void join_matmuls(struct graph *g)
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
            report(g, n, "matmuls of one input -> one matmul of several weights");
        }
}

/* ---- row operators ---- */
static const struct tensor *rows_of(const struct node *n)
{
    return n->op == OP_kv_store ? n->in[0] : n->out[0];
}

/* The work on a row of one is at the same row of the other, on the same rank. */
static bool same_rows(const struct node *a, const struct node *b)
{
    const struct tensor *x = rows_of(a), *y = rows_of(b);
    return x->dim[0].symbol == y->dim[0].symbol && x->dim[0].mul == y->dim[0].mul && tensor_rows_are_split(x) == tensor_rows_are_split(y);
}

/* It reads rows of its first input that other threads may not have made yet. */
static bool reads_other_rows(const struct node *n)
{
    return n->op == OP_rows || n->op == OP_expert_sum;
}

static bool is_in(struct tensor *const *list, uint32_t n, const struct tensor *t)
{
    for (uint32_t i = 0; i < n; i++)
        if (list[i] == t)
            return true;
    return false;
}

static bool made_in_chain(const struct node *chain, const struct tensor *t)
{
    for (uint32_t s = 0; s < chain->n_steps; s++)
        if (is_in(chain->step[s]->out, chain->step[s]->n_out, t))
            return true;
    return false;
}

/* More uses in the graph than inside the chain. */
static bool used_outside(const struct node *chain, const uint32_t *uses, const struct tensor *t)
{
    uint32_t inside = 0;
    for (uint32_t s = 0; s < chain->n_steps; s++)
        for (uint32_t i = 0; i < chain->step[s]->n_in; i++)
            inside += chain->step[s]->in[i] == t;
    return uses[t->id] > inside;
}

/* Fills inputs and outputs of a chain from its steps; false when they are too many for a node. */
static bool chain_operands(struct node *chain, const uint32_t *uses)
{
    chain->n_in = chain->n_out = 0;
    for (uint32_t s = 0; s < chain->n_steps; s++) {
        const struct node *step = chain->step[s];
        for (uint32_t i = 0; i < step->n_in; i++) {
            if (made_in_chain(chain, step->in[i]) || is_in(chain->in, chain->n_in, step->in[i]))
                continue;
            if (chain->n_in == NODE_MAX_INPUTS)
                return false;
            chain->in[chain->n_in++] = step->in[i];
        }
        for (uint32_t i = 0; i < step->n_out; i++) {
            if (!used_outside(chain, uses, step->out[i]))
                continue;
            if (chain->n_out == NODE_MAX_OUTPUTS)
                return false;
            chain->out[chain->n_out++] = step->out[i];
        }
    }
    return chain->n_out > 0;
}

/* The longest run of row operators from n on that fits one node. */
static struct node *grow_chain(struct node *chain, struct node *n, const uint32_t *uses)
{
    struct node *last = n;
    struct node trial = { .op = OP_row_chain };
    for (struct node *m = n; m && op_info[m->op].kind == KIND_ROWS && same_rows(m, n) && trial.n_steps < NODE_MAX_STEPS; m = m->next) {
        if (reads_other_rows(m) && made_in_chain(&trial, m->in[0]))
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
        return last;
    *n = *chain;
    n->layer = last->layer;
    n->prev = first->prev;
    n->next = last->next;
    *(n->prev ? &n->prev->next : &g->first) = n;
    *(n->next ? &n->next->prev : &g->last) = n;
    for (uint32_t i = 0; i < n->n_out; i++)
        n->out[i]->maker = n;
    report(g, n, "row operators -> one chain");
    return n;
}

static int join_rows(struct graph *g)
{
    uint32_t *uses = graph_count_uses(g);
    if (!uses)
        return ERR_NO_MEMORY;
    for (struct node *n = g->first; n; n = n->next) {
        struct node chain = { 0 };
        if (op_info[n->op].kind != KIND_ROWS)
            continue;
        struct node *last = grow_chain(&chain, n, uses);
        if (last)
            n = replace_by_chain(g, n, last, &chain);
    }
    free(uses);
    return 0;
}

int pass_fuse(struct graph *g)
{
    join_matmuls(g);
    int err = join_rows(g);
    return err < 0 ? err : graph_verify(g);
}
