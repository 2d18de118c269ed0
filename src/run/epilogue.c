/* epilogue.c: a matmul_chain: a product, and row operators on the columns that a thread has just computed.
 *
 * A chunk is some units of columns of a strip, for all rows.  It is computed in blocks of rows and columns: the products of the
 * strip, then the steps, row by row.  Weights of a block stay in L2 while its rows pass by, and values that only the chain
 * uses have room for one block, for each thread. */
#include "run/instr.h"

#include "base/base.h"
#include "base/error.h"
#include "base/threads.h"

#define BLOCK_ROWS 64           /* whole tiles of every kernel */
#define BLOCK_COLUMNS 256
#define BLOCK_BYTES (512u << 10)

/* Columns of a block: as many units as the limits allow, but one at least. */
static uint32_t block_columns(const struct node *n, const struct strips *strips, uint32_t strip)
{
    const struct node *product = n->step[0];
    uint32_t unit = strips->strip[strip].unit;
    size_t unit_bytes = 1;
    for (uint32_t i = 0; i < product->n_out; i++)
        if (strips->of_product[i] == strip) {
            const struct tensor *w = product->in[node_first_weight(product) + i];
            unit_bytes += matmul_packed_bytes(w->type, unit, (uint32_t)tensor_columns(product->in[0]));
        }
    return unit * (uint32_t)MAX(MIN(BLOCK_COLUMNS / unit, BLOCK_BYTES / unit_bytes), 1);
}

size_t epilogue_place(struct node *n)
{
    struct strips strips;
    size_t at = 0;
    if (chain_strips(&strips, n))
        return 0;
    for (uint32_t s = 0; s < n->n_steps; s++)
        for (uint32_t i = 0; i < n->step[s]->n_out; i++) {
            struct tensor *t = n->step[s]->out[i];
            if (t->has_buffer)
                continue;
            uint32_t columns = block_columns(n, &strips, s ? strips.of_step[s] : strips.of_product[i]);
            t->offset = at;
            t->n_bytes = ROUND_UP(dtype_bytes(t->type, columns), CACHE_LINE);
            at += BLOCK_ROWS * t->n_bytes;
        }
    return at;
}

int epilogue_compile(struct program *p, struct instr *in, const struct node *n)
{
    struct epilogue *e = in->epilogue = arena_new(&p->memory, struct epilogue);
    if (!e)
        return error_set(ERR_NO_MEMORY, "no memory for instructions");
    if (chain_strips(&e->strips, n))
        return error_set(ERR_FAILED, "a %s has no strips", op_info[n->op].name);
    for (uint32_t s = 0; s < e->strips.n; s++) {
        const struct strip *strip = &e->strips.strip[s];
        uint32_t n_products = 0;
        for (uint32_t i = 0; i < in->step[0].n_out; i++)
            n_products += e->strips.of_product[i] == s;
        e->block_columns[s] = block_columns(n, &e->strips, s);
        e->chunk_columns[s] = strip->unit * MAX(in->step[0].chunk_panels * PANEL_ROWS / (strip->unit * n_products), 1);
        e->n_chunks[s] = (uint32_t)DIV_UP(strip->n_columns, e->chunk_columns[s]);
        e->n_all_chunks += e->n_chunks[s];
    }
    return 0;
}

/* ---- a chunk ---- */
/* Columns and rows of one output of the product; w from the chunk's first panel on. */
static void run_product(struct program *p, const struct instr *product, uint32_t i, uint32_t expert, const struct piece *at, uint32_t n_rows)
{
    const struct kernels *kernels = p->options.kernels;
    const struct operand *x = &product->in[0], *w = &product->in[product->n_in - product->n_out + i], *y = &product->out[i];
    uint32_t k = x->n_columns, n = at->end - at->begin;
    struct matmul_args args = {
        .w = w->base + expert * matmul_packed_bytes(w->type, y->n_columns, k) + matmul_packed_bytes(w->type, at->begin, k),
        .x = x->base + at->row * x->row_bytes, .x_stride = x->row_bytes, .y = piece_at(y, at), .y_stride = y->row_bytes / sizeof(float),
        .k = k, .n_rows = n, .panel1 = DIV_UP(n, PANEL_ROWS), .t1 = n_rows, .tree = product->tree_or_null,
    };
    (x->type == DTYPE_ACT8 ? kernels->matmul_int8 : kernels->matmul_f32)[w->type](&args);
}

static void run_block(struct program *p, struct instr *in, uint32_t strip, uint32_t expert, struct piece at, uint32_t n_rows)
{
    const struct strips *strips = &in->epilogue->strips;
    for (uint32_t i = 0; i < in->step[0].n_out; i++)
        if (strips->of_product[i] == strip)
            run_product(p, &in->step[0], i, expert, &at, n_rows);
    for (; at.row < at.row0 + n_rows; at.row++)
        for (uint32_t s = 1; s < in->n_steps; s++)
            if (strips->of_step[s] == strip)
                program_row(p, &in->step[s], &at);
}

static void run_strip(struct program *p, struct instr *in, uint32_t strip, uint32_t chunk, uint32_t expert, struct range rows, int thread)
{
    const struct epilogue *e = in->epilogue;
    uint32_t begin = chunk * e->chunk_columns[strip], end = (uint32_t)MIN(begin + e->chunk_columns[strip], e->strips.strip[strip].n_columns);
    for (uint32_t c = begin; c < end; c += e->block_columns[strip])
        for (uint32_t r = rows.begin; r < rows.end; r += BLOCK_ROWS) {
            struct piece at = { .row = r, .row0 = r, .begin = c, .end = MIN(c + e->block_columns[strip], end), .thread = thread };
            run_block(p, in, strip, expert, at, MIN(BLOCK_ROWS, rows.end - r));
        }
}

void program_matmul_chain(struct program *p, struct instr *in, uint32_t chunk, int thread)
{
    struct range rows = { 0, program_max_rows(p, in) };
    uint32_t expert = 0, strip = 0;
    if (in->step[0].op == OP_expert_matmul && !program_expert(p, &in->step[0], chunk / in->epilogue->n_all_chunks, &expert, &rows))
        return;
    for (chunk %= in->epilogue->n_all_chunks; chunk >= in->epilogue->n_chunks[strip]; strip++)
        chunk -= in->epilogue->n_chunks[strip];
    run_strip(p, in, strip, chunk, expert, rows, thread);
}
