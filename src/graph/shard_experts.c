/* shard_experts.c: how a mixture of experts is spread (rules of pass_shard.c).
 *
 * Every rank has the router and computes the experts that it holds, for the tokens that it has.  Their weighted outputs make
 * partial sums in the canonical tree over expert id.
 *
 *   island of 1    the ranks of tp have the same tokens: dispatch and combine vanish, and the partial sums are reduced along tp
 *   island of m    the m groups of dp have tokens of their own.  A token goes along dp to the ranks that hold an expert of it;
 *                  their sums come back and are joined at home, which leaves what one rank of tp would have had */
#include "graph/ops.h"

#include "base/error.h"

int shard_dispatch(struct shard *s, const struct node *n)
{
    struct tensor *in[3];
    struct node_attr attr = n->attr;
    uint32_t island = mesh_island(s->mesh);
    for (uint32_t i = 0; i < 3; i++)
        if (!(in[i] = shard_whole(s, n->in[i])))
            return ERR_FAILED;
    if (island == 1) {
        for (uint32_t i = 0; i < 3; i++)
            s->local[n->out[i]->id] = in[i];
        return 0;
    }
    struct range *experts = arena_array(&s->to->arena, struct range, island);
    if (!experts)
        return ERR_NO_MEMORY;
    uint32_t first = mesh_coordinate(s->mesh, s->rank, AXIS_TP) * island;
    for (uint32_t i = 0; i < island; i++)
        experts[i] = label_range(s->from->labels, LABEL_EXPERTS, s->mesh->n_shares ? s->expert_share : NULL, s->mesh->size[AXIS_EP],
                                 first + i);
    attr.axis = AXIS_EP;
    attr.n_ranks = island;
    attr.experts_of = experts;
    struct node *made = graph_node(s->to, OP_dispatch, in, 3, 4, &attr);
    for (uint32_t i = 0; made && i < 4; i++)
        if (shard_map(s, n, i, made->out[i]) < 0)
            return ERR_NO_MEMORY;
    return made ? 0 : ERR_FAILED;
}

int shard_sort(struct shard *s, const struct node *n)
{
    struct tensor *ids = shard_whole(s, n->in[0]);
    struct node_attr attr = n->attr;
    attr.experts = shard_range(s, LABEL_EXPERTS);
    return ids ? shard_rebuild(s, n, &ids, &attr) : ERR_FAILED;
}

int shard_expert_matmul(struct shard *s, const struct node *n)
{
    struct tensor *in[] = { shard_local(s, n->in[0]), shard_local(s, n->in[1]), shard_weight(s, n->in[2]) };
    return in[0] && in[1] && in[2] ? shard_rebuild(s, n, in, &n->attr) : ERR_FAILED;
}

int shard_expert_sum(struct shard *s, const struct node *n)
{
    struct tensor *in[4];
    struct node_attr attr = n->attr;
    for (uint32_t i = 0; i < 4; i++)
        if (!(in[i] = shard_local(s, n->in[i])))
            return ERR_FAILED;
    shard_tree(s, LABEL_EXPERTS, &attr.tree);
    int err = shard_rebuild(s, n, in, &attr);
    if (err == 0 && s->mesh->size[AXIS_EP] > 1)
        s->local[n->out[0]->id]->placement[AXIS_EP] =
            (struct placement){ .kind = PLACE_PARTIAL, .label = LABEL_EXPERTS, .n_parts = attr.tree.n_parts };
    return err;
}

/* What one rank of tp has, all islands' ranks of it together, is partial along tp. */
static void set_partial(const struct shard *s, struct tensor *t, uint32_t n_parts)
{
    if (s->mesh->size[AXIS_TP] > 1)
        t->placement[AXIS_TP] = (struct placement){ .kind = PLACE_PARTIAL, .label = LABEL_EXPERTS, .n_parts = n_parts };
}

int shard_combine(struct shard *s, const struct node *n)
{
    struct tensor *sums = shard_local(s, n->in[0]);
    struct node_attr attr = n->attr;
    uint32_t island = mesh_island(s->mesh), first = mesh_coordinate(s->mesh, s->rank, AXIS_TP) * island;
    if (!sums)
        return ERR_FAILED;
    if (island == 1) {
        uint32_t n_parts = sums->placement[AXIS_EP].n_parts;
        sums->placement[AXIS_EP] = (struct placement){ 0 };
        set_partial(s, sums, n_parts);
        s->local[n->out[0]->id] = sums;
        return 0;
    }
    struct tensor *in[] = { sums, shard_local(s, n->in[1]), shard_whole(s, n->in[2]) };
    if (!in[1] || !in[2] || !(attr.joined.first = arena_array(&s->to->arena, uint32_t, island + 1)))
        return ERR_FAILED;
    attr.axis = AXIS_EP;
    attr.n_ranks = island;
    label_join(&attr.joined, &s->from->labels[LABEL_EXPERTS], s->mesh->n_shares ? s->expert_share : NULL, s->mesh->size[AXIS_EP], first,
               first + island);
    struct node *made = graph_node(s->to, OP_combine, in, 3, 1, &attr);
    if (!made)
        return ERR_FAILED;
    shard_keep_rows(made->out[0], &in[2], 1);
    set_partial(s, made->out[0], attr.joined.n_roots);
    return shard_map(s, n, 0, made->out[0]);
}
