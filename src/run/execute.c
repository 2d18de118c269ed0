/* execute.c: how each operator runs, chunk by chunk.
 *
 * Row operators are functions of one row, or of some columns of it; they run alone or as the links of a chain.  A chunk is a few
 * rows or a few panels of a matmul.  Who computes which chunk never changes a bit. */
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

static row_fn *const row_fns[N_OPS] = {
    [OP_embed] = row_embed, [OP_rows] = row_rows, [OP_rms_norm] = row_rms_norm, [OP_quantize] = row_quantize, [OP_add] = row_add,
    [OP_swiglu] = row_swiglu, [OP_rope_angles] = row_rope_angles, [OP_rope] = row_rope, [OP_kv_store] = program_kv_store,
    [OP_add_bias] = row_add_bias, [OP_head_norm] = row_head_norm, [OP_geglu] = row_geglu, [OP_scale] = row_scale,
    [OP_softcap] = row_softcap, [OP_route] = row_route, [OP_expert_sum] = row_expert_sum,
};

void program_row(struct program *p, struct instr *in, const struct piece *at)
{
    row_fns[in->op](p, in, at);
}

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
void program_matmul(struct program *p, const struct instr *in, const struct operand *x, uint32_t first_row, uint32_t n_rows,
                    uint32_t expert, uint32_t panel0, uint32_t panel1)
{
    const struct kernels *kernels = p->options.kernels;
    uint32_t before = 0;
    for (uint32_t i = 0; i < in->n_out; i++) {
        const struct operand *w = &in->in[in->n_in - in->n_out + i], *y = &in->out[i];
        uint32_t n_panels = DIV_UP(y->n_columns, PANEL_ROWS), lo = MAX(panel0, before), hi = MIN(panel1, before + n_panels);
        struct matmul_args args = {
            .w = w->base + expert * matmul_packed_bytes(w->type, y->n_columns, x->n_columns), .x = x->base + first_row * x->row_bytes,
            .x_stride = x->row_bytes, .y = (float *)y->base + (size_t)first_row * y->n_columns, .y_stride = y->n_columns,
            .part_stride = (size_t)n_rows * y->n_columns, .k = x->n_columns, .n_rows = y->n_columns, .panel0 = lo - before,
            .panel1 = hi - before, .t0 = 0, .t1 = n_rows, .tree = in->tree_or_null,
        };
        if (lo < hi)
            (x->type == DTYPE_ACT8 ? kernels->matmul_int8 : kernels->matmul_f32)[w->type](&args);
        before += n_panels;
    }
}

static void run_matmul(struct program *p, struct instr *in, uint32_t chunk)
{
    struct range panels = cuts_at(&in->cuts, chunk);
    program_matmul(p, in, &in->in[0], 0, program_max_rows(p, in), 0, panels.begin, panels.end);
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
        [OP_input] = true, [OP_matmul] = true, [OP_expert_matmul] = true, [OP_attention] = true, [OP_sort_by_expert] = true,
        [OP_row_chain] = true, [OP_matmul_chain] = true,
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
    case OP_matmul:         return in->cuts.n;
    case OP_expert_matmul:
        n_experts = (uint32_t)in->in[1].n_rows - 1;
        return MIN(n_experts, n_rows) * in->cuts.n;
    case OP_matmul_chain:
        n_experts = in->step[0].op == OP_expert_matmul ? (uint32_t)in->step[0].in[1].n_rows - 1 : 1;
        return MIN(n_experts, n_rows) * in->chain->n_all_chunks;
    case OP_attention:      return program_attention_chunks(p, in);
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
    case OP_attention:      program_attention(p, in, chunk, thread); return;
    case OP_sort_by_expert: program_sort_by_expert(p, in); return;
    default:                break;
    }
    if (!comm_fns[in->op])
        run_rows(p, in, chunk, thread);
    else if (p->error == 0)
        p->error = comm_fns[in->op](p, in);
}
