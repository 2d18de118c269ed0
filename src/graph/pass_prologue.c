/* pass_prologue.c: what makes a matmul's input and is wanted nowhere else is made by those who multiply.
 *
 *   norm + quantize         before QKV, before gate and up
 *   quantize                between attention and its output matrix
 *   residual + norm + ..    where sums are reduced between ranks
 *
 * With few rows, as in decode, such a region is the work of one thread, for which all others wait.  Each of them may as well do
 * it for itself and go on.  With many rows it stays a region of its own. */
#include "graph/ops.h"

#include "base/base.h"
#include "base/error.h"

#include <stdlib.h>

/* Steps of a node that joins others, or the node itself, at the end of a chain. */
static bool append(struct node *chain, struct node *n)
{
    if (chain->n_steps + MAX(n->n_steps, 1) > NODE_MAX_STEPS)
        return false;
    for (uint32_t s = 0; s < n->n_steps; s++)
        chain->step[chain->n_steps++] = n->step[s];
    if (!n->n_steps)
        chain->step[chain->n_steps++] = n;
    return true;
}

static bool takes_of(const struct node *n, const struct node *maker)
{
    for (uint32_t i = 0; i < n->n_in; i++)
        if (n->in[i]->maker == maker)
            return true;
    return false;
}

/* The first node after n that takes something of it. */
static struct node *first_user(const struct node *n)
{
    struct node *m = n->next;
    while (m && !takes_of(m, n))
        m = m->next;
    return m;
}

/* The node of rows and the node of a product as one; false where that may not be. */
static bool join(struct node *chain, struct node *rows, struct node *n, uint32_t *uses)
{
    const struct node *product = n->op == OP_matmul_chain ? n->step[n->product] : n;
    struct tensor *x = product->in[0];
    struct strips strips;
    *chain = (struct node){ .op = OP_matmul_chain, .layer = n->layer };
    if (product->op != OP_matmul || n->product || x->maker != rows || uses[x->id] != 1 || !append(chain, rows))
        return false;
    chain->product = chain->n_steps;
    if (!append(chain, n) || !chain_operands(chain, uses) || chain_strips(&strips, chain) || chain->n_out == NODE_MAX_OUTPUTS)
        return false;
    chain->out[chain->n_out++] = x;         /* it needs a place where rows are many */
    return true;
}

int pass_fuse_prologues(struct graph *g)
{
    uint32_t *uses = graph_count_uses(g);
    if (!uses)
        return ERR_NO_MEMORY;
    for (struct node *n = g->first; n; n = n->next) {
        bool is_rows = n->op == OP_row_chain || op_info[n->op].kind == KIND_ROWS;
        struct node chain, *made, *user = is_rows ? first_user(n) : NULL;
        if (!user || !join(&chain, n, user, uses))
            continue;
        if (!(made = arena_new(&g->arena, struct node))) {
            free(uses);
            return error_set(ERR_NO_MEMORY, "no memory for the graph");
        }
        *made = chain;
        graph_replace(g, user, user, made);
        graph_remove(g, n);
        graph_report(g, made, "what makes a product's input -> its prologue");
    }
    free(uses);
    return graph_verify(g);
}
