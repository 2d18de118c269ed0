/* pass_epilogue.c: row operators on the columns of a product are done by who has just computed them.
 *
 *   QKV                 + norms and RoPE of heads + the cache write
 *   gate, up            + SwiGLU or GeGLU + quantize, of dense layers and of experts
 *   output, down        + residual, where the sum is whole on this rank
 *   head                + softcap
 *
 * What only the epilogue uses never leaves the core's cache, and a region and its wait are saved.  What is computed for an
 * element does not change, so every output keeps its bits.  A step moves up to the product: all else that it takes has been
 * made before that. */
#include "graph/ops.h"

#include "base/base.h"
#include "base/error.h"

#include <stdlib.h>

/* `t` is there when n runs, of nodes up to `end`. */
static bool is_made_before(const struct tensor *t, const struct node *n, const struct node *end)
{
    for (; n != end; n = n->next)
        if (t->maker == n)
            return false;
    return true;
}

static bool can_move_up(const struct node *chain, const struct node *n, const struct node *step)
{
    for (uint32_t i = 0; i < step->n_in; i++)
        if (!node_makes(chain, step->in[i]) && !is_made_before(step->in[i], n, step))
            return false;
    return true;
}

/* The chain of n and all row operators of its layer that may follow at once. */
static void grow_epilogue(struct node *chain, struct node *n, const uint32_t *uses)
{
    *chain = (struct node){ .op = OP_matmul_chain, .layer = n->layer, .n_steps = 1, .step = { n } };
    for (struct node *m = n->next; m && m->layer == n->layer && chain->n_steps < NODE_MAX_STEPS; m = m->next) {
        struct node trial = *chain;
        struct strips strips;
        trial.step[trial.n_steps++] = m;
        if (op_info[m->op].columns != COLUMNS_WHOLE && can_move_up(chain, n, m) && chain_operands(&trial, uses) &&
            !chain_strips(&strips, &trial))
            *chain = trial;
    }
}

static int add_epilogue(struct graph *g, struct node **at, const uint32_t *uses)
{
    struct node chain, *n = *at;
    grow_epilogue(&chain, n, uses);
    if (chain.n_steps == 1)
        return 0;
    struct node *made = arena_new(&g->arena, struct node);
    if (!made)
        return error_set(ERR_NO_MEMORY, "out of memory for a pass");
    *made = chain;
    for (uint32_t s = 1; s < made->n_steps; s++)
        graph_remove(g, made->step[s]);
    graph_replace(g, n, n, made);
    graph_report(g, made, "a product and row operators on its columns -> one region");
    *at = made;
    return 0;
}

int pass_fuse_epilogues(struct graph *g)
{
    uint32_t *uses = graph_count_uses(g);
    int err = uses ? 0 : ERR_NO_MEMORY;
    for (struct node *n = g->first; n && !err; n = n->next)
        if (node_multiplies(n))
            err = add_epilogue(g, &n, uses);
    free(uses);
    return err < 0 ? err : graph_verify(g);
}
