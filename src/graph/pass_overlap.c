/* pass_overlap.c: collectives start early and are waited for late.
 *
 * The gathering of a layer's weights starts with the layer before, so that their bytes come while that one is computed; a
 * gather_wait stands where the weight is first used.  Two layers of gathered weights are in memory at a time.  Needs
 * topological order, and keeps it: the parts that are gathered are the rank's own, there from the start. */
#include "graph/graph.h"

#include "base/error.h"

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
    while (place->op == OP_gather_weight && place->attr.early)      /* they are waited for in the order in which they start */
        place = place->next;
    return place;
}

static int start_early(struct graph *g, struct node *n, struct node *use)
{
    struct node *place = earlier_start(n);
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

/* In the order of uses: where matmuls have been joined it is not that of the gathers. */
int pass_overlap(struct graph *g)
{
    int err = 0;
    for (struct node *use = g->first; use && !err; use = use->next)
        for (uint32_t i = 0; i < use->n_in && !err; i++) {
            struct node *n = use->in[i]->maker;
            if (n && n->op == OP_gather_weight && !n->attr.early)
                err = start_early(g, n, use);
        }
    return err < 0 ? err : graph_verify(g);
}
