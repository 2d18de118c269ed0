/* pass_overlap.c: collectives start early and are waited for late.
 *
 * The gathering of a layer's weights starts with the layer before, so that their bytes come while that one is computed; a
 * gather_wait stands where the weight is first used.  Two layers of gathered weights are in memory at a time.  Needs
 * topological order, and keeps it: the parts that are gathered are the rank's own, there from the start. */
#include "graph/graph.h"

#include "base/error.h"

#include <stdlib.h>

/* The first node of the layer before n's, the first ones of all for layer 0. */
static struct node *earlier_start(struct node *n)
{
    struct node *place = n;
    int layer = n->layer;
    while (place->prev && place->prev->layer == layer)
        place = place->prev;
    if (place->prev)
        layer = place->prev->layer;
    while (place->prev && place->prev->layer == layer)
        place = place->prev;
    while (place != n && place->op == OP_gather_weight)     /* they are waited for in the order in which they start */
        place = place->next;
    return place;
}

static struct node *first_use(const struct node *n)
{
    for (struct node *m = n->next; m; m = m->next)
        for (uint32_t i = 0; i < m->n_in; i++)
            if (m->in[i] == n->out[0])
                return m;
    return NULL;
}

static int start_early(struct graph *g, struct node *n)
{
    struct node *use = first_use(n), *place = earlier_start(n);
    if (!use)
        return error_set(ERR_FAILED, "%s is gathered for nothing", n->out[0]->name);
    g->layer = use->layer;
    struct node *wait = graph_node(g, OP_gather_wait, &n->out[0], 1, 1, &n->attr);
    if (!wait)
        return ERR_NO_MEMORY;
    graph_move_before(g, wait, use);
    n->attr.early = true;
    if (place != n)
        graph_move_before(g, n, place);
    return 0;
}

int pass_overlap(struct graph *g)
{
    int err = 0;
    for (struct node *n = g->first, *next; n && !err; n = next) {
        next = n->next;
        if (n->op == OP_gather_weight)
            err = start_early(g, n);
    }
    return err < 0 ? err : graph_verify(g);
}
