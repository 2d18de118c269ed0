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

/* What is known of a tensor on the way through the list. */
struct known {
    bool is_made;
    uint32_t coming;        /* its number, from 1, among the gathers that started early; 0: it is there */
};

struct walk {
    struct known *of;       /* [tensor id] */
    uint32_t n_started, n_waited;
};

static int verify_input(struct walk *walk, const struct node *n, const struct tensor *t)
{
    struct known *known = &walk->of[t->id];
    if (t->weight)
        return 0;
    if (!known->is_made)
        return broken(n, "used before it is made:", t);
    if (n->op != OP_gather_wait)
        return known->coming ? broken(n, "used before it is waited for:", t) : 0;
    if (known->coming != walk->n_waited + 1)
        return broken(n, "it is not the turn of", t);       /* the transport gives them in the order in which they started */
    walk->n_waited++;
    known->coming = 0;
    return 0;
}

/* What a step takes comes from outside or from a step before it. */
static int verify_steps(const struct node *n)
{
    struct node before = { .n_steps = 0 };
    for (uint32_t s = 0; s < n->n_steps; before.step[before.n_steps++] = n->step[s++])
        for (uint32_t i = 0; i < n->step[s]->n_in; i++) {
            const struct tensor *t = n->step[s]->in[i];
            bool is_given = node_makes(&before, t);
            for (uint32_t k = 0; k < n->n_in; k++)
                is_given |= n->in[k] == t;
            if (!is_given)
                return broken(n, "a step takes what is not there:", t);
        }
    struct strips strips;
    const char *wrong = n->op == OP_matmul_chain ? chain_strips(&strips, n) : NULL;
    return wrong ? broken(n, wrong, n->out[0]) : 0;
}

/* It reads rows of the input that are not the row which it makes, or all of them. */
static bool reads_all_rows(const struct node *n, uint32_t input)
{
    if (op_info[n->op].kind == KIND_ROWS)
        return (n->op == OP_rows || n->op == OP_expert_sum) && input == 0;
    return n->op != OP_row_chain && n->op != OP_send && n->op != OP_all_gather;
}

/* Partial sums and rows that are split reach only what knows of them. */
static int verify_placement(const struct node *n)
{
    bool reduces = n->op == OP_all_reduce || n->op == OP_reduce_scatter || n->op == OP_combine;
    for (uint32_t i = 0; i < n->n_in; i++) {
        const struct tensor *t = n->in[i];
        for (int a = 0; a < N_AXES; a++)
            if (t->placement[a].kind == PLACE_PARTIAL && !reduces)
                return broken(n, "partial sums are used before their reduction:", t);
        if (tensor_rows_are_split(t) && reads_all_rows(n, i))
            return broken(n, "needs all rows, of which a rank has its share, of", t);
        if (tensor_rows_are_split(t) && op_info[n->op].kind == KIND_ROWS && !tensor_rows_are_split(n->out[0]))
            return broken(n, "makes rows of other ranks as well from", t);
    }
    for (uint32_t s = 0; s < n->n_steps; s++) {
        int err = verify_placement(n->step[s]);
        if (err < 0)
            return err;
    }
    return 0;
}

static int verify_node(struct graph *g, struct node *n, struct walk *walk)
{
    int err = 0;
    if (n->n_in < op_info[n->op].n_inputs || n->n_out < op_info[n->op].n_outputs)
        return error_set(ERR_FAILED, "graph is broken: %s has too few operands", op_info[n->op].name);
    for (uint32_t i = 0; !err && i < n->n_in; i++)
        err = verify_input(walk, n, n->in[i]);
    for (uint32_t i = 0; !err && i < n->n_out; i++) {
        struct known *known = &walk->of[n->out[i]->id];
        if (known->is_made || n->out[i]->maker != n)
            return broken(n, "has two makers:", n->out[i]);
        known->is_made = true;
        if (n->op == OP_gather_weight && n->attr.early)
            known->coming = ++walk->n_started;
    }
    if (err < 0 || (err = verify_placement(n)) < 0 || (err = verify_steps(n)) < 0)
        return err;
    return verify_shape(g, n);
}

int graph_verify(struct graph *g)
{
    struct walk walk = { .of = calloc(g->n_tensors + 1, sizeof *walk.of) };
    int err = walk.of ? 0 : error_set(ERR_NO_MEMORY, "out of memory for the verifier");
    for (struct node *n = g->first; !err && n; n = n->next) {
        if (n->next && n->next->prev != n)
            err = error_set(ERR_FAILED, "graph is broken: the list of nodes is torn at %s", op_info[n->op].name);
        else
            err = verify_node(g, n, &walk);
    }
    if (!err && walk.n_started != walk.n_waited)
        err = error_set(ERR_FAILED, "graph is broken: %u gathered weights are never waited for", walk.n_started - walk.n_waited);
    free(walk.of);
    return err;
}
