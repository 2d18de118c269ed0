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
    bool gathered;                  /* weights are stored in parts along dp */
    uint32_t expert_share[MESH_MAX_RANKS];  /* --shares, for each rank of an island */
    struct tensor **local;
    struct tensor **whole;          /* [tensor id]: gathered from rows that are split, or the same as local; NULL: not wanted yet */
    uint32_t *made_in;              /* [tensor id]: the stage that computes it */
    bool *crosses;                  /* [tensor id]: it is used in another stage than it is made in */
};

/* Tensors of the model as this rank has them: as they are placed, or the whole (NULL and error_text() where that is not to be had). */
struct tensor *shard_local(struct shard *s, const struct tensor *t);
struct tensor *shard_whole(struct shard *s, const struct tensor *t);
struct tensor *shard_weight(struct shard *s, const struct tensor *w);
/* What this rank has of a label, and its part of the label's tree. */
struct range shard_range(const struct shard *s, enum label label);
void shard_tree(const struct shard *s, enum label label, struct tree *tree);
/* The i-th output of n is `t` here. */
int shard_map(struct shard *s, const struct node *n, uint32_t i, struct tensor *t);
int shard_rebuild(struct shard *s, const struct node *n, struct tensor *const *in, const struct node_attr *attr);
void shard_keep_rows(struct tensor *out, struct tensor *const *in, uint32_t n_in);

/* chain.c: nodes that join others.  `uses` is graph_count_uses() from before.
 * Fills inputs and outputs of a chain from its steps; false when they are too many for a node, or nobody wants an output. */
bool chain_operands(struct node *chain, const uint32_t *uses);
/* The tensor whose rows are those of the node's work; and whether the work on a row of one node is at the same row of the other,
 * on the same rank. */
const struct tensor *node_rows(const struct node *n);
bool nodes_share_rows(const struct node *a, const struct node *b);

#define OP(name, n_inputs, n_outputs, kind, columns, shape, shard_rule, cost) \
    int shape(struct graph *g, struct node *n);                     \
    int shard_rule(struct shard *s, const struct node *n);          \
    void cost(const struct node *n, double *flops, double *weight_bytes);
#include "graph/ops.def"
#undef OP

#endif
