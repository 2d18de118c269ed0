/* verify.c: what must hold after every pass. */
#include "graph/ops.h"

#include "base/base.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

static int broken(const struct node *n, const char *what, const struct tensor *t)
{
    return error_set(ERR_FAILED, "graph is broken at %s (layer %d): %s %%%u", op_info[n->op].name, n->layer, what, t->id);
}

/* The shape rule, run on the node again, must give what its outputs have. */
static int verify_shape(struct graph *g, struct node *n)
{
    struct tensor before[NODE_MAX_OUTPUTS];
    for (uint32_t i = 0; i < n->n_out; i++)
        before[i] = *n->out[i];
    int err = op_info[n->op].shape(g, n);
    for (uint32_t i = 0; !err && i < n->n_out; i++)
        if (before[i].n_dims != n->out[i]->n_dims || memcmp(before[i].dim, n->out[i]->dim, sizeof before[i].dim))
            err = broken(n, "the shape is not what its inputs give, of", n->out[i]);
    for (uint32_t i = 0; i < n->n_out; i++)
        *n->out[i] = before[i];
    return err;
}

static int verify_node(struct graph *g, struct node *n, bool *made)
{
    if (n->n_in < op_info[n->op].n_inputs || n->n_out < op_info[n->op].n_outputs)
        return error_set(ERR_FAILED, "graph is broken: %s has too few operands", op_info[n->op].name);
    for (uint32_t i = 0; i < n->n_in; i++)
        if (!n->in[i]->weight && !made[n->in[i]->id])
            return broken(n, "used before it is made:", n->in[i]);
    for (uint32_t i = 0; i < n->n_out; i++) {
        if (made[n->out[i]->id] || n->out[i]->maker != n)
            return broken(n, "has two makers:", n->out[i]);
        made[n->out[i]->id] = true;
    }
    for (uint32_t i = 0; i < n->n_in; i++)
        for (int a = 0; a < N_AXES; a++)
            if (n->in[i]->placement[a].kind == PLACE_PARTIAL && n->op != OP_all_reduce && n->op != OP_reduce_scatter && n->op != OP_combine)
                return broken(n, "partial sums are used before their reduction:", n->in[i]);
    return verify_shape(g, n);
}

int graph_verify(struct graph *g)
{
    bool *made = calloc(g->n_tensors + 1, sizeof *made);
    int err = made ? 0 : error_set(ERR_NO_MEMORY, "out of memory for the verifier");
    for (struct node *n = g->first; !err && n; n = n->next) {
        if (n->next && n->next->prev != n)
            err = error_set(ERR_FAILED, "graph is broken: the list of nodes is torn at %s", op_info[n->op].name);
        else
            err = verify_node(g, n, made);
    }
    free(made);
    return err;
}
