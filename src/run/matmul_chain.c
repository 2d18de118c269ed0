/* matmul_chain.c: a product, the row operators that make its input, and those that a thread does on the columns which it has just
 * computed.
 *
 * A chunk is some units of columns of a strip (graph.h), for all rows.  With an epilogue it is computed in blocks of rows and
 * columns: the products of the strip, then the steps, row by row.  Weights of a block stay in L2 while its rows pass by, and
 * values that only the epilogue uses have room for one block, for each thread.
 *
 * The prologue is an instruction of its own before the product's.  With few rows it has no chunks; each thread that claims one of
 * the product makes the input for itself first.  What others want of the prologue is then made once more, by who has chunk 0. */
#include "run/instr.h"

#include "base/base.h"
#include "base/error.h"

#include <string.h>

#define BLOCK_ROWS 256          /* a kernel unpacks weights once for so many */
#define BLOCK_COLUMNS 128
#define BLOCK_BYTES (512u << 10)

/* ---- places ---- */
/* Columns of a block: as many units as the limits allow, but one at least. */
static uint32_t block_columns(const struct node *n, const struct strips *strips, uint32_t strip)
{
    const struct node *product = n->step[n->product];
    uint32_t unit = strips->strip[strip].unit;
    size_t unit_bytes = 1;
    for (uint32_t i = 0; i < product->n_out; i++)
        if (strips->of_product[i] == strip) {
            const struct tensor *w = product->in[node_first_weight(product) + i];
            unit_bytes += matmul_packed_bytes(w->type, unit, (uint32_t)tensor_columns(product->in[0]));
        }
    return unit * (uint32_t)MAX(MIN(BLOCK_COLUMNS / unit, BLOCK_BYTES / unit_bytes), 1);
}

static size_t row_bytes(const struct tensor *t)
{
    return ROUND_UP(dtype_bytes(t->type, tensor_columns(t)), CACHE_LINE);
}

/* Where the thread's own copy of `wanted` is, an output of the prologue that has a buffer; NULL: where they all end. */
static size_t own_offset(const struct node *n, const struct tensor *wanted)
{
    size_t at = 0;
    for (uint32_t s = 0; s < n->product; s++)
        for (uint32_t i = 0; i < n->step[s]->n_out; i++) {
            const struct tensor *t = n->step[s]->out[i];
            if (t == wanted)
                return at;
            if (t->has_buffer)
                at += row_bytes(t) * (t == n->step[n->product]->in[0] ? CHUNK_ROWS : 1);
        }
    return at;
}

size_t matmul_chain_place(struct node *n)
{
    struct strips strips;
    size_t at = own_offset(n, NULL);
    if (chain_strips(&strips, n))
        return 0;
    for (uint32_t s = 0; s < n->n_steps; s++)
        for (uint32_t i = 0; i < n->step[s]->n_out; i++) {
            struct tensor *t = n->step[s]->out[i];
            if (t->has_buffer)
                continue;
            t->offset = at;
            if (s < n->product) {
                t->n_bytes = 0;
                at += row_bytes(t);
            } else {
                uint32_t columns = block_columns(n, &strips, s > n->product ? strips.of_step[s] : strips.of_product[i]);
                t->n_bytes = ROUND_UP(dtype_bytes(t->type, columns), CACHE_LINE);
                at += BLOCK_ROWS * t->n_bytes;
            }
        }
    return at;
}

/* ---- compiling ---- */
static void put_in_order(struct matmul_chain *c, uint32_t strip, const uint32_t *unit_panels)
{
    uint32_t at = strip;
    for (; at && unit_panels[c->order[at - 1]] < unit_panels[strip]; at--)
        c->order[at] = c->order[at - 1];
    c->order[at] = strip;
}

static int cut_product(struct program *p, struct matmul_chain *c, const struct instr *product, const struct node *n)
{
    bool has_epilogue = n->n_steps > n->product + 1;
    uint32_t unit[NODE_MAX_OUTPUTS], unit_panels[NODE_MAX_OUTPUTS], panels_after = product->n_panels;
    if (chain_strips(&c->strips, n))
        return error_set(ERR_FAILED, "a %s has no strips", op_info[n->op].name);
    c->block_rows = has_epilogue ? BLOCK_ROWS : INT32_MAX;
    for (uint32_t s = 0; s < c->strips.n; s++) {
        const struct strip *strip = &c->strips.strip[s];
        uint32_t n_products = 0;
        for (uint32_t i = 0; i < product->n_out; i++)
            n_products += c->strips.of_product[i] == s;
        c->block_columns[s] = has_epilogue ? block_columns(n, &c->strips, s) : INT32_MAX;
        unit[s] = strip->unit % (2 * PANEL_ROWS) ? 2 * strip->unit : strip->unit;        /* some kernels take panels in pairs */
        unit_panels[s] = n_products * (uint32_t)DIV_UP(unit[s], PANEL_ROWS);
        put_in_order(c, s, unit_panels);
    }
    for (uint32_t i = 0; i < c->strips.n; i++) {
        const struct strip *strip = &c->strips.strip[c->order[i]];
        struct cuts *cuts = &c->cuts[c->order[i]];
        uint32_t n_panels = unit_panels[c->order[i]] * (uint32_t)DIV_UP(strip->n_columns, unit[c->order[i]]);
        panels_after -= MIN(n_panels, panels_after);
        if (cuts_make(cuts, &p->memory, (uint32_t)strip->n_columns, unit[c->order[i]], unit_panels[c->order[i]], panels_after,
                      (uint32_t)pool_n_threads(p->options.pool)) < 0)
            return ERR_NO_MEMORY;
        c->n_all_chunks += cuts->n;
    }
    return 0;
}

/* An operand of the prologue that has a buffer, as a thread has it for itself. */
static struct operand own_operand(const struct program *p, const struct node *n, const struct tensor *t, const struct operand *shared)
{
    struct node before = { .n_steps = n->product };
    memcpy(before.step, n->step, sizeof before.step);
    if (!t->has_buffer || !node_makes(&before, t))
        return *shared;
    return (struct operand){ .base = p->rows + own_offset(n, t), .thread_bytes = p->scratch_bytes, .n_columns = shared->n_columns,
                             .type = shared->type, .row_bytes = t == n->step[n->product]->in[0] ? row_bytes(t) : 0 };
}

static void cut_off_prologue(const struct program *p, struct instr *in, struct instr *own, const struct node *n)
{
    struct instr *prologue = in - 1;
    struct matmul_chain *c = in->chain;
    *prologue = (struct instr){ .op = OP_row_chain, .kind = WORK_ROWS, .attr = in->attr, .step = in->step, .n_steps = n->product,
                                .rows = in->step[0].rows, .prologue_of = in };
    in->step += n->product;
    in->n_steps -= n->product;
    for (uint32_t s = 0; s < n->product; s++) {
        const struct node *step = n->step[s];
        own[s] = prologue->step[s];
        for (uint32_t i = 0; i < step->n_in; i++)
            own[s].in[i] = own_operand(p, n, step->in[i], &own[s].in[i]);
        for (uint32_t i = 0; i < step->n_out; i++) {
            own[s].out[i] = own_operand(p, n, step->out[i], &own[s].out[i]);
            c->shares |= step->out[i]->has_buffer && step->out[i] != n->step[n->product]->in[0];
        }
    }
    c->prologue = prologue;
    c->own = own;
    c->own_input = own_operand(p, n, n->step[n->product]->in[0], &in->step[0].in[0]);
}

int matmul_chain_compile(struct program *p, struct instr *in, struct instr *own, const struct node *n)
{
    struct matmul_chain *c = in->chain = arena_new(&p->memory, struct matmul_chain);
    if (!c)
        return error_set(ERR_NO_MEMORY, "no memory for instructions");
    if (n->product)
        cut_off_prologue(p, in, own, n);
    return cut_product(p, c, &in->step[0], n);
}

/* ---- the prologue ---- */
bool matmul_chain_does_prologue(const struct program *p, const struct instr *in)
{
    return in->chain->prologue && in->chain->n_all_chunks && program_max_rows(p, in) <= CHUNK_ROWS;
}

static void run_prologue(struct program *p, const struct instr *in, struct instr *step, int thread)
{
    uint32_t n_steps = in->chain->prologue->n_steps;
    for (uint32_t r = 0; r < program_max_rows(p, in); r++)
        for (uint32_t s = 0; s < n_steps; s++)
            program_row(p, &step[s], &(struct piece){ .row = r, .end = step[s].in[0].n_columns, .thread = thread });
}

/* The product's input, for this thread: made by it, once in a step, or that of all. */
static const struct operand *input_of(struct program *p, const struct instr *in, uint32_t chunk, int thread)
{
    struct matmul_chain *c = in->chain;
    struct own_input *mine = &p->own_input[thread];
    unsigned step = atomic_load_explicit(&p->step_number, memory_order_relaxed);
    if (!matmul_chain_does_prologue(p, in))
        return &in->step[0].in[0];
    if (chunk == 0 && c->shares)
        run_prologue(p, in, c->prologue->step, thread);
    if (mine->of != in || mine->step != step)
        run_prologue(p, in, c->own, thread);
    *mine = (struct own_input){ .of = in, .step = step };
    return &c->own_input;
}

/* ---- a chunk ---- */
/* Columns and rows of one output of the product. */
static void run_product(struct program *p, const struct instr *product, const struct operand *x, uint32_t i, uint32_t expert,
                        const struct piece *at, uint32_t n_rows)
{
    const struct kernels *kernels = p->options.kernels;
    const struct operand *w = &product->in[product->n_in - product->n_out + i], *y = &product->out[i];
    uint32_t k = x->n_columns, n = at->end - at->begin;
    struct matmul_args args = {
        .w = w->base + expert * matmul_packed_bytes(w->type, y->n_columns, k) + matmul_packed_bytes(w->type, at->begin, k),
        .x = operand_row(x, at->row, at->thread), .x_stride = x->row_bytes, .y = piece_at(y, at), .y_stride = y->row_bytes / sizeof(float),
        .part_stride = (size_t)program_max_rows(p, product) * y->n_columns, .k = k, .n_rows = n, .panel1 = DIV_UP(n, PANEL_ROWS),
        .t1 = n_rows, .tree = product->tree_or_null,
    };
    (x->type == DTYPE_ACT8 ? kernels->matmul_int8 : kernels->matmul_f32)[w->type](&args);
}

static void run_block(struct program *p, struct instr *in, const struct operand *x, uint32_t strip, uint32_t expert, struct piece at,
                      uint32_t n_rows)
{
    const struct strips *strips = &in->chain->strips;
    uint32_t product = in->chain->prologue ? in->chain->prologue->n_steps : 0;
    for (uint32_t i = 0; i < in->step[0].n_out; i++)
        if (strips->of_product[i] == strip)
            run_product(p, &in->step[0], x, i, expert, &at, n_rows);
    for (; at.row < at.row0 + n_rows; at.row++)
        for (uint32_t s = 1; s < in->n_steps; s++)
            if (strips->of_step[product + s] == strip)
                program_row(p, &in->step[s], &at);
}

static void run_strip(struct program *p, struct instr *in, const struct operand *x, uint32_t strip, uint32_t chunk, uint32_t expert,
                      struct range rows, int thread)
{
    const struct matmul_chain *c = in->chain;
    const struct range columns = cuts_at(&c->cuts[strip], chunk);
    for (uint32_t first = columns.begin; first < columns.end; first += c->block_columns[strip])
        for (uint32_t r = rows.begin; r < rows.end; r += c->block_rows) {
            struct piece at = { .row = r, .row0 = r, .begin = first, .end = MIN(first + c->block_columns[strip], columns.end),
                                .thread = thread };
            run_block(p, in, x, strip, expert, at, MIN(c->block_rows, rows.end - r));
        }
}

void program_matmul_chain(struct program *p, struct instr *in, uint32_t chunk, int thread)
{
    const struct operand *x = input_of(p, in, chunk, thread);
    struct range rows = { 0, program_max_rows(p, in) };
    uint32_t expert = 0, i = 0;
    if (in->step[0].op == OP_expert_matmul && !program_expert(p, &in->step[0], chunk / in->chain->n_all_chunks, &expert, &rows))
        return;
    for (chunk %= in->chain->n_all_chunks; chunk >= in->chain->cuts[in->chain->order[i]].n; i++)
        chunk -= in->chain->cuts[in->chain->order[i]].n;
    run_strip(p, in, x, in->chain->order[i], chunk, expert, rows, thread);
}
