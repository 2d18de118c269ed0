/* test_passes.c: what each pass does to graphs made by hand, and that none of them changes what random graphs compute.
 *
 * A graph is run on hashes instead of numbers: a value is the hash of its operator and its inputs, so two graphs give equal
 * hashes for an output when they compute it alike.  After pass_place() the run goes through a simulated arena, in which a
 * tensor that is overwritten while it is still wanted is seen. */
#include "graph/graph.h"
#include "base/error.h"
#include "base/random.h"
#include "tests/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIM_X = 96, GRANULE = CACHE_LINE };

/* As dense as the file. */
static size_t packed_bytes(enum dtype type, uint32_t n_rows, uint32_t k)
{
    return dtype_bytes(type, (size_t)n_rows * k);
}

/* ---- running a graph on hashes ---- */
struct run {
    uint64_t value[4096];
    uint32_t *owner;            /* [arena_bytes / GRANULE]: which tensor's bytes stand there; NULL before pass_place() */
    uint32_t n_overwritten;
};

static uint64_t hash_text(const char *text)
{
    uint64_t h = 7;
    for (; *text; text++)
        h = random_mix(h * 31 + (unsigned char)*text);
    return h;
}

static uint64_t read_tensor(struct run *run, const struct tensor *t)
{
    if (t->weight)
        return hash_text(t->name);
    for (size_t at = t->offset; run->owner && t->has_buffer && at < t->offset + t->n_bytes; at += GRANULE)
        run->n_overwritten += run->owner[at / GRANULE] != t->id;
    return run->value[t->id];
}

static void write_tensor(struct run *run, const struct tensor *t, uint64_t value)
{
    run->value[t->id] = value;
    for (size_t at = t->offset; run->owner && t->has_buffer && at < t->offset + t->n_bytes; at += GRANULE)
        run->owner[at / GRANULE] = t->id;
}

static void run_node(struct run *run, const struct node *n)
{
    if (n->op == OP_row_chain) {
        for (uint32_t s = 0; s < n->n_steps; s++)
            run_node(run, n->step[s]);
        return;
    }
    for (uint32_t o = 0; o < n->n_out; o++) {
        uint64_t h = random_mix((uint64_t)n->op + 1);
        if (n->op == OP_input)
            h ^= hash_text(n->out[o]->name);
        for (uint32_t i = 0; i < n->n_in; i++)
            if (n->op != OP_matmul || i == 0 || i == 1 + o)         /* an output of a matmul is of its own weight */
                h = random_mix(h * 3 + read_tensor(run, n->in[i]));
        write_tensor(run, n->out[o], h);
    }
}

/* The hash of every output by name; the number of bytes of the arena that were lost is in *overwritten. */
struct outputs {
    struct { char name[16]; uint64_t value; } of[16];
    uint32_t n, n_overwritten;
};

static struct outputs run_graph(const struct graph *g, bool placed)
{
    static struct run run;
    struct outputs out = { 0 };
    run.n_overwritten = 0;
    run.owner = placed ? calloc(g->arena_bytes / GRANULE + 1, sizeof *run.owner) : NULL;
    for (uint32_t pass = 0; pass < 2; pass++)
        for (const struct node *n = g->first; n; n = n->next) {
            if (!pass)
                run_node(&run, n);
            for (uint32_t i = 0; pass && i < n->n_out; i++)
                if (n->out[i]->is_output && out.n < COUNT_OF(out.of)) {
                    snprintf(out.of[out.n].name, sizeof out.of[0].name, "%s", n->out[i]->name);
                    out.of[out.n++].value = read_tensor(&run, n->out[i]);
                }
        }
    out.n_overwritten = run.n_overwritten;
    free(run.owner);
    return out;
}

static void check_outputs(const struct outputs *got, const struct outputs *want)
{
    check_int(got->n, want->n);
    for (uint32_t i = 0; i < want->n; i++) {
        uint32_t at = 0;
        while (at < got->n && strcmp(got->of[at].name, want->of[i].name))
            at++;
        if (check(at < got->n && "the output is there"))
            check(got->of[at].value == want->of[i].value);
    }
    check_int(got->n_overwritten, 0);
}

/* ---- graphs made by hand ---- */
static struct graph *open_graph(void)
{
    struct graph *g = graph_open();
    g->symbol_max[SYMBOL_T] = 8;
    g->symbol_max[SYMBOL_R] = 2;
    g->symbol_max[SYMBOL_NONE] = 0;
    g->n_layers = 1;
    return g;
}

static struct tensor *input_rows(struct graph *g)
{
    struct tensor *table = graph_weight(g, "table", DTYPE_F32, WEIGHT_LOOKUP, DIM(50), DIM(DIM_X));
    return graph_embed(g, graph_input(g, "tokens", DTYPE_I32, DIM_T), table);
}

static struct tensor *norm(struct graph *g, struct tensor *x, const char *name)
{
    return graph_rms_norm(g, x, graph_weight(g, name, DTYPE_F32, WEIGHT_VECTOR, DIM(1), DIM(DIM_X)), 1e-5f);
}

static struct tensor *matmul(struct graph *g, struct tensor *x, const char *name)
{
    return graph_matmul(g, x, graph_weight(g, name, DTYPE_Q8_0, WEIGHT_MATMUL, DIM(DIM_X), DIM(DIM_X)));
}

static uint32_t count(const struct graph *g, enum op op)
{
    uint32_t n = 0;
    for (const struct node *at = g->first; at; at = at->next)
        n += at->op == op;
    return n;
}

static bool is_output_of(const struct graph *g, const char *name)
{
    for (const struct node *n = g->first; n; n = n->next)
        for (uint32_t i = 0; i < n->n_out; i++)
            if (n->out[i]->is_output && !strcmp(n->out[i]->name, name))
                return true;
    return false;
}

static void test_simplify(void)
{
    struct graph *g = open_graph();
    struct tensor *x = input_rows(g), *a = norm(g, x, "w"), *b = norm(g, x, "w"), *c = norm(g, x, "v");
    check_begin("simplify: the same value once, dead nodes not at all, outputs kept");
    graph_swiglu(g, a, c);                      /* nobody uses it */
    graph_output(graph_add(g, graph_add(g, a, b), c), "out");
    struct outputs want = run_graph(g, false);
    check_int(count(g, OP_rms_norm), 3);
    check_int(pass_simplify(g), 0);
    check_int(count(g, OP_rms_norm), 2);
    check_int(count(g, OP_swiglu), 0);
    check_int(count(g, OP_add), 2);
    struct outputs got = run_graph(g, false);
    check_outputs(&got, &want);
    graph_close(g);

    g = open_graph();
    x = input_rows(g);
    check_begin("simplify: an output that equals a value keeps its name");
    a = norm(g, x, "w");
    b = norm(g, x, "w");
    graph_output(b, "late");
    graph_output(graph_add(g, a, x), "out");
    check_int(pass_simplify(g), 0);
    check_int(count(g, OP_rms_norm), 1);
    check(is_output_of(g, "late") && is_output_of(g, "out"));
    graph_close(g);

    g = open_graph();
    x = input_rows(g);
    check_begin("simplify: two outputs that are equal are both there");
    graph_output(norm(g, x, "w"), "one");
    graph_output(norm(g, x, "w"), "two");
    check_int(pass_simplify(g), 0);
    check(is_output_of(g, "one") && is_output_of(g, "two"));
    graph_close(g);

    g = open_graph();
    x = input_rows(g);
    check_begin("simplify: other attributes are another value");
    struct tensor *w = graph_weight(g, "w", DTYPE_F32, WEIGHT_VECTOR, DIM(1), DIM(DIM_X));
    graph_output(graph_add(g, graph_rms_norm(g, x, w, 1e-5f), graph_rms_norm(g, x, w, 1e-6f)), "out");
    check_int(pass_simplify(g), 0);
    check_int(count(g, OP_rms_norm), 2);
    graph_close(g);
}

static void test_fuse(void)
{
    struct graph *g = open_graph();
    struct tensor *x = input_rows(g);
    check_begin("fuse: QKV become one matmul, add + norm + quantize a chain");
    g->int8_activations = true;
    g->layer = 0;
    x = graph_add(g, x, x);
    struct tensor *h = norm(g, x, "w");
    struct tensor *q = matmul(g, h, "q"), *k = matmul(g, h, "k"), *v = matmul(g, h, "v");
    graph_output(graph_add(g, graph_add(g, q, k), v), "out");
    struct outputs want = run_graph(g, false);
    check_int(pass_simplify(g), 0);
    check_int(count(g, OP_quantize), 1);        /* three before */
    check_int(pass_fuse(g), 0);
    check_int(count(g, OP_matmul), 1);
    check_int(count(g, OP_quantize), 0);
    check_int(count(g, OP_row_chain), 2);
    struct outputs got = run_graph(g, false);
    check_outputs(&got, &want);
    graph_close(g);

    g = open_graph();
    check_begin("fuse: a value inside a chain that is wanted outside stays (GO-01)");
    x = input_rows(g);
    struct tensor *sum = graph_add(g, x, x);
    h = norm(g, sum, "w");
    graph_output(sum, "sum");
    struct tensor *m = matmul(g, h, "m");
    graph_output(graph_add(g, m, sum), "out");
    want = run_graph(g, false);
    check_int(pass_simplify(g), 0);
    check_int(pass_fuse(g), 0);
    check(count(g, OP_row_chain) >= 1);
    check(is_output_of(g, "sum") && is_output_of(g, "out"));
    got = run_graph(g, false);
    check_outputs(&got, &want);
    check_int(pass_place(g, true, packed_bytes), 0);
    check(sum->has_buffer);
    got = run_graph(g, true);
    check_outputs(&got, &want);
    graph_close(g);
}

/* ---- place ---- */
static uint32_t index_of(const struct graph *g, const struct node *wanted)
{
    uint32_t at = 0;
    for (const struct node *n = g->first; n && n != wanted; n = n->next)
        at++;
    return at;
}

struct life {
    const struct tensor *tensor;
    uint32_t born, dies;
};

/* Every pair of tensors that are alive together has places of its own. */
static void check_places(const struct graph *g)
{
    static struct life life[4096];
    uint32_t n_lives = 0, at = 0;
    for (const struct node *n = g->first; n; n = n->next, at++)
        for (uint32_t i = 0; i < n->n_out; i++) {
            const struct tensor *t = n->out[i];
            if (!t->has_buffer || !t->n_bytes)
                continue;
            struct life mine = { t, at, t->is_output ? UINT32_MAX : at };
            for (const struct node *user = n; user; user = user->next)
                for (uint32_t k = 0; k < user->n_in; k++)
                    if (user->in[k] == t)
                        mine.dies = MAX(mine.dies, index_of(g, user));
            check(t->offset + t->n_bytes <= g->arena_bytes && t->offset % CACHE_LINE == 0);
            for (uint32_t k = 0; k < n_lives; k++)
                if (life[k].dies >= mine.born && mine.dies >= life[k].born)
                    check(t->offset + t->n_bytes <= life[k].tensor->offset || life[k].tensor->offset + life[k].tensor->n_bytes <= t->offset);
            life[n_lives++] = mine;
        }
}

static void test_place(void)
{
    size_t bytes[2];
    for (int reuse = 0; reuse < 2; reuse++) {
        struct graph *g = open_graph();
        check_begin("place: %s", reuse ? "with reuse" : "without reuse");
        struct tensor *x = input_rows(g);
        for (int i = 0; i < 10; i++)
            x = graph_add(g, x, norm(g, x, i % 2 ? "w" : "v"));
        graph_output(x, "out");
        struct outputs want = run_graph(g, false);
        check_int(pass_place(g, reuse, packed_bytes), 0);
        check_places(g);
        struct outputs got = run_graph(g, true);
        check_outputs(&got, &want);
        bytes[reuse] = g->arena_bytes;
        graph_close(g);
    }
    check_begin("place: reuse takes a fraction");
    check(bytes[1] * 4 < bytes[0]);
    check(bytes[1] >= 2 * 8 * DIM_X * sizeof(float));
}

/* ---- verify ---- */
static void test_verify(void)
{
    struct graph *g = open_graph();
    struct tensor *x = input_rows(g), *a = norm(g, x, "w"), *b = graph_add(g, a, x);
    graph_output(b, "out");
    check_begin("verify: a good graph");
    check_int(graph_verify(g), 0);

    check_begin("verify: used before it is made");
    struct node *first = a->maker, *second = b->maker;
    first->prev->next = second;
    second->prev = first->prev;
    second->next = first;
    first->prev = second;
    first->next = NULL;
    g->last = first;
    check_int(graph_verify(g), ERR_FAILED);
    check(strstr(error_text(), "before it is made") != NULL);
    second->prev->next = first;
    first->prev = second->prev;
    first->next = second;
    second->prev = first;
    second->next = NULL;
    g->last = second;
    check_int(graph_verify(g), 0);

    check_begin("verify: a torn list");
    second->prev = NULL;
    check_int(graph_verify(g), ERR_FAILED);
    second->prev = first;

    check_begin("verify: a shape that its inputs do not give");
    a->dim[1].add++;
    check(graph_verify(g) < 0);
    a->dim[1].add--;

    check_begin("verify: two makers");
    second->out[0] = a;
    check_int(graph_verify(g), ERR_FAILED);
    second->out[0] = b;

    check_begin("verify: partial sums used before their reduction");
    a->placement[AXIS_TP] = (struct placement){ .kind = PLACE_PARTIAL, .n_parts = 2 };
    check_int(graph_verify(g), ERR_FAILED);
    a->placement[AXIS_TP] = (struct placement){ 0 };

    check_begin("verify: too few operands");
    second->n_in = 1;
    check_int(graph_verify(g), ERR_FAILED);
    second->n_in = 2;
    check_int(graph_verify(g), 0);
    graph_close(g);

    g = open_graph();
    x = input_rows(g);
    check_begin("builders refuse shapes that do not fit");
    check(!graph_matmul(g, x, graph_weight(g, "m", DTYPE_F32, WEIGHT_MATMUL, DIM(8), DIM(DIM_X + 1))));
    check(!graph_rms_norm(g, x, graph_weight(g, "w", DTYPE_F32, WEIGHT_VECTOR, DIM(1), DIM(DIM_X - 1)), 1e-5f));
    check(!graph_add(g, NULL, x));
    graph_close(g);
}

/* ---- shard ---- */
enum { HEADS = 9, KV_HEADS = 3, WIDTH = 32, FFN = 96, VOCAB = 301, N_LAYERS = 4 };

/* A block of the kind that models have, four times. */
static struct graph *model_graph(void)
{
    struct graph *g = open_graph();
    char name[32];
    g->n_layers = N_LAYERS;
    graph_label(g, LABEL_HEADS, HEADS, WIDTH, 1);
    graph_label_follows(g, LABEL_KV_HEADS, KV_HEADS, LABEL_HEADS, HEADS / KV_HEADS);
    graph_label(g, LABEL_FFN, FFN, 1, 1);
    graph_label(g, LABEL_VOCAB, VOCAB, 1, 16);
    struct dim heads = DIM_OF(HEADS, LABEL_HEADS, WIDTH), kv = DIM_OF(KV_HEADS, LABEL_KV_HEADS, WIDTH), ffn = DIM_OF(FFN, LABEL_FFN, 1), x_dim = DIM(DIM_X);
    struct tensor *positions = graph_input(g, "positions", DTYPE_I32, DIM_T), *rows = graph_input(g, "rows", DTYPE_I32, DIM_R);
    struct node_attr attr = { .head_dim = WIDTH, .n_rotated = WIDTH, .rope = { .base = 1e4f, .magnitude = 1 }, .heads_per_kv = HEADS / KV_HEADS, .scale = 1,
                              .cache_group = graph_cache_group(g, 0, WIDTH) };
    struct tensor *angles = graph_rope_angles(g, positions, NULL, &attr);
    g->layer = 0;
    struct tensor *x = input_rows(g);
    for (uint32_t i = 0; i < N_LAYERS; i++) {
        struct tensor *w[7];
        static const char *const names[] = { "q", "k", "v", "o", "gate", "up", "down" };
        const struct dim row[] = { heads, kv, kv, x_dim, ffn, ffn, x_dim }, column[] = { x_dim, x_dim, x_dim, heads, x_dim, x_dim, ffn };
        g->layer = (int)i;
        attr.cache_layer = i;
        for (uint32_t k = 0; k < 7; k++) {
            snprintf(name, sizeof name, "%s.%u", names[k], i);
            w[k] = graph_weight(g, name, DTYPE_F32, WEIGHT_MATMUL, row[k], column[k]);
        }
        struct tensor *h = norm(g, x, "norm");
        struct tensor *stored = graph_kv_store(g, graph_rope(g, graph_matmul(g, h, w[1]), angles, &attr), graph_matmul(g, h, w[2]), &attr);
        struct tensor *a = graph_attention(g, graph_rope(g, graph_matmul(g, h, w[0]), angles, &attr), stored, &attr);
        x = graph_add(g, x, graph_matmul(g, a, w[3]));
        h = norm(g, x, "norm2");
        x = graph_add(g, x, graph_matmul(g, graph_swiglu(g, graph_matmul(g, h, w[4]), graph_matmul(g, h, w[5])), w[6]));
    }
    graph_output(graph_matmul(g, graph_rows(g, x, rows), graph_weight(g, "head", DTYPE_F32, WEIGHT_MATMUL, DIM_OF(VOCAB, LABEL_VOCAB, 1), x_dim)), "logits");
    return g;
}

struct find {
    const char *name;
    struct weight *found;
};

static void find_weight(struct tensor *t, void *user)
{
    struct find *find = user;
    if (!strcmp(t->name, find->name))
        find->found = t->weight;
}

static void check_slice(struct graph *g, const char *name, uint32_t row, uint32_t row_end, uint32_t column, uint32_t column_end)
{
    struct find find = { name, NULL };
    graph_each_weight(g, find_weight, &find);
    if (!check(find.found != NULL))
        return;
    check_int(find.found->rows.begin, row);
    check_int(find.found->rows.end, row_end);
    check_int(find.found->columns.begin, column);
    check_int(find.found->columns.end, column_end);
}

/* The leaves of a contraction are in columns of the rank's own slice, and cover it. */
static void check_leaves(const struct graph *g, const char *weight, uint32_t n_columns)
{
    const struct node *n = g->first;
    uint32_t end = 0;
    while (n && (n->op != OP_matmul || strcmp(n->in[1]->name, weight)))
        n = n->next;
    if (!check(n != NULL))
        return;
    for (uint32_t i = 0; i < n->attr.tree.n_leaves; i++) {
        check_int(n->attr.tree.leaf[i].begin, end);
        end = n->attr.tree.leaf[i].end;
    }
    check_int(end, n_columns);
    check_int(tensor_n_parts(n->out[0]), n->attr.tree.n_parts);
}

static struct graph *shard(const struct graph *g, const char *layout, uint32_t rank)
{
    struct mesh mesh;
    struct graph *mine = NULL;
    if (!check_int(mesh_parse(&mesh, layout), 0) || !check_int(pass_shard(&mine, g, &mesh, false, rank), 0))
        return NULL;
    return mine;
}

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

/* All passes over every rank of some layouts: what one pass leaves, the next takes. */
static void test_all_passes(void)
{
    static const char *const layouts[] = { "tp=1", "tp=2", "tp=5", "tp=8", "pp=3", "pp=2,tp=3", "pp=4,tp=8" };
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
            check_int(pass_fuse(mine), 0);
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

/* ---- random graphs ---- */
static struct graph *random_graph(uint64_t seed)
{
    static const char *const names[] = { "a", "b", "c", "d" };
    struct graph *g = open_graph();
    struct tensor *made[64];
    uint32_t n = 0, n_outputs = 0;
    g->int8_activations = random_u64(seed, 1000) & 1;
    made[n++] = input_rows(g);
    g->layer = 0;
    for (uint32_t i = 0; n < 40; i++) {
        uint64_t r = random_u64(seed, i);
        struct tensor *x = made[r % n], *y = made[(r >> 8) % n], *t = NULL;
        const char *w = names[r >> 16 & 3];
        if (random_u64(seed, 500 + i) % 8 == 0)
            g->layer++;
        switch (r >> 24 & 3) {
        case 0: t = norm(g, x, w); break;
        case 1: t = graph_add(g, x, y); break;
        case 2: t = graph_swiglu(g, x, y); break;
        case 3: t = matmul(g, x, w); break;
        }
        made[n++] = t;
        if (t && !t->is_output && n_outputs < 8 && random_u64(seed, 2000 + i) % 6 == 0) {
            char *name = arena_string(&g->arena, "out0");
            name[3] = (char)('0' + n_outputs++);
            graph_output(t, name);
        }
    }
    graph_output(made[n - 1], "last");
    return g;
}

/* Equal values never are outputs twice here: that is a test of its own above. */
static bool outputs_differ(const struct outputs *out)
{
    for (uint32_t i = 0; i < out->n; i++)
        for (uint32_t k = 0; k < i; k++)
            if (out->of[i].value == out->of[k].value)
                return false;
    return true;
}

static void test_random_graphs(void)
{
    uint32_t n_fewer = 0, n_graphs = 0;
    for (uint64_t seed = 0; seed < 300; seed++)
        for (unsigned passes = 0; passes < 8; passes++) {
            struct graph *g = random_graph(seed);
            struct outputs want = run_graph(g, false);
            if (!outputs_differ(&want)) {
                graph_close(g);
                break;
            }
            if (!passes)
                n_graphs++;
            check_begin("random graph %u, passes %u", (unsigned)seed, passes);
            if (passes & 1)
                check_int(pass_simplify(g), 0);
            if (passes & 2)
                check_int(pass_fuse(g), 0);
            check_int(pass_place(g, passes & 4, packed_bytes), 0);
            check_places(g);
            struct outputs got = run_graph(g, true);
            check_outputs(&got, &want);
            n_fewer += count(g, OP_row_chain) > 0;
            graph_close(g);
        }
    check_begin("random graphs have something to fuse");
    check(n_graphs > 150 && n_fewer > 2 * n_graphs);
}

int main(void)
{
    test_simplify();
    test_fuse();
    test_place();
    test_verify();
    test_shard_tp();
    test_shard_pp();
    test_shard_refuses();
    test_all_passes();
    test_random_graphs();
    return check_done();
}
