/* ops.h: the functions that ops.def names, and what the passes share. */
#ifndef STOA_GRAPH_OPS_H
#define STOA_GRAPH_OPS_H

#include "graph/graph.h"

/* pass_shard.c: the state of one run.  local[id] is this rank's tensor for the tensor `id` of `from`, or NULL. */
struct shard {
    const struct graph *from;
    struct graph *to;
    const struct mesh *mesh;
    uint32_t rank;
    struct tensor **local;
    uint32_t *made_in;              /* [tensor id]: the stage that computes it */
    bool *crosses;                  /* [tensor id]: it is used in another stage than it is made in */
};

#define OP(name, n_inputs, n_outputs, kind, shape, shard_rule, cost) \
    int shape(struct graph *g, struct node *n);                     \
    int shard_rule(struct shard *s, const struct node *n);          \
    void cost(const struct node *n, double *flops, double *weight_bytes);
#include "graph/ops.def"
#undef OP

#endif
