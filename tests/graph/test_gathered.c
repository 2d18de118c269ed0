/* test_gathered.c: weights that are stored in parts by the ranks along dp: which parts, where they are put together, that it starts a
 * layer early and is waited for in turn, and how much memory that takes. */
#include "base/error.h"
#include "tests/graph/graphs.h"
#include "tests/graph/hashes.h"

/* ---- which panels are stored ---- */
struct stored {
    const char *name[64];
    struct range panels[64];
    uint32_t n_panels[64], n;           /* n_panels: of the whole slice */
};

static void note_stored(struct tensor *t, void *user)
{
    struct stored *s = user;
    const struct weight *w = t->weight;
    uint32_t n_experts = w->experts.end - w->experts.begin;
    if (w->use != WEIGHT_MATMUL && w->use != WEIGHT_EXPERTS)
        return;
    s->name[s->n] = t->name;
    s->panels[s->n] = w->stored;
    s->n_panels[s->n++] = n_experts * DIV_UP(w->rows.end - w->rows.begin, WEIGHT_PANEL);
}

/* The ranks along dp together have each panel of each matrix once. */
static void test_stored(void)
{
    static const struct { const char *layout; uint32_t n_dp; } rows[] = {
        { "dp=2", 2 }, { "dp=3", 3 }, { "dp=7", 7 }, { "dp=2,tp=2", 2 }, { "dp=3,pp=2", 3 },
    };
    struct graph *g = model_graph();
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct mesh mesh;
        struct stored before = { .n = 0 };
        mesh_parse(&mesh, rows[i].layout);
        for (uint32_t at = 0; at < rows[i].n_dp; at++) {
            struct stored mine = { .n = 0 };
            check_begin("gathered: %s: group %u stores what the ones before do not", rows[i].layout, at);
            struct graph *part = shard_as(g, rows[i].layout, NULL, true, mesh_peer(&mesh, 0, AXIS_DP, at));
            graph_each_weight(part, note_stored, &mine);
            check(mine.n > 0 && (!at || mine.n == before.n));
            check_int(count(part, OP_gather_weight), mine.n);
            for (uint32_t w = 0; w < mine.n; w++) {
                check_int(mine.panels[w].begin, at ? before.panels[w].end : 0);
                if (at + 1 == rows[i].n_dp)
                    check_int(mine.panels[w].end, mine.n_panels[w]);
            }
            before = mine;
            graph_close(part);
        }
    }
    graph_close(g);
}

static void test_parts(void)
{
    struct graph *g = model_graph(), *mine = shard_as(g, "dp=2", NULL, true, 1), *all = shard(g, "dp=2", 1);
    check_begin("gathered: every matmul reads a matrix that is whole again, and vectors and tables stay");
    for (const struct node *n = find(mine, OP_matmul, NULL); n; n = find(mine, OP_matmul, n)) {
        const struct tensor *w = n->in[1];
        if (check(!w->weight && w->maker && w->maker->op == OP_gather_weight)) {
            check(w->is_packed && w->maker->in[0]->weight);
            check_int(w->maker->attr.n_panels, DIV_UP((uint32_t)w->dim[0].add, WEIGHT_PANEL));
            check_int(w->maker->attr.axis, AXIS_DP);
            check(!w->maker->attr.early);
        }
    }
    for (const struct node *n = find(mine, OP_rms_norm, NULL); n; n = find(mine, OP_rms_norm, n))
        check(n->in[1]->weight != NULL);
    check(find(mine, OP_embed, NULL)->in[1]->weight != NULL);
    check_int(count(all, OP_gather_weight), 0);
    /* matrices are most of it */
    check(graph_weight_bytes(mine, packed_bytes) < graph_weight_bytes(all, packed_bytes) * 6 / 10);
    graph_close(mine);
    graph_close(all);
    struct mesh mesh;
    check_begin("gathered: refused without dp");
    mesh_parse(&mesh, "tp=2");
    mine = NULL;
    check_int(pass_shard(&mine, g, &mesh, true, 0), ERR_USAGE);
    graph_close(g);
}

/* ---- a matrix that two nodes use, and experts ---- */
static struct graph *shared_graph(void)
{
    struct graph *g = open_graph();
    g->layer = 0;
    struct tensor *x = input_rows(g), *w = graph_weight(g, "w", DTYPE_F32, WEIGHT_MATMUL, DIM(DIM_X), DIM(DIM_X));
    graph_output(graph_matmul(g, norm(g, graph_matmul(g, x, w), "norm"), w), "out");
    return g;
}

static void test_shared(void)
{
    struct graph *g = shared_graph();
    check_begin("gathered: a matrix of two nodes is gathered once and waited for once");
    struct graph *mine = shard_as(g, "dp=2", NULL, true, 0);
    check_int(count(mine, OP_gather_weight), 1);
    check_int(fuse_all(mine), 0);
    check_int(pass_overlap(mine), 0);
    check_int(count(mine, OP_gather_wait), 1);
    check_int(pass_overlap(mine), 0);
    check_int(count(mine, OP_gather_wait), 1);          /* what has started is not started again */
    graph_close(mine);
    graph_close(g);
}

static void test_experts(void)
{
    enum { EXPERTS = 8, FFN_COLUMNS = 32 };
    static const struct { const char *layout; uint32_t n_gathers; } rows[] = { { "dp=2", 4 }, { "dp=2,tp=2", 4 }, { "dp=2,ep=2", 1 } };
    struct graph *g = open_graph();
    struct dim all = DIM_OF(EXPERTS, LABEL_EXPERTS, 1), ffn = DIM(FFN_COLUMNS), embd = DIM(DIM_X);
    g->layer = 0;
    graph_label(g, LABEL_EXPERTS, EXPERTS, FFN_COLUMNS, 1);
    struct tensor *x = input_rows(g), *logits = graph_matmul(g, x, graph_weight(g, "router", DTYPE_F32, WEIGHT_MATMUL, DIM(EXPERTS), embd));
    struct node_attr attr = { .n_used = 2, .scale = 1 };
    graph_output(graph_experts(g, x, logits, graph_expert_weight(g, "gate", false, DTYPE_F32, all, ffn, embd),
                               graph_expert_weight(g, "up", false, DTYPE_F32, all, ffn, embd),
                               graph_expert_weight(g, "down", false, DTYPE_F32, all, embd, ffn), &attr), "out");
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        check_begin("gathered: experts with %s: router and experts, or where those are spread the router alone", rows[i].layout);
        struct graph *mine = shard_as(g, rows[i].layout, NULL, true, 0);
        const struct weight *w = weight_of(mine, "gate");
        uint32_t held = (w->experts.end - w->experts.begin) * FFN_COLUMNS / WEIGHT_PANEL;
        check_int(count(mine, OP_gather_weight), rows[i].n_gathers);
        check_int(w->stored.end - w->stored.begin, rows[i].n_gathers > 1 ? held / 2 : held);
        check_int(fuse_all(mine), 0);
        check_int(pass_overlap(mine), 0);
        check_int(pass_place(mine, true, packed_bytes), 0);
        check_places(mine);
        graph_close(mine);
    }
    graph_close(g);
}

/* ---- when ---- */
/* After shard: in front of everything else that the layer has. */
static void test_layer_start(void)
{
    static const char *const layouts[] = { "dp=2", "dp=2,tp=2", "dp=2,pp=2" };
    struct graph *g = model_graph();
    for (size_t i = 0; i < COUNT_OF(layouts); i++) {
        check_begin("gathered: %s: at the start of their layer", layouts[i]);
        struct graph *mine = shard_as(g, layouts[i], NULL, true, 0);
        for (const struct node *n = find(mine, OP_gather_weight, NULL); n; n = find(mine, OP_gather_weight, n)) {
            check_text(n->in[0]->name, n->out[0]->name);
            check(!n->prev || n->prev->layer != n->layer || n->prev->op == OP_gather_weight);
        }
        graph_close(mine);
    }
    graph_close(g);
}

/* Layers by where their first node that is no gather stands. */
static uint32_t layer_begin(const struct graph *g, int layer)
{
    const struct node *n = g->first;
    while (n && (n->layer != layer || n->op == OP_gather_weight))
        n = n->next;
    return index_of(g, n);
}

static bool uses(const struct node *n, const struct tensor *t)
{
    for (uint32_t i = 0; i < n->n_in; i++)
        if (n->in[i] == t)
            return true;
    return false;
}

/* Each gather starts before the layer before its own, and is waited for directly before its first use; waits in the order of starts. */
static void check_overlap(struct graph *g, int first_layer)
{
    const struct node *wait = find(g, OP_gather_wait, NULL);
    check_int(count(g, OP_gather_weight), count(g, OP_gather_wait));
    for (const struct node *n = find(g, OP_gather_weight, NULL); n; n = find(g, OP_gather_weight, n)) {
        const struct node *use = n->next;
        check(n->attr.early);
        check(index_of(g, n) < layer_begin(g, MAX(n->layer - 1, first_layer)));
        if (n->layer - 2 >= first_layer)
            check(index_of(g, n) > layer_begin(g, n->layer - 2) && "not two layers early");
        if (!check(wait && wait->in[0] == n->out[0] && "waits are in the order of starts"))
            return;
        while (use && (use->op == OP_gather_wait || !uses(use, n->out[0])))
            use = use->next;
        for (const struct node *between = wait; between != use; between = between->next)
            check_int(between->op, OP_gather_wait);
        wait = find(g, OP_gather_wait, wait);
    }
}

static void test_overlap(void)
{
    static const char *const layouts[] = { "dp=2", "dp=3", "dp=2,tp=2", "dp=2,pp=2", "dp=2,pp=4" };
    struct graph *g = model_graph();
    for (size_t i = 0; i < COUNT_OF(layouts); i++) {
        struct mesh mesh;
        mesh_parse(&mesh, layouts[i]);
        for (uint32_t rank = 0; rank < mesh_n_ranks(&mesh) / mesh.size[AXIS_DP]; rank++)
            for (int fused = 0; fused < 2; fused++) {
                uint32_t stage = mesh_coordinate(&mesh, rank, AXIS_PP);
                check_begin("overlap: %s, rank %u, %s", layouts[i], rank, fused ? "fused" : "not fused");
                struct graph *mine = shard_as(g, layouts[i], NULL, true, rank);
                if (fused)
                    check_int(fuse_all(mine), 0);
                check_int(pass_overlap(mine), 0);
                check_overlap(mine, (int)(stage * N_LAYERS / mesh.size[AXIS_PP]));
                graph_close(mine);
            }
    }
    graph_close(g);
}

/* fuse joins q and v over a k that takes another input, so v is used before k, which was gathered before it. */
static void test_overlap_order(void)
{
    struct graph *g = open_graph();
    check_begin("overlap: matmuls that were joined over another");
    g->int8_activations = true;
    g->n_layers = 3;
    struct tensor *x = input_rows(g);
    for (int layer = 0; layer < 3; layer++) {
        char name[3][16];
        for (int i = 0; i < 3; i++)
            snprintf(name[i], sizeof name[i], "%c%d", "qkv"[i], layer);
        g->layer = layer;
        struct tensor *h = norm(g, x, "norm");
        struct tensor *q = graph_matmul(g, h, graph_weight(g, name[0], DTYPE_F32, WEIGHT_MATMUL, DIM(DIM_X), DIM(DIM_X)));
        struct tensor *k = matmul(g, h, name[1]);
        struct tensor *v = graph_matmul(g, h, graph_weight(g, name[2], DTYPE_F16, WEIGHT_MATMUL, DIM(DIM_X), DIM(DIM_X)));
        x = graph_add(g, graph_add(g, q, k), v);
    }
    graph_output(x, "out");
    for (uint32_t stage = 0; stage < 3; stage++) {              /* the later ones have no input before their first layer */
        struct graph *mine = shard_as(g, "dp=2,pp=3", NULL, true, stage);
        struct outputs want = run_graph(mine, false);
        check_int(fuse_all(mine), 0);
        check_int(find(mine, OP_matmul, NULL)->n_out, 2);
        check_int(pass_overlap(mine), 0);
        check_overlap(mine, (int)stage);
        check_int(pass_place(mine, true, packed_bytes), 0);
        check_places(mine);
        struct outputs got = run_graph(mine, true);
        check_outputs(&got, &want);
        graph_close(mine);
    }
    struct graph *all = shard_as(g, "dp=2", NULL, true, 0);
    check_int(fuse_all(all), 0);
    check_int(pass_overlap(all), 0);
    check_overlap(all, 0);
    graph_close(all);
    graph_close(g);
}

/* ---- memory ---- */
/* Bytes of the matrices that are gathered for a layer, or for all (-1). */
static size_t gathered_bytes(const struct graph *g, int layer)
{
    size_t n_bytes = 0;
    for (const struct node *n = find(g, OP_gather_weight, NULL); n; n = find(g, OP_gather_weight, n))
        n_bytes += layer < 0 || n->layer == layer ? n->out[0]->n_bytes : 0;
    return n_bytes;
}

static void test_memory(void)
{
    struct graph *g = model_graph();
    struct graph *mine = shard_as(g, "dp=2", NULL, true, 0), *plain = shard(g, "dp=2", 0);
    check_begin("place: gathered weights take the room of two layers, not of all");
    check_int(fuse_all(mine), 0);
    check_int(pass_overlap(mine), 0);
    check_int(pass_place(mine, true, packed_bytes), 0);
    check_int(fuse_all(plain), 0);
    check_int(pass_place(plain, true, packed_bytes), 0);
    check_places(mine);
    size_t all = gathered_bytes(mine, -1), layer = gathered_bytes(mine, 1), last = gathered_bytes(mine, N_LAYERS - 1);
    check(layer > 0 && last > layer && all == last + 3 * layer);
    check(mine->arena_bytes >= layer + last);
    check(mine->arena_bytes <= plain->arena_bytes + layer + last + layer / 2);       /* half a layer is lost between places */
    check(mine->arena_bytes < plain->arena_bytes + all);
    struct outputs got = run_graph(mine, true);
    check_int(got.n_overwritten, 0);
    graph_close(mine);
    graph_close(plain);
    graph_close(g);

    g = shared_graph();
    mine = shard_as(g, "dp=2", NULL, true, 0);
    check_begin("place: a matrix of any size ends on a cache line");
    struct tensor *w = find(mine, OP_gather_weight, NULL)->out[0];
    w->maker->in[0]->dim[1].add = w->dim[1].add = 13;           /* for this pass alone */
    w->maker->in[0]->dim[0].add = w->dim[0].add = 7;
    pass_place(mine, false, packed_bytes);
    check_int(w->n_bytes, ROUND_UP(13 * 7 * sizeof(float), CACHE_LINE));
    check_places(mine);
    graph_close(mine);
    graph_close(g);
}

/* ---- the verifier ---- */
static void test_verified(void)
{
    struct graph *g = model_graph(), *mine = shard_as(g, "dp=2", NULL, true, 0);
    check_int(fuse_all(mine), 0);
    check_int(pass_overlap(mine), 0);
    struct node *first = find(mine, OP_gather_wait, NULL), *second = find(mine, OP_gather_wait, first), *use = first->next;
    while (use->op == OP_gather_wait)
        use = use->next;

    check_begin("verify: waits in another order than starts");
    graph_move_before(mine, second, first);
    check_int(graph_verify(mine), ERR_FAILED);
    check(strstr(error_text(), "turn") != NULL);
    graph_move_before(mine, first, second);
    check_int(graph_verify(mine), 0);

    check_begin("verify: a weight that is used before it is waited for");
    graph_move_before(mine, use, first);
    check_int(graph_verify(mine), ERR_FAILED);
    check(strstr(error_text(), "waited for") != NULL);
    struct node *after = use;
    while (after->next->op == OP_gather_wait)
        after = after->next;
    graph_move_before(mine, use, after->next);
    check_int(graph_verify(mine), 0);

    check_begin("verify: a wait for what has not started early");
    first->in[0]->maker->attr.early = false;
    check_int(graph_verify(mine), ERR_FAILED);
    first->in[0]->maker->attr.early = true;

    check_begin("verify: a gather that nobody waits for");
    struct node *last = NULL;
    for (struct node *n = mine->first; n; n = n->next)
        last = n->op == OP_gather_weight ? n : last;
    struct node *unused = graph_node(mine, OP_gather_weight, &last->in[0], 1, 1, &last->attr);
    check_int(graph_verify(mine), ERR_FAILED);
    check(strstr(error_text(), "never waited for") != NULL);
    graph_remove(mine, unused);
    check_int(graph_verify(mine), 0);
    graph_close(mine);
    graph_close(g);
}

int main(void)
{
    test_stored();
    test_parts();
    test_shared();
    test_experts();
    test_layer_start();
    test_overlap();
    test_overlap_order();
    test_memory();
    test_verified();
    return check_done();
}
