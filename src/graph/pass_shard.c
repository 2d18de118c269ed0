/* pass_shard.c: parallelism as a rewrite.
 *
 * One walk over the model's graph makes the graph of one rank.  Each operator has a rule (its column in ops.def) that maps
 * the operands to this rank's tensors, calls the ordinary builder on them, and says how the result is placed.  Where a
 * rule needs a value whole and it is there in parts, the collective that makes it whole is inserted.
 *
 *   dp   a rank's T tokens are those of its own group's sequences: nothing else changes
 *   tp   a weight with a label on its rows is cut by rows and gives a split result; with a label on its columns it is cut
 *        by columns and gives partial sums, in the canonical tree of that label; whole() reduces them
 *   sp   the reduction gives each rank of tp its share of the rows; row operators keep to it; whole() gathers
 *   ep   a rank has the matrices of some experts; where they are spread over groups of dp, dispatch and combine, which vanish
 *        else, move rows to them and sums back (shard_experts.c)
 *   pp   a node belongs to the stage of its layer; a value used in a later stage is sent there once, as soon as it is made
 *   gathered weights   what the ranks along dp have in common is stored in parts; a gather_weight puts them together
 *
 * A later axis is rules and cases here and nothing elsewhere: cp would cut the T dim of one sequence. */
#include "graph/ops.h"

#include "base/base.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

/* The axis that cuts each label. */
static const enum axis axis_of[N_LABELS] = {
    [LABEL_HEADS] = AXIS_TP, [LABEL_KV_HEADS] = AXIS_TP, [LABEL_FFN] = AXIS_TP, [LABEL_VOCAB] = AXIS_TP, [LABEL_EXPERTS] = AXIS_EP,
};

/* What --shares says of the ranks along an axis; NULL: all alike.  The ranks of an island that are one rank of tp share alike. */
static const uint32_t *shares(const struct shard *s, enum axis axis)
{
    if (!s->mesh->n_shares)
        return NULL;
    return axis == AXIS_EP ? s->expert_share : s->mesh->share;
}

struct range shard_range(const struct shard *s, enum label label)
{
    enum axis axis = axis_of[label];
    return label_range(s->from->labels, label, shares(s, axis), s->mesh->size[axis], mesh_coordinate(s->mesh, s->rank, axis));
}

static uint32_t stage_of(const struct shard *s, int layer)
{
    uint32_t n_stages = s->mesh->size[AXIS_PP], last = 0;
    for (uint32_t stage = 0; stage < n_stages; stage++) {
        struct range layers = share_items(s->from->n_layers, s->mesh->n_stages ? s->mesh->stage_layers : NULL, n_stages, stage);
        if ((uint32_t)layer >= layers.begin && (uint32_t)layer < layers.end)
            last = stage;
    }
    return last;
}

static uint32_t my_stage(const struct shard *s)
{
    return mesh_coordinate(s->mesh, s->rank, AXIS_PP);
}

/* ---- weights ---- */
static struct range slice_of(const struct shard *s, const struct dim *dim)
{
    if (!dim->label)
        return (struct range){ 0, (uint32_t)dim->add };
    struct range elements = shard_range(s, dim->label);
    return (struct range){ elements.begin * dim->width, elements.end * dim->width };
}

static struct dim sliced(struct dim dim, struct range slice)
{
    dim.add = slice.end - slice.begin;
    return dim;
}

/* Before the layer's other nodes, so that passes which join those find it there. */
static void move_to_layer_start(struct graph *g, struct node *n)
{
    struct node *first = n;
    while (first->prev && first->prev->layer == n->layer && first->prev->op != OP_gather_weight)
        first = first->prev;
    if (first != n)
        graph_move_before(g, n, first);
}

/* Stored in parts by the ranks along dp, which all have the same slice of it. */
static struct tensor *gathered(struct shard *s, struct tensor *t)
{
    struct weight *w = t->weight;
    uint32_t n = s->mesh->size[AXIS_DP];
    bool spread = w->use == WEIGHT_EXPERTS && mesh_island(s->mesh) > 1;
    if (!s->gathered || spread || (w->use != WEIGHT_MATMUL && w->use != WEIGHT_EXPERTS) || !w->stored.end)
        return t;
    struct node_attr attr = { .axis = AXIS_DP, .n_panels = w->stored.end };
    w->stored = share_items(w->stored.end, NULL, n, mesh_coordinate(s->mesh, s->rank, AXIS_DP));
    t->placement[AXIS_DP] = (struct placement){ .kind = PLACE_SPLIT, .dim = 0 };
    struct node *made = graph_node(s->to, OP_gather_weight, &t, 1, 1, &attr);
    if (!made)
        return NULL;
    move_to_layer_start(s->to, made);
    return made->out[0];
}

struct tensor *shard_weight(struct shard *s, const struct tensor *w)
{
    const struct weight *from = w->weight;
    if (s->local[w->id])
        return s->local[w->id];
    const struct dim *dim = w->dim + w->n_dims - 2;
    bool experts = from->use == WEIGHT_EXPERTS;
    struct range rows = slice_of(s, &dim[0]), columns = slice_of(s, &dim[1]), held = experts ? slice_of(s, &w->dim[0]) : from->experts;
    struct dim local_rows = sliced(dim[0], rows), local_columns = sliced(dim[1], columns);
    struct tensor *t = !experts ? graph_weight(s->to, w->name, w->type, from->use, local_rows, local_columns)
                                : graph_expert_weight(s->to, w->name, from->per_expert, w->type, sliced(w->dim[0], held), local_rows,
                                                      local_columns);
    if (!t)
        return NULL;
    t->weight->n_rows = from->n_rows;
    t->weight->n_columns = from->n_columns;
    t->weight->rows = rows;
    t->weight->columns = columns;
    t->weight->experts = held;
    return s->local[w->id] = gathered(s, t);
}

/* ---- values ---- */
struct tensor *shard_local(struct shard *s, const struct tensor *t)
{
    return t->weight ? shard_weight(s, t) : s->local[t->id];
}

/* Sequence parallelism serves rows of tokens. */
static bool splits_rows(const struct shard *s, const struct tensor *t)
{
    return s->mesh->sp != SP_NEVER && s->mesh->size[AXIS_TP] > 1 && t->n_dims == 2 && t->dim[0].symbol == SYMBOL_T && t->dim[0].mul == 1;
}

static struct tensor *collective(struct shard *s, enum op op, struct tensor *t, const struct node_attr *attr)
{
    struct node *n = graph_node(s->to, op, &t, 1, 1, attr);
    if (!n)
        return NULL;
    n->out[0]->placement[AXIS_DP] = t->placement[AXIS_DP];
    return n->out[0];
}

/* Partial sums along tp become a sum, once, however often the value is used: the whole of it on every rank, or with `split` each
 * rank's share of the rows. */
static struct tensor *reduced(struct shard *s, const struct tensor *t, bool split)
{
    struct tensor *mine = shard_local(s, t);
    if (!mine || mine->placement[AXIS_TP].kind != PLACE_PARTIAL)
        return mine;
    enum label label = mine->placement[AXIS_TP].label;
    struct node_attr attr = { .axis = AXIS_TP, .sum_label = label };
    uint32_t n = s->mesh->size[AXIS_TP];
    if (!(attr.joined.first = arena_array(&s->to->arena, uint32_t, n + 1)))
        return NULL;
    label_join(&attr.joined, &s->from->labels[label], shares(s, AXIS_TP), n, 0, n);
    split = split && splits_rows(s, mine);
    mine = collective(s, split ? OP_reduce_scatter : OP_all_reduce, mine, &attr);
    if (mine && split)
        mine->placement[AXIS_TP] = (struct placement){ .kind = PLACE_SPLIT, .dim = 0 };
    return s->local[t->id] = mine;
}

/* True, or false and error_text(): a rank has only some of the columns. */
static bool has_whole_rows(const struct tensor *mine, const char *name)
{
    for (int a = 0; a < N_AXES; a++)
        if (mine->placement[a].kind == PLACE_SPLIT && mine->placement[a].dim) {
            error_set(ERR_USAGE, "%s is split along %s and is needed whole: no rule gathers it", name, axis_name[a]);
            return false;
        }
    return true;
}

struct tensor *shard_whole(struct shard *s, const struct tensor *t)
{
    if (s->whole[t->id])
        return s->whole[t->id];
    struct tensor *mine = reduced(s, t, false);
    if (!mine || !has_whole_rows(mine, t->name))
        return NULL;
    if (tensor_rows_are_split(mine))
        mine = collective(s, OP_all_gather, mine, &(struct node_attr){ .axis = AXIS_TP });
    return s->whole[t->id] = mine;
}

/* A group along dp has rows of its own. */
static void split_tokens(const struct shard *s, struct tensor *t)
{
    if (s->mesh->size[AXIS_DP] > 1)
        t->placement[AXIS_DP] = (struct placement){ .kind = PLACE_SPLIT, .dim = 0 };
}

int shard_map(struct shard *s, const struct node *n, uint32_t i, struct tensor *t)
{
    if (!t || !(t->name = arena_string(&s->to->arena, n->out[i]->name)))        /* the model's graph is closed before this one */
        return ERR_FAILED;
    s->local[n->out[i]->id] = t;
    return 0;
}

/* A result made row by row is split by rows as what it is made of. */
void shard_keep_rows(struct tensor *out, struct tensor *const *in, uint32_t n_in)
{
    for (uint32_t i = 0; i < n_in; i++)
        for (int a = 0; a < N_AXES && !in[i]->weight; a++)
            if (in[i]->placement[a].kind == PLACE_SPLIT && in[i]->placement[a].dim == 0)
                out->placement[a] = in[i]->placement[a];
}

/* Builds the same operator over local operands; the result is placed like the first, and by rows like all. */
int shard_rebuild(struct shard *s, const struct node *n, struct tensor *const *in, const struct node_attr *attr)
{
    struct node *made = graph_node(s->to, n->op, in, n->n_in, n->n_out, attr);
    if (!made)
        return ERR_FAILED;
    for (uint32_t i = 0; i < n->n_out; i++) {
        memcpy(made->out[i]->placement, in[0]->placement, sizeof in[0]->placement);
        shard_keep_rows(made->out[i], in, n->n_in);
        if (shard_map(s, n, i, made->out[i]) < 0)
            return ERR_NO_MEMORY;
    }
    return 0;
}

/* ---- rules ---- */
int shard_none(struct shard *s, const struct node *n)
{
    (void)s;
    return error_set(ERR_FAILED, "%s has no sharding rule: it is made by a later pass", op_info[n->op].name);
}

int shard_input(struct shard *s, const struct node *n)
{
    const struct tensor *t = n->out[0];
    struct tensor *mine = graph_input(s->to, t->name, t->type, t->dim[0]);
    if (mine)
        split_tokens(s, mine);
    return shard_map(s, n, 0, mine);
}

/* Needs its operands whole and gives the result whole. */
int shard_replicated(struct shard *s, const struct node *n)
{
    struct tensor *in[NODE_MAX_INPUTS];
    for (uint32_t i = 0; i < n->n_in; i++)
        if (!(in[i] = n->in[i]->weight ? shard_weight(s, n->in[i]) : shard_whole(s, n->in[i])))
            return ERR_FAILED;
    return shard_rebuild(s, n, in, &n->attr);
}

/* Works on any split that its operands share; partial sums are reduced first, since it is not linear in each of them. */
int shard_elementwise(struct shard *s, const struct node *n)
{
    struct tensor *in[NODE_MAX_INPUTS];
    for (uint32_t i = 0; i < n->n_in; i++)
        if (!(in[i] = reduced(s, n->in[i], true)))
            return ERR_FAILED;
    return shard_rebuild(s, n, in, &n->attr);
}

/* Needs each row whole. */
int shard_rowwise(struct shard *s, const struct node *n)
{
    struct tensor *mine = shard_local(s, n->in[0]);
    if (mine && mine->placement[AXIS_TP].kind == PLACE_SPLIT && mine->placement[AXIS_TP].dim)
        return error_set(ERR_USAGE, "%s is split along tp, and %s needs its rows whole", n->in[0]->name, op_info[n->op].name);
    return shard_elementwise(s, n);
}

int shard_rope(struct shard *s, const struct node *n)
{
    struct tensor *in[] = { shard_local(s, n->in[0]), shard_whole(s, n->in[1]) };
    return in[0] && in[1] ? shard_rebuild(s, n, in, &n->attr) : ERR_FAILED;
}

int shard_kv_store(struct shard *s, const struct node *n)
{
    struct tensor *in[] = { shard_local(s, n->in[0]), shard_local(s, n->in[1]) };
    struct node_attr attr = n->attr;
    if (!in[0] || !in[1])
        return ERR_FAILED;
    struct cache_group *group = &s->to->cache_group[attr.cache_group];
    attr.cache_layer = group->n_layers++;
    group->n_kv_heads = (uint32_t)(tensor_columns(in[0]) / attr.head_dim);
    return shard_rebuild(s, n, in, &attr);
}

int shard_attention(struct shard *s, const struct node *n)
{
    struct tensor *in[] = { shard_local(s, n->in[0]), shard_local(s, n->in[1]) };
    struct node_attr attr = n->attr;
    if (!in[0] || !in[1])
        return ERR_FAILED;
    attr.cache_layer = in[1]->maker->attr.cache_layer;
    attr.first_head = shard_range(s, LABEL_HEADS).begin;
    attr.first_kv_head = shard_range(s, LABEL_KV_HEADS).begin;
    return shard_rebuild(s, n, in, &attr);
}

/* The tree of what this rank has of a label. */
void shard_tree(const struct shard *s, enum label label, struct tree *tree)
{
    enum axis axis = axis_of[label];
    label_rank_tree(tree, &s->from->labels[label], shares(s, axis), s->mesh->size[axis], mesh_coordinate(s->mesh, s->rank, axis));
}

/* The same in columns of a weight's slice. */
static void local_tree(const struct shard *s, struct node_attr *attr)
{
    uint32_t begin = shard_range(s, attr->sum_label).begin, width = s->from->labels[attr->sum_label].width;
    shard_tree(s, attr->sum_label, &attr->tree);
    for (uint32_t i = 0; i < attr->tree.n_leaves; i++) {
        attr->tree.leaf[i].begin = (attr->tree.leaf[i].begin - begin) * width;
        attr->tree.leaf[i].end = (attr->tree.leaf[i].end - begin) * width;
    }
}

int shard_matmul(struct shard *s, const struct node *n)
{
    struct node_attr attr = n->attr;
    enum label summed = n->in[1]->dim[1].label, rows = n->in[1]->dim[0].label;
    struct tensor *in[] = { summed ? shard_local(s, n->in[0]) : shard_whole(s, n->in[0]), shard_weight(s, n->in[1]) };
    if (summed)
        local_tree(s, &attr);
    struct node *made = in[0] && in[1] ? graph_node(s->to, OP_matmul, in, 2, 1, &attr) : NULL;
    if (!made)
        return ERR_FAILED;
    shard_keep_rows(made->out[0], in, 1);
    if (rows && s->mesh->size[axis_of[rows]] > 1)
        made->out[0]->placement[axis_of[rows]] = (struct placement){ .kind = PLACE_SPLIT, .dim = 1, .label = (uint8_t)rows };
    if (summed && s->mesh->size[axis_of[summed]] > 1)
        made->out[0]->placement[axis_of[summed]] =
            (struct placement){ .kind = PLACE_PARTIAL, .label = (uint8_t)summed, .n_parts = attr.tree.n_parts };
    return shard_map(s, n, 0, made->out[0]);
}

/* ---- stages ---- */
static uint32_t node_stage(const struct shard *s, const struct node *n)
{
    return n->layer == LAYER_ANY ? my_stage(s) : stage_of(s, n->layer);
}

/* One channel for each tensor that crosses, the same at both ends: how many were made before it that cross as well. */
static uint32_t channel_of(const struct shard *s, const struct tensor *t)
{
    uint32_t channel = 0;
    for (uint32_t id = 0; id < t->id; id++)
        channel += s->crosses[id];
    return channel;
}

static int receive_inputs(struct shard *s, const struct node *n)
{
    for (uint32_t i = 0; i < n->n_in; i++) {
        const struct tensor *t = n->in[i];
        if (t->weight || s->local[t->id] || s->made_in[t->id] == my_stage(s))
            continue;
        struct node_attr attr = { .peer = s->made_in[t->id], .channel = channel_of(s, t), .split_rows = splits_rows(s, t) };
        struct node *made = graph_node(s->to, OP_receive, NULL, 0, 1, &attr);
        if (!made)
            return ERR_FAILED;
        made->out[0]->type = t->type;
        made->out[0]->n_dims = t->n_dims;
        memcpy(made->out[0]->dim, t->dim, sizeof t->dim);
        split_tokens(s, made->out[0]);
        if (attr.split_rows)
            made->out[0]->placement[AXIS_TP] = (struct placement){ .kind = PLACE_SPLIT, .dim = 0 };
        if (!(made->out[0]->name = arena_string(&s->to->arena, t->name)))
            return ERR_NO_MEMORY;
        s->local[t->id] = made->out[0];
    }
    return 0;
}

static int send_output(struct shard *s, const struct tensor *t)
{
    if (!s->crosses[t->id])
        return 0;
    uint32_t n_stages = s->mesh->size[AXIS_PP];
    for (uint32_t stage = my_stage(s) + 1; stage < n_stages; stage++) {
        bool wanted = false;
        for (const struct node *n = s->from->first; n && !wanted; n = n->next)
            for (uint32_t i = 0; i < n->n_in; i++)
                wanted = wanted || (n->in[i] == t && n->layer != LAYER_ANY && stage_of(s, n->layer) == stage);
        if (!wanted)
            continue;
        struct node_attr attr = { .peer = stage, .channel = channel_of(s, t), .split_rows = splits_rows(s, t) };
        struct tensor *mine = attr.split_rows ? reduced(s, t, true) : shard_whole(s, t);
        if (!mine || !has_whole_rows(mine, t->name) || !graph_node(s->to, OP_send, &mine, 1, 1, &attr))
            return ERR_FAILED;
    }
    return 0;
}

/* Marks what is made in one stage and used in another. */
static void find_crossings(struct shard *s)
{
    for (const struct node *n = s->from->first; n; n = n->next)
        for (uint32_t i = 0; i < n->n_in; i++) {
            const struct node *maker = n->in[i]->maker;
            if (maker && maker->layer != LAYER_ANY && n->layer != LAYER_ANY && stage_of(s, maker->layer) != stage_of(s, n->layer))
                s->crosses[n->in[i]->id] = true;
        }
}

static int shard_nodes(struct shard *s)
{
    int err = 0;
    find_crossings(s);
    for (const struct node *n = s->from->first; !err && n; n = n->next) {
        uint32_t stage = node_stage(s, n);
        for (uint32_t i = 0; i < n->n_out; i++)
            s->made_in[n->out[i]->id] = stage;
        if (stage != my_stage(s))
            continue;
        s->to->layer = n->layer;
        if ((err = receive_inputs(s, n)) < 0 || (err = op_info[n->op].shard(s, n)) < 0)
            break;
        for (uint32_t i = 0; !err && i < n->n_out; i++) {
            if (n->out[i]->is_output) {
                struct tensor *mine = n->out[i]->dim[1].label ? s->local[n->out[i]->id] : shard_whole(s, n->out[i]);
                if (!mine || !(mine->name = arena_string(&s->to->arena, n->out[i]->name)))
                    return ERR_FAILED;
                mine->is_output = true;
            }
            err = n->layer == LAYER_ANY ? 0 : send_output(s, n->out[i]);
        }
    }
    return err;
}

static int check_labels(const struct shard *s)
{
    int err = 0;
    for (int l = LABEL_NONE + 1; !err && l < N_LABELS; l++)
        if (l != LABEL_VOCAB)
            err = label_check(&s->from->labels[l], label_name[l], axis_name[axis_of[l]], shares(s, axis_of[l]), s->mesh->size[axis_of[l]]);
    return err;
}

static int check_mesh(const struct shard *s)
{
    const struct graph *from = s->from;
    const struct mesh *mesh = s->mesh;
    uint64_t n_layers = 0;
    if (mesh_island(mesh) > 1 && !from->labels[LABEL_EXPERTS].n_elements)
        return error_set(ERR_USAGE, "ep=%u spreads experts over groups of dp, and this model has none", mesh->size[AXIS_EP]);
    if (s->gathered && mesh->size[AXIS_DP] == 1)
        return error_set(ERR_USAGE, "--weights gathered stores weights in parts over the groups of dp: the layout needs dp=2 or more");
    for (uint32_t i = 0; i < mesh->n_stages; i++)
        n_layers += mesh->stage_layers[i];
    if (mesh->size[AXIS_PP] > from->n_layers)
        return error_set(ERR_USAGE, "pp=%u: the model has %u layers, and a stage holds at least one", mesh->size[AXIS_PP], from->n_layers);
    if (mesh->n_stages && n_layers != from->n_layers)
        return error_set(ERR_USAGE, "--stages: %llu layers named, the model has %u", (unsigned long long)n_layers, from->n_layers);
    return check_labels(s);
}

/* What holds for the whole model holds for the rank. */
static void copy_settings(struct graph *to, const struct graph *from)
{
    to->n_layers = from->n_layers;
    memcpy(to->symbol_max, from->symbol_max, sizeof to->symbol_max);
    memcpy(to->labels, from->labels, sizeof to->labels);
    to->cache_type = from->cache_type;
    to->n_cache_groups = from->n_cache_groups;
    memcpy(to->cache_group, from->cache_group, sizeof to->cache_group);
    to->log = from->log;
}

int pass_shard(struct graph **out, const struct graph *from, const struct mesh *mesh, bool gathered_weights, uint32_t rank)
{
    struct shard s = { .from = from, .mesh = mesh, .rank = rank, .gathered = gathered_weights };
    for (uint32_t i = 0; i < mesh->size[AXIS_EP] && mesh->n_shares; i++)
        s.expert_share[i] = mesh->share[i / mesh_island(mesh)];
    int err = check_mesh(&s);
    if (err < 0)
        return err;
    s.to = graph_open();
    s.local = calloc(from->n_tensors + 1, sizeof(struct tensor *));
    s.whole = calloc(from->n_tensors + 1, sizeof(struct tensor *));
    s.made_in = calloc(from->n_tensors + 1, sizeof *s.made_in);
    s.crosses = calloc(from->n_tensors + 1, sizeof *s.crosses);
    if (!s.to || !s.local || !s.whole || !s.made_in || !s.crosses) {
        err = error_set(ERR_NO_MEMORY, "out of memory for the graph of a rank");
        goto done;
    }
    copy_settings(s.to, from);
    s.to->symbol_max[SYMBOL_U] = from->symbol_max[SYMBOL_T] * mesh_island(mesh);
    s.to->symbol_max[SYMBOL_P] = from->symbol_max[SYMBOL_P] * mesh_island(mesh);
    if ((err = shard_nodes(&s)) < 0 || (err = pass_simplify(s.to)) < 0)
        goto done;
    *out = s.to;
    s.to = NULL;
done:
    graph_close(s.to);
    free(s.local);
    free(s.whole);
    free(s.made_in);
    free(s.crosses);
    return err;
}
