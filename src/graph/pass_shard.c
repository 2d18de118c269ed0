/* pass_shard.c: parallelism as a rewrite.
 *
 * One walk over the model's graph makes the graph of one rank.  Each operator has a rule (its column in ops.def) that maps
 * the operands to this rank's tensors, calls the ordinary builder on them, and says how the result is placed.  Where a
 * rule needs a value whole and it is there in parts, the collective that makes it whole is inserted.
 *
 *   tp   a weight with a label on its rows is cut by rows and gives a split result; with a label on its columns it is cut
 *        by columns and gives partial sums, in the canonical tree of that label; replicate() reduces them
 *   pp   a node belongs to the stage of its layer; a value used in a later stage is sent there once, as soon as it is made
 *
 * Later axes are rules and cases here and nothing elsewhere: an expert label cuts stacked weights along ep; dp and cp cut
 * the T dim; sequence parallelism makes replicate() a reduce-scatter and an all-gather around the row operators; gathered
 * weights put a gather before the use of a weight that is stored in parts. */
#include "graph/ops.h"

#include "base/base.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

/* The axis that cuts each label. */
static const enum axis axis_of[N_LABELS] = {
    [LABEL_HEADS] = AXIS_TP, [LABEL_KV_HEADS] = AXIS_TP, [LABEL_FFN] = AXIS_TP, [LABEL_VOCAB] = AXIS_TP, [LABEL_EXPERTS] = AXIS_EP,
};

static const uint32_t *shares(const struct mesh *mesh)
{
    return mesh->n_shares ? mesh->share : NULL;
}

static struct range my_range(const struct shard *s, enum label label)
{
    enum axis axis = axis_of[label];
    return label_range(s->from->labels, label, shares(s->mesh), s->mesh->size[axis], mesh_coordinate(s->mesh, s->rank, axis));
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

/* ---- operands ---- */
static struct range slice_of(const struct shard *s, const struct dim *dim)
{
    if (!dim->label)
        return (struct range){ 0, (uint32_t)dim->add };
    struct range elements = my_range(s, dim->label);
    return (struct range){ elements.begin * dim->width, elements.end * dim->width };
}

static struct dim sliced(struct dim dim, struct range slice)
{
    dim.add = slice.end - slice.begin;
    return dim;
}

static struct tensor *local_weight(struct shard *s, const struct tensor *w)
{
    if (s->local[w->id])
        return s->local[w->id];
    struct range rows = slice_of(s, &w->dim[0]), columns = slice_of(s, &w->dim[1]);
    struct tensor *t = graph_weight(s->to, w->name, w->type, w->weight->use, sliced(w->dim[0], rows), sliced(w->dim[1], columns));
    if (!t)
        return NULL;
    t->weight->n_rows = w->weight->n_rows;
    t->weight->n_columns = w->weight->n_columns;
    t->weight->rows = rows;
    t->weight->columns = columns;
    return s->local[w->id] = t;
}

/* As it is placed on this rank. */
static struct tensor *local(struct shard *s, const struct tensor *t)
{
    return t->weight ? local_weight(s, t) : s->local[t->id];
}

/* Whole on every rank: partial sums are reduced once, however often the value is used. */
static struct tensor *replicated(struct shard *s, const struct tensor *t)
{
    struct tensor *mine = local(s, t);
    for (int a = 0; mine && a < N_AXES; a++) {
        const struct placement *p = &mine->placement[a];
        if (p->kind == PLACE_SPLIT) {
            error_set(ERR_USAGE, "%s is split along %s and is needed whole: no rule gathers it", t->name, axis_name[a]);
            return NULL;
        }
        if (p->kind != PLACE_PARTIAL)
            continue;
        struct node_attr attr = { .axis = (enum axis)a, .sum_label = p->label };
        attr.joined.first = arena_array(&s->to->arena, uint32_t, s->mesh->size[a] + 1);
        if (!attr.joined.first)
            return NULL;
        label_joined_tree(&attr.joined, &s->from->labels[p->label], shares(s->mesh), s->mesh->size[a]);
        struct node *n = graph_node(s->to, OP_all_reduce, &mine, 1, 1, &attr);
        mine = s->local[t->id] = n ? n->out[0] : NULL;
    }
    return mine;
}

static int map(struct shard *s, const struct node *n, uint32_t i, struct tensor *t)
{
    if (!t || !(t->name = arena_string(&s->to->arena, n->out[i]->name)))        /* the model's graph is closed before this one */
        return ERR_FAILED;
    s->local[n->out[i]->id] = t;
    return 0;
}

static void set_split(const struct shard *s, struct tensor *t, enum label label)
{
    if (label && s->mesh->size[axis_of[label]] > 1)
        t->placement[axis_of[label]] = (struct placement){ .kind = PLACE_SPLIT, .dim = 1, .label = (uint8_t)label };
}

/* Builds the same operator over local operands; the result is placed like the first. */
static int rebuild(struct shard *s, const struct node *n, struct tensor *const *in, const struct node_attr *attr)
{
    struct node *made = graph_node(s->to, n->op, in, n->n_in, n->n_out, attr);
    if (!made)
        return ERR_FAILED;
    for (uint32_t i = 0; i < n->n_out; i++) {
        memcpy(made->out[i]->placement, in[0]->placement, sizeof in[0]->placement);
        if (map(s, n, i, made->out[i]) < 0)
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
    return map(s, n, 0, graph_input(s->to, t->name, t->type, t->dim[0]));
}

/* Needs its operands whole and gives the result whole. */
int shard_replicated(struct shard *s, const struct node *n)
{
    struct tensor *in[NODE_MAX_INPUTS];
    for (uint32_t i = 0; i < n->n_in; i++)
        if (!(in[i] = replicated(s, n->in[i])))
            return ERR_FAILED;
    return rebuild(s, n, in, &n->attr);
}

/* Works on any split that its operands share; partial sums are reduced first, since it is not linear in each of them. */
int shard_elementwise(struct shard *s, const struct node *n)
{
    struct tensor *in[NODE_MAX_INPUTS];
    for (uint32_t i = 0; i < n->n_in; i++) {
        in[i] = local(s, n->in[i]);
        for (int a = 0; in[i] && a < N_AXES; a++)
            if (in[i]->placement[a].kind == PLACE_PARTIAL)
                in[i] = replicated(s, n->in[i]);
        if (!in[i])
            return ERR_FAILED;
    }
    return rebuild(s, n, in, &n->attr);
}

int shard_rope(struct shard *s, const struct node *n)
{
    struct tensor *in[] = { local(s, n->in[0]), replicated(s, n->in[1]) };
    return rebuild(s, n, in, &n->attr);
}

int shard_kv_store(struct shard *s, const struct node *n)
{
    struct tensor *in[] = { local(s, n->in[0]), local(s, n->in[1]) };
    struct node_attr attr = n->attr;
    if (!in[0] || !in[1])
        return ERR_FAILED;
    struct cache_group *group = &s->to->cache_group[attr.cache_group];
    attr.cache_layer = group->n_layers++;
    group->n_kv_heads = (uint32_t)(tensor_columns(in[0]) / attr.head_dim);
    return rebuild(s, n, in, &attr);
}

int shard_attention(struct shard *s, const struct node *n)
{
    struct tensor *in[] = { local(s, n->in[0]), local(s, n->in[1]) };
    struct node_attr attr = n->attr;
    if (!in[0] || !in[1])
        return ERR_FAILED;
    attr.cache_layer = in[1]->maker->attr.cache_layer;
    attr.first_head = my_range(s, LABEL_HEADS).begin;
    attr.first_kv_head = my_range(s, LABEL_KV_HEADS).begin;
    return rebuild(s, n, in, &attr);
}

/* The tree of this rank's leaves, in columns of its own slice. */
static void local_tree(struct shard *s, struct node_attr *attr)
{
    const struct label_info *label = &s->from->labels[attr->sum_label];
    enum axis axis = axis_of[attr->sum_label];
    label_rank_tree(&attr->tree, label, shares(s->mesh), s->mesh->size[axis], mesh_coordinate(s->mesh, s->rank, axis));
    uint32_t begin = my_range(s, attr->sum_label).begin;
    for (uint32_t i = 0; i < attr->tree.n_leaves; i++) {
        attr->tree.leaf[i].begin = (attr->tree.leaf[i].begin - begin) * label->width;
        attr->tree.leaf[i].end = (attr->tree.leaf[i].end - begin) * label->width;
    }
}

int shard_matmul(struct shard *s, const struct node *n)
{
    struct node_attr attr = n->attr;
    enum label summed = n->in[1]->dim[1].label, rows = n->in[1]->dim[0].label;
    struct tensor *in[] = { summed ? local(s, n->in[0]) : replicated(s, n->in[0]), local_weight(s, n->in[1]) };
    if (summed)
        local_tree(s, &attr);
    struct node *made = in[0] && in[1] ? graph_node(s->to, OP_matmul, in, 2, 1, &attr) : NULL;
    if (!made)
        return ERR_FAILED;
    set_split(s, made->out[0], rows);
    if (summed && s->mesh->size[axis_of[summed]] > 1)
        made->out[0]->placement[axis_of[summed]] =
            (struct placement){ .kind = PLACE_PARTIAL, .label = (uint8_t)summed, .n_parts = attr.tree.n_parts };
    return map(s, n, 0, made->out[0]);
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
        if (t->weight || s->local[t->id])
            continue;
        struct node_attr attr = { .peer = s->made_in[t->id], .channel = channel_of(s, t) };
        struct node *made = graph_node(s->to, OP_receive, NULL, 0, 1, &attr);
        if (!made)
            return ERR_FAILED;
        made->out[0]->type = t->type;
        made->out[0]->n_dims = t->n_dims;
        memcpy(made->out[0]->dim, t->dim, sizeof t->dim);
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
        struct node_attr attr = { .peer = stage, .channel = channel_of(s, t) };
        struct tensor *whole = replicated(s, t);
        if (!whole || !graph_node(s->to, OP_send, &whole, 1, 1, &attr))
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
                struct tensor *mine = s->local[n->out[i]->id];
                mine->is_output = true;
            }
            err = n->layer == LAYER_ANY ? 0 : send_output(s, n->out[i]);
        }
    }
    return err;
}

static int check_mesh(const struct graph *from, const struct mesh *mesh)
{
    uint64_t n_layers = 0;
    for (uint32_t i = 0; i < mesh->n_stages; i++)
        n_layers += mesh->stage_layers[i];
    if (mesh->size[AXIS_PP] > from->n_layers)
        return error_set(ERR_USAGE, "pp=%u: the model has %u layers, and a stage holds at least one", mesh->size[AXIS_PP], from->n_layers);
    if (mesh->n_stages && n_layers != from->n_layers)
        return error_set(ERR_USAGE, "--stages: %llu layers named, the model has %u", (unsigned long long)n_layers, from->n_layers);
    return label_check(from->labels, shares(mesh), mesh->size[AXIS_TP]);
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

int pass_shard(struct graph **out, const struct graph *from, const struct mesh *mesh, uint32_t rank)
{
    struct shard s = { .from = from, .mesh = mesh, .rank = rank };
    int err = check_mesh(from, mesh);
    if (err < 0)
        return err;
    s.to = graph_open();
    s.local = calloc(from->n_tensors + 1, sizeof(struct tensor *));
    s.made_in = calloc(from->n_tensors + 1, sizeof *s.made_in);
    s.crosses = calloc(from->n_tensors + 1, sizeof *s.crosses);
    if (!s.to || !s.local || !s.made_in || !s.crosses) {
        err = error_set(ERR_NO_MEMORY, "out of memory for the graph of a rank");
        goto done;
    }
    copy_settings(s.to, from);
    if ((err = shard_nodes(&s)) < 0 || (err = pass_simplify(s.to)) < 0)
        goto done;
    *out = s.to;
    s.to = NULL;
done:
    graph_close(s.to);
    free(s.local);
    free(s.made_in);
    free(s.crosses);
    return err;
}
