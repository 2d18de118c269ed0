/* pass_simplify.c: the same value is computed once, and what nobody uses not at all. */
#include "graph/graph.h"

#include "base/base.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

/* Nodes that do something beyond making their outputs. */
static bool has_effect(const struct node *n)
{
    return n->op == OP_send || n->op == OP_kv_store || n->op == OP_gather_wait;
}

static bool same_weight(const struct tensor *a, const struct tensor *b)
{
    return a->weight && b->weight && !strcmp(a->name, b->name) && a->weight->use == b->weight->use &&
           !memcmp(&a->weight->rows, &b->weight->rows, sizeof a->weight->rows) &&
           !memcmp(&a->weight->experts, &b->weight->experts, sizeof a->weight->experts) &&
           !memcmp(&a->weight->columns, &b->weight->columns, sizeof a->weight->columns);
}

static bool same_value(const struct node *a, const struct node *b)
{
    if (a->op != b->op || a->n_in != b->n_in || a->n_out != b->n_out || has_effect(a) || a->op == OP_input || a->op == OP_receive)
        return false;
    for (uint32_t i = 0; i < a->n_in; i++)
        if (a->in[i] != b->in[i] && !same_weight(a->in[i], b->in[i]))
            return false;
    for (uint32_t i = 0; i < a->n_out; i++)
        if (a->out[i]->is_output && b->out[i]->is_output)
            return false;       /* a tensor has one name: two outputs that are equal stay two */
    return !memcmp(&a->attr, &b->attr, sizeof a->attr);
}

/* An equal node stands close by: one that shares an input is looked for among the nodes since that input was made. */
static struct node *twin_before(struct node *n)
{
    for (struct node *m = n->prev; m; m = m->prev) {
        if (same_value(m, n))
            return m;
        for (uint32_t i = 0; i < n->n_in; i++)
            if (n->in[i]->maker == m)
                return NULL;
    }
    return NULL;
}

/* From the last node to the first, so that what only dead nodes use is dead as well. */
static int prune(struct graph *g)
{
    uint32_t *uses = graph_count_uses(g);
    if (!uses)
        return ERR_NO_MEMORY;
    for (struct node *n = g->last, *before; n; n = before) {
        bool used = has_effect(n);
        before = n->prev;
        for (uint32_t i = 0; i < n->n_out; i++)
            used = used || uses[n->out[i]->id];
        if (used)
            continue;
        for (uint32_t i = 0; i < n->n_in; i++)
            uses[n->in[i]->id]--;
        graph_remove(g, n);
    }
    free(uses);
    return 0;
}

int pass_simplify(struct graph *g)
{
    for (struct node *n = g->first; n; n = n->next) {
        struct node *twin = twin_before(n);
        if (!twin)
            continue;
        for (uint32_t i = 0; i < n->n_out; i++)
            graph_replace_uses(g, n->out[i], twin->out[i], "the same value again");
        graph_remove(g, n);     /* at once, or a third would find it and give it a use again */
    }
    int err = prune(g);
    return err < 0 ? err : graph_verify(g);
}
