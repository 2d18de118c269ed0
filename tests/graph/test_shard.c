/* test_shard.c: what pass_shard() leaves a rank of a dense model: slices of weights, reductions, rows that are split, messages between
 * stages. */
#include "base/error.h"
#include "tests/graph/graphs.h"
#include "tests/graph/hashes.h"

static void test_shard_tp(void)
{
    struct graph *g = model_graph();
    check_begin("shard: the whole on one rank");
    struct graph *one = shard(g, "tp=1", 0);
    check_int(count(one, OP_all_reduce), 0);
    check_slice(one, "q.0", 0, HEADS * WIDTH, 0, DIM_X);
    check_slice(one, "down.3", 0, DIM_X, 0, FFN);
    graph_close(one);

    /* 9 heads are 4 + 5; 3 units of 32 FFN columns in 8 groups are 1 + 2 */
    for (uint32_t rank = 0; rank < 2; rank++) {
        uint32_t head = rank ? 4 : 0, head_end = rank ? 9 : 4, kv = rank ? 1 : 0, kv_end = rank ? 3 : 2;
        check_begin("shard: rank %u of tp=2", rank);
        struct graph *mine = shard(g, "tp=2,sp=1", rank);
        check_slice(mine, "q.0", head * WIDTH, head_end * WIDTH, 0, DIM_X);         /* by rows */
        check_slice(mine, "k.1", kv * WIDTH, kv_end * WIDTH, 0, DIM_X);
        check_slice(mine, "o.2", 0, DIM_X, head * WIDTH, head_end * WIDTH);         /* by columns */
        check_slice(mine, "up.3", rank ? 32 : 0, rank ? 96 : 32, 0, DIM_X);
        check_slice(mine, "down.3", 0, DIM_X, rank ? 32 : 0, rank ? 96 : 32);
        check_slice(mine, "head", rank ? 144 : 0, rank ? VOCAB : 144, 0, DIM_X);   /* 19 units of 16 ids: 9 + 10 */
        check_leaves(mine, "o.2", WIDTH * (head_end - head));
        check_leaves(mine, "down.1", rank ? 64 : 32);
        check_int(count(mine, OP_all_reduce), 2 * N_LAYERS);
        check_int(count(mine, OP_send) + count(mine, OP_receive), 0);
        check_int(mine->cache_group[0].n_kv_heads, 2);
        check(is_output_of(mine, "logits"));
        check_int(graph_verify(mine), 0);
        graph_close(mine);
    }
    graph_close(g);
}

static void test_shard_pp(void)
{
    struct graph *g = model_graph();
    for (uint32_t rank = 0; rank < 4; rank++) {
        check_begin("shard: rank %u of pp=4", rank);
        struct graph *mine = shard(g, "pp=4", rank);
        check_int(count(mine, OP_kv_store), 1);
        check_int(mine->cache_group[0].n_layers, 1);
        check_int(count(mine, OP_send), rank < 3);
        check_int(count(mine, OP_receive), rank > 0);
        check_int(is_output_of(mine, "logits"), rank == 3);
        check_int(count(mine, OP_embed), rank == 0);
        graph_close(mine);
    }
    check_begin("shard: the two ends of a channel agree");
    struct graph *from = shard(g, "pp=2,tp=2", 1), *to = shard(g, "pp=2,tp=2", 3);
    const struct node *send = NULL, *receive = NULL;
    for (const struct node *n = from->first; n; n = n->next)
        send = n->op == OP_send ? n : send;
    for (const struct node *n = to->first; n; n = n->next)
        receive = n->op == OP_receive ? n : receive;
    if (check(send && receive)) {
        check_int(send->attr.channel, receive->attr.channel);
        check_int(send->attr.peer, 1);
        check_int(receive->attr.peer, 0);
        check_int(tensor_columns(send->in[0]), tensor_columns(receive->out[0]));
        check_int(tensor_n_parts(send->in[0]), 1);
    }
    graph_close(from);
    graph_close(to);
    graph_close(g);
}

static void test_shard_refuses(void)
{
    static const struct { const char *layout, *shares, *stages; } rows[] = {
        { "tp=9", NULL, NULL }, { "tp=2", "1,2", NULL }, { "tp=2", "0,0", NULL }, { "pp=2", NULL, "2,3" }, { "pp=5", NULL, NULL },
    };
    struct graph *g = model_graph();
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct mesh mesh;
        struct graph *mine = NULL;
        check_begin("shard: %s is refused for 4 layers and 9 heads", rows[i].layout);
        check_int(mesh_parse(&mesh, rows[i].layout), 0);
        check_int(mesh_parse_shares(&mesh, rows[i].shares, rows[i].stages), 0);
        check_int(pass_shard(&mine, g, &mesh, false, 0), ERR_USAGE);
        graph_close(mine);
    }
    graph_close(g);
}

/* ---- rows that are split along tp ---- */
static uint32_t n_collectives(const struct graph *g)
{
    return count(g, OP_all_reduce) + count(g, OP_reduce_scatter) + count(g, OP_all_gather);
}

static void test_shard_sp(void)
{
    static const char *const layouts[] = { "tp=2", "tp=2,sp=2", "tp=3,sp=3", "dp=2,tp=2,sp=2" };
    struct graph *g = model_graph();
    for (size_t i = 0; i < COUNT_OF(layouts); i++)
        for (uint32_t rank = 0; rank < 2; rank++) {
            check_begin("sp: %s, rank %u", layouts[i], rank);
            struct graph *mine = shard(g, layouts[i], rank);
            /* attention and feed-forward scatter in every layer; their norms' rows, and the last ones for the head, are gathered once */
            check_int(count(mine, OP_reduce_scatter), 2 * N_LAYERS);
            check_int(count(mine, OP_all_gather), 2 * N_LAYERS);
            check_int(count(mine, OP_all_reduce), 0);
            for (const struct node *n = find(mine, OP_all_gather, NULL); n; n = find(mine, OP_all_gather, n)) {
                check(tensor_rows_are_split(n->in[0]) && !tensor_rows_are_split(n->out[0]));
                for (const struct node *m = find(mine, OP_all_gather, n); m; m = find(mine, OP_all_gather, m))
                    check(n->in[0] != m->in[0] && "a value is gathered once");
            }
            for (const struct node *n = find(mine, OP_reduce_scatter, NULL); n; n = find(mine, OP_reduce_scatter, n))
                check(n->in[0]->placement[AXIS_TP].kind == PLACE_PARTIAL && tensor_rows_are_split(n->out[0]));
            for (const struct node *n = find(mine, OP_matmul, NULL); n; n = find(mine, OP_matmul, n))
                check(!tensor_rows_are_split(n->in[0]));
            graph_close(mine);
        }
    for (uint32_t rank = 0; rank < 2; rank++) {
        check_begin("sp: none with sp=1, rank %u", rank);
        struct graph *mine = shard(g, "tp=2,sp=1", rank);
        check_int(count(mine, OP_all_reduce), 2 * N_LAYERS);
        check_int(n_collectives(mine), 2 * N_LAYERS);
        graph_close(mine);
    }
    check_begin("sp: nothing to split on one rank of tp");
    struct graph *alone = shard(g, "dp=2,pp=2", 0);
    check_int(n_collectives(alone), 0);
    graph_close(alone);
    graph_close(g);
}

/* int8 blocks move instead of floats, once for query, key and value. */
static void test_shard_sp_quantized(void)
{
    struct graph *g = open_graph();
    check_begin("sp: rows are gathered behind quantize");
    g->int8_activations = true;
    g->layer = 0;
    graph_label(g, LABEL_FFN, DIM_X, 1, 32);
    struct dim ffn = DIM_OF(DIM_X, LABEL_FFN, 1);
    struct tensor *x = input_rows(g), *up = graph_matmul(g, x, graph_weight(g, "up", DTYPE_Q8_0, WEIGHT_MATMUL, ffn, DIM(DIM_X)));
    x = norm(g, graph_matmul(g, up, graph_weight(g, "down", DTYPE_Q8_0, WEIGHT_MATMUL, DIM(DIM_X), ffn)), "norm");
    graph_output(graph_add(g, matmul(g, x, "a"), matmul(g, x, "b")), "out");
    struct graph *mine = shard(g, "tp=2", 1);
    check_int(count(mine, OP_reduce_scatter), 1);
    check_int(count(mine, OP_all_gather), 1);
    struct node *gather = find(mine, OP_all_gather, NULL);
    if (check(gather != NULL)) {
        check_int(gather->in[0]->maker->op, OP_quantize);
        check_int(gather->out[0]->type, DTYPE_ACT8);
    }
    graph_close(mine);
    graph_close(g);
}

static void test_shard_sp_stages(void)
{
    static const struct { const char *layout; bool splits; } rows[] = {
        { "pp=2,tp=2", true }, { "pp=2,tp=2,sp=2", true }, { "pp=2,tp=2,sp=1", false }, { "pp=2", false },
    };
    struct graph *g = model_graph();
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct mesh mesh;
        mesh_parse(&mesh, rows[i].layout);
        check_begin("sp: rows that cross stages with %s", rows[i].layout);
        struct graph *from = shard(g, rows[i].layout, 0), *to = shard(g, rows[i].layout, mesh.size[AXIS_TP]);
        const struct node *send = find(from, OP_send, NULL), *receive = find(to, OP_receive, NULL);
        if (check(send && receive)) {
            check_int(send->attr.split_rows, rows[i].splits);
            check_int(receive->attr.split_rows, rows[i].splits);
            check_int(tensor_rows_are_split(send->in[0]), rows[i].splits);
            check_int(tensor_rows_are_split(receive->out[0]), rows[i].splits);
            check_int(receive->out[0]->placement[AXIS_DP].kind, PLACE_REPLICATED);
        }
        graph_close(from);
        graph_close(to);
    }
    check_begin("a later stage has the rows of its group along dp");
    struct graph *later = shard(g, "dp=2,pp=2", 1);
    const struct node *receive = find(later, OP_receive, NULL);
    check(receive && receive->out[0]->placement[AXIS_DP].kind == PLACE_SPLIT);
    graph_close(later);
    graph_close(g);
}

/* A value that is split by columns is no whole row for the other stage. */
static void test_columns_do_not_cross(void)
{
    struct graph *g = open_graph();
    struct graph *mine = NULL;
    struct mesh mesh;
    check_begin("a value that is split by columns does not cross stages");
    graph_label(g, LABEL_FFN, DIM_X, 1, 1);
    g->n_layers = 2;
    g->layer = 0;
    struct dim ffn = DIM_OF(DIM_X, LABEL_FFN, 1);
    struct tensor *up = graph_matmul(g, input_rows(g), graph_weight(g, "up", DTYPE_F32, WEIGHT_MATMUL, ffn, DIM(DIM_X)));
    g->layer = 1;
    graph_output(graph_matmul(g, up, graph_weight(g, "down", DTYPE_F32, WEIGHT_MATMUL, DIM(DIM_X), ffn)), "out");
    mesh_parse(&mesh, "pp=2,tp=2");
    check_int(pass_shard(&mine, g, &mesh, false, 0), ERR_FAILED);
    check(strstr(error_text(), "no rule gathers it") != NULL);
    graph_close(mine);
    graph_close(g);
}

/* ---- cache groups ---- */
static void test_windows(void)
{
    static const uint32_t windows[N_LAYERS] = { 128, 128, 0, 128 };
    struct graph *g = windowed_graph(windows);
    check_begin("windows: layers that keep keys alike are a group");
    check_int(g->n_cache_groups, 2);
    check_int(g->cache_group[0].window, 128);
    check_int(g->cache_group[1].window, 0);
    for (uint32_t stage = 0; stage < 2; stage++) {
        uint32_t next[2] = { 0 };
        check_begin("windows: stage %u numbers the layers of each group from 0", stage);
        struct graph *mine = shard(g, "pp=2", stage);
        check_int(mine->n_cache_groups, 2);                             /* a rank has every group, with layers or without */
        check_int(mine->cache_group[0].n_layers, stage ? 1 : 2);
        check_int(mine->cache_group[1].n_layers, stage ? 1 : 0);
        check_int(mine->cache_group[1].n_kv_heads, stage ? KV_HEADS : 0);
        for (const struct node *n = find(mine, OP_kv_store, NULL); n; n = find(mine, OP_kv_store, n))
            check_int(n->attr.cache_layer, next[n->attr.cache_group]++);
        for (const struct node *n = find(mine, OP_attention, NULL); n; n = find(mine, OP_attention, n)) {
            check_int(n->attr.cache_layer, n->in[1]->maker->attr.cache_layer);
            check_int(n->attr.cache_group, n->in[1]->maker->attr.cache_group);
        }
        graph_close(mine);
    }
    check_begin("windows: more ways than there are groups");
    for (uint32_t i = 2; i < GRAPH_MAX_CACHE_GROUPS; i++)
        check_int(graph_cache_group(g, 1000 + i, WIDTH), i);
    check_int(graph_cache_group(g, 0, 2 * WIDTH), GRAPH_MAX_CACHE_GROUPS);
    check_int(graph_cache_group(g, 0, WIDTH), 1);
    graph_close(g);
}

/* All passes over every rank of some layouts: what one pass leaves, the next takes. */
static void test_all_passes(void)
{
    static const char *const layouts[] = { "tp=1", "tp=2", "tp=5", "tp=8", "pp=3", "pp=2,tp=3", "pp=4,tp=8",
                                           "tp=3,sp=1", "pp=2,tp=2,sp=2", "dp=2,tp=2" };
    struct graph *g = model_graph();
    for (size_t i = 0; i < COUNT_OF(layouts); i++) {
        struct mesh mesh;
        mesh_parse(&mesh, layouts[i]);
        check_begin("all passes with %s", layouts[i]);
        for (uint32_t rank = 0; rank < mesh_n_ranks(&mesh); rank++) {
            struct graph *mine = shard(g, layouts[i], rank);
            uint32_t n_before = 0, n_after = 0;
            for (const struct node *n = mine->first; n; n = n->next)
                n_before++;
            struct outputs want = run_graph(mine, false);
            check_int(fuse_all(mine), 0);
            check_int(pass_place(mine, true, packed_bytes), 0);
            for (const struct node *n = mine->first; n; n = n->next)
                n_after++;
            check(n_after < n_before);
            check_places(mine);
            struct outputs got = run_graph(mine, true);
            check_outputs(&got, &want);
            graph_close(mine);
        }
    }
    graph_close(g);
}

int main(void)
{
    test_shard_tp();
    test_shard_pp();
    test_shard_refuses();
    test_shard_sp();
    test_shard_sp_quantized();
    test_shard_sp_stages();
    test_columns_do_not_cross();
    test_windows();
    test_all_passes();
    return check_done();
}
