/* execute.c: how each operator runs, chunk by chunk.
 *
 * Row operators are functions of one row, or of some columns of it; they run alone or as the links of a chain.  A chunk is a few rows, a few panels
 * of a matmul, or a few tokens of a sequence at one KV head.  Who computes which chunk never changes a bit. */
#include "run/instr.h"

#include "base/base.h"
#include "kernel/math.h"
#include "kernel/route.h"

#include <string.h>

/* ---- row operators ---- */
typedef void row_fn(struct program *p, struct instr *in, const struct piece *at);

static void row_embed(struct program *p, struct instr *in, const struct piece *at)
{
    const struct operand *table = &in->in[1];
    const char *row = table->base + (size_t)p->step->tokens[at->row] * table->row_bytes;
    dequantize_row(piece_row(&in->out[0], at), row, table->type, table->n_columns);
}

static void row_rows(struct program *p, struct instr *in, const struct piece *at)
{
    const int32_t *rows = in->in[1].base ? (const int32_t *)in->in[1].base : p->step->rows;     /* sorted by expert, or wanted */
    const void *from = operand_row(&in->in[0], (uint32_t)rows[at->row], at->thread);
    memcpy(piece_row(&in->out[0], at), from, dtype_bytes(in->out[0].type, in->out[0].n_columns));
}

static void row_rms_norm(struct program *p, struct instr *in, const struct piece *at)
{
    p->options.kernels->rms_norm(piece_row(&in->out[0], at), piece_row(&in->in[0], at), (const float *)in->in[1].base, in->out[0].n_columns,
                                 in->attr->eps);
}

static void row_quantize(struct program *p, struct instr *in, const struct piece *at)
{
    p->options.kernels->quantize(piece_at(&in->out[0], at), piece_at(&in->in[0], at), at->end - at->begin);
}

static void row_add(struct program *p, struct instr *in, const struct piece *at)
{
    p->options.kernels->add(piece_at(&in->out[0], at), piece_at(&in->in[0], at), piece_at(&in->in[1], at), at->end - at->begin);
}

/* The bias is the same for every row. */
static void row_add_bias(struct program *p, struct instr *in, const struct piece *at)
{
    row_add(p, in, at);
}

static void row_head_norm(struct program *p, struct instr *in, const struct piece *at)
{
    float *y = piece_at(&in->out[0], at);
    const float *x = piece_at(&in->in[0], at);
    for (uint32_t head = 0; head < at->end - at->begin; head += in->attr->head_dim)
        p->options.kernels->rms_norm(y + head, x + head, (const float *)in->in[1].base, in->attr->head_dim, in->attr->eps);
}

static void row_geglu(struct program *p, struct instr *in, const struct piece *at)
{
    p->options.kernels->geglu(piece_at(&in->out[0], at), piece_at(&in->in[0], at), piece_at(&in->in[1], at), at->end - at->begin);
}

static void row_scale(struct program *p, struct instr *in, const struct piece *at)
{
    p->options.kernels->scale(piece_at(&in->out[0], at), piece_at(&in->in[0], at), in->attr->scale, at->end - at->begin);
}

static void row_softcap(struct program *p, struct instr *in, const struct piece *at)
{
    p->options.kernels->softcap(piece_at(&in->out[0], at), piece_at(&in->in[0], at), in->attr->softcap, at->end - at->begin);
}

static void row_route(struct program *p, struct instr *in, const struct piece *at)
{
    (void)p;
    route_row(piece_row(&in->out[0], at), piece_row(&in->out[1], at), piece_row(&in->in[0], at), in->in[0].n_columns, in->attr->n_used,
              in->attr->normalise, in->attr->scale);
}

static void row_expert_sum(struct program *p, struct instr *in, const struct piece *at)
{
    program_expert_sum(p, in, at->row, at->thread);
}

static void row_swiglu(struct program *p, struct instr *in, const struct piece *at)
{
    p->options.kernels->swiglu(piece_at(&in->out[0], at), piece_at(&in->in[0], at), piece_at(&in->in[1], at), at->end - at->begin);
}

/* The angle is the f32 product of position and f32 frequency, as the reference implementations round it. */
static void row_rope_angles(struct program *p, struct instr *in, const struct piece *at)
{
    uint32_t n_pairs = in->attr->n_rotated / 2;
    float *cosine = piece_row(&in->out[0], at), *sine = cosine + n_pairs;
    for (uint32_t i = 0; i < n_pairs; i++) {
        double s, c;
        math_sin_cos((double)((float)p->step->positions[at->row] * in->frequency[i]), &s, &c);
        cosine[i] = (float)c * in->attr->rope.magnitude;
        sine[i] = (float)s * in->attr->rope.magnitude;
    }
}

static void row_rope(struct program *p, struct instr *in, const struct piece *at)
{
    float *y = piece_at(&in->out[0], at);
    const float *angle = piece_row(&in->in[1], at);
    uint32_t n = at->end - at->begin;
    memcpy(y, piece_at(&in->in[0], at), n * sizeof *y);
    for (uint32_t head = 0; head < n; head += in->attr->head_dim)
        p->options.kernels->rope(y + head, angle, in->attr->n_rotated / 2, in->attr->interleaved);
}

static const struct kv_cache *cache_of(const struct program *p, const struct instr *in)
{
    return &p->cache[in->attr->cache_group];
}

/* Of positions BLOCK_TOKENS * block and up. */
static void *cache_tile(const struct program *p, const struct instr *in, const struct step_sequence *sequence, uint32_t block, uint32_t kv_head)
{
    const struct step_table *table = &sequence->table[in->attr->cache_group];
    return kv_cache_tile(cache_of(p, in), table->blocks[block % table->n_blocks], in->attr->cache_layer, kv_head);
}

static void row_kv_store(struct program *p, struct instr *in, const struct piece *at)
{
    const struct step_sequence *sequence = &p->step->sequences[p->sequence_of[at->row]];
    uint32_t position = (uint32_t)p->step->positions[at->row], head_dim = in->attr->head_dim;
    const float *k = piece_at(&in->in[0], at), *v = piece_at(&in->in[1], at);
    for (uint32_t head = at->begin / head_dim; head < at->end / head_dim; head++, k += head_dim, v += head_dim) {
        void *tile = cache_tile(p, in, sequence, position / BLOCK_TOKENS, head);
        p->options.kernels->kv_store[p->graph->cache_type](tile, position % BLOCK_TOKENS, k, v, head_dim);
    }
}

static row_fn *const row_fns[N_OPS] = {
    [OP_embed] = row_embed, [OP_rows] = row_rows, [OP_rms_norm] = row_rms_norm, [OP_quantize] = row_quantize, [OP_add] = row_add,
    [OP_swiglu] = row_swiglu, [OP_rope_angles] = row_rope_angles, [OP_rope] = row_rope, [OP_kv_store] = row_kv_store,
    [OP_add_bias] = row_add_bias, [OP_head_norm] = row_head_norm, [OP_geglu] = row_geglu, [OP_scale] = row_scale, [OP_softcap] = row_softcap,
    [OP_route] = row_route, [OP_expert_sum] = row_expert_sum,
};

void program_row(struct program *p, struct instr *in, const struct piece *at)
{
    row_fns[in->op](p, in, at);
}

#define CHUNK_ROWS 4

struct range program_rows(const struct program *p, const struct instr *in)
{
    uint32_t n = p->count[in->rows.symbol], tp = p->options.mesh->size[AXIS_TP];
    if (in->rows.symbol == SYMBOL_U)
        n = p->n_came;
    if (in->rows.symbol == SYMBOL_P)
        n = p->n_pairs;
    if (!in->rows.split || !p->splits_rows)
        return (struct range){ 0, n };
    uint32_t at = mesh_coordinate(p->options.mesh, p->options.rank, AXIS_TP);
    return share_items(n, NULL, tp, at);
}

static void run_rows(struct program *p, struct instr *in, uint32_t chunk, int thread)
{
    struct range rows = program_rows(p, in);
    uint32_t first = rows.begin + chunk * CHUNK_ROWS;
    struct instr *step = in->n_steps ? in->step : in;
    uint32_t n_steps = MAX(in->n_steps, 1);
    for (uint32_t r = first; r < MIN(first + CHUNK_ROWS, rows.end); r++)
        for (uint32_t s = 0; s < n_steps; s++)
            program_row(p, &step[s], &(struct piece){ .row = r, .row0 = r, .end = step[s].in[0].n_columns, .thread = thread });
}

/* ---- matmul: the work is panels of all the weights, one after the other ---- */
void program_matmul(struct program *p, const struct instr *in, const struct operand *x, uint32_t first_row, uint32_t n_rows, uint32_t expert,
                    uint32_t panel0, uint32_t panel1)
{
    const struct kernels *kernels = p->options.kernels;
    uint32_t before = 0;
    for (uint32_t i = 0; i < in->n_out; i++) {
        const struct operand *w = &in->in[in->n_in - in->n_out + i], *y = &in->out[i];
        uint32_t n_panels = DIV_UP(y->n_columns, PANEL_ROWS), lo = MAX(panel0, before), hi = MIN(panel1, before + n_panels);
        struct matmul_args args = {
            .w = w->base + expert * matmul_packed_bytes(w->type, y->n_columns, x->n_columns), .x = x->base + first_row * x->row_bytes,
            .x_stride = x->row_bytes, .y = (float *)y->base + (size_t)first_row * y->n_columns, .y_stride = y->n_columns,
            .part_stride = (size_t)n_rows * y->n_columns, .k = x->n_columns, .n_rows = y->n_columns, .panel0 = lo - before, .panel1 = hi - before,
            .t0 = 0, .t1 = n_rows, .tree = in->tree_or_null,
        };
        if (lo < hi)
            (x->type == DTYPE_ACT8 ? kernels->matmul_int8 : kernels->matmul_f32)[w->type](&args);
        before += n_panels;
    }
}

static void run_matmul(struct program *p, struct instr *in, uint32_t chunk)
{
    uint32_t first = chunk * in->chunk_panels;
    program_matmul(p, in, &in->in[0], 0, program_max_rows(p, in), 0, first, MIN(first + in->chunk_panels, in->n_panels));
}

/* ---- attention: the work is (a few tokens of a sequence) x (a KV head) ---- */
struct head_group {
    uint32_t begin, end;        /* this rank's query heads, from 0, that read the KV head */
};

static struct head_group heads_of(const struct instr *in, uint32_t kv_head)
{
    const struct node_attr *a = in->attr;
    uint32_t n_heads = in->out[0].n_columns / a->head_dim;
    uint32_t first = (a->first_kv_head + kv_head) * a->heads_per_kv, last = first + a->heads_per_kv;
    return (struct head_group){ MAX(first, a->first_head) - a->first_head, MIN(last, a->first_head + n_heads) - a->first_head };
}

/* heads and n_tokens: at most ATTENTION_MAX_QUERIES together. */
static void attend(struct program *p, struct instr *in, const struct attention_item *item, uint32_t kv_head, struct head_group heads,
                   uint32_t first_token, uint32_t n_tokens, int thread)
{
    const struct step_sequence *sequence = &p->step->sequences[item->sequence];
    const float *q[ATTENTION_MAX_QUERIES];
    float *out[ATTENTION_MAX_QUERIES];
    uint32_t first_key[ATTENTION_MAX_QUERIES], n_keys[ATTENTION_MAX_QUERIES], n = 0, head_dim = in->attr->head_dim;
    uint32_t window = p->graph->cache_group[in->attr->cache_group].window;
    for (uint32_t t = first_token; t < first_token + n_tokens; t++)
        for (uint32_t h = heads.begin; h < heads.end; h++, n++) {
            q[n] = (const float *)operand_row(&in->in[0], t, 0) + h * head_dim;
            out[n] = (float *)operand_row(&in->out[0], t, 0) + h * head_dim;
            n_keys[n] = (uint32_t)p->step->positions[t] + 1;
            first_key[n] = window && n_keys[n] > window ? n_keys[n] - window : 0;
        }
    uint32_t n_blocks = DIV_UP((uint32_t)p->step->positions[first_token + n_tokens - 1] + 1, BLOCK_TOKENS);
    const void **tiles = p->tiles + (size_t)thread * p->max_blocks;
    for (uint32_t b = first_key[0] / BLOCK_TOKENS; b < n_blocks; b++)
        tiles[b] = cache_tile(p, in, sequence, b, kv_head);
    struct attention_args args = { .tiles = tiles, .n_queries = n, .q = q, .out = out, .first_key = window ? first_key : NULL, .n_keys = n_keys,
                                   .head_dim = head_dim, .scale = in->attr->scale, .softcap = in->attr->softcap };
    p->options.kernels->attention[p->graph->cache_type](&args);
}

/* Heads and tokens of an item go to the kernel as many at a time as fit its queries. */
static void run_attention(struct program *p, struct instr *in, uint32_t chunk, int thread)
{
    uint32_t n_kv_heads = cache_of(p, in)->n_kv_heads, kv_head = chunk % n_kv_heads;
    const struct attention_item *item = &p->item[chunk / n_kv_heads];
    struct head_group all = heads_of(in, kv_head);
    for (uint32_t h = all.begin; h < all.end; h += ATTENTION_MAX_QUERIES) {
        struct head_group heads = { h, MIN(h + ATTENTION_MAX_QUERIES, all.end) };
        uint32_t fit = ATTENTION_MAX_QUERIES / (heads.end - heads.begin);
        for (uint32_t t = 0; t < item->n_tokens; t += fit)
            attend(p, in, item, kv_head, heads, item->first_token + t, MIN(fit, item->n_tokens - t), thread);
    }
}

/* ---- communication: thread 0 speaks ---- */
static int (*const comm_fns[N_OPS])(struct program *p, struct instr *in) = {
    [OP_all_reduce] = program_all_reduce, [OP_reduce_scatter] = program_reduce_scatter, [OP_all_gather] = program_all_gather,
    [OP_dispatch] = program_dispatch, [OP_combine] = program_combine, [OP_gather_weight] = program_gather_weight,
    [OP_gather_wait] = program_gather_wait, [OP_send] = program_send, [OP_receive] = program_receive,
};

/* Other ranks may have rows for us, and wait for our parts, where we have no row of our own. */
static bool joins_always(const struct instr *in)
{
    return in->op == OP_dispatch || in->op == OP_combine || in->op == OP_gather_weight || in->op == OP_gather_wait;
}

/* ---- dispatch ---- */
bool program_can_run(enum op op)
{
    static const bool is_region[N_OPS] = {
        [OP_input] = true, [OP_matmul] = true, [OP_expert_matmul] = true, [OP_attention] = true, [OP_sort_by_expert] = true, [OP_row_chain] = true,
        [OP_matmul_chain] = true,
    };
    return is_region[op] || row_fns[op] || comm_fns[op];
}

uint32_t program_n_chunks(const struct program *p, const struct instr *in)
{
    uint32_t n_rows = program_max_rows(p, in), n_experts;
    if (joins_always(in))
        return 1;
    if (in->op == OP_input || !n_rows || (in->prologue_of && matmul_chain_does_prologue(p, in->prologue_of)))
        return 0;
    switch (in->op) {
    case OP_matmul:         return DIV_UP(in->n_panels, in->chunk_panels);
    case OP_expert_matmul:
        n_experts = (uint32_t)in->in[1].n_rows - 1;
        return MIN(n_experts, n_rows) * DIV_UP(in->n_panels, in->chunk_panels);
    case OP_matmul_chain:
        n_experts = in->step[0].op == OP_expert_matmul ? (uint32_t)in->step[0].in[1].n_rows - 1 : 1;
        return MIN(n_experts, n_rows) * in->chain->n_all_chunks;
    case OP_attention:      return p->n_items * cache_of(p, in)->n_kv_heads;
    case OP_sort_by_expert: return 1;
    default:                return comm_fns[in->op] ? 1 : DIV_UP(n_rows, CHUNK_ROWS);
    }
}

void program_run_chunk(struct program *p, struct instr *in, uint32_t chunk, int thread)
{
    switch (in->op) {
    case OP_matmul:         run_matmul(p, in, chunk); return;
    case OP_expert_matmul:  program_expert_matmul(p, in, chunk); return;
    case OP_matmul_chain:   program_matmul_chain(p, in, chunk, thread); return;
    case OP_attention:      run_attention(p, in, chunk, thread); return;
    case OP_sort_by_expert: program_sort_by_expert(p, in); return;
    default:                break;
    }
    if (!comm_fns[in->op])
        run_rows(p, in, chunk, thread);
    else if (p->error == 0)
        p->error = comm_fns[in->op](p, in);
}
