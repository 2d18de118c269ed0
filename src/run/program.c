#include "run/instr.h"
#include "run/profile.h"
#include "run/rope.h"

#include "base/base.h"
#include "base/error.h"
#include "base/float_mode.h"
#include "kernel/math.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void program_run_thread(void *user, int thread);

static int no_memory(const char *what)
{
    return error_set(ERR_NO_MEMORY, "no memory for %s", what);
}

/* ---- operands ---- */
static struct operand weight_operand(const struct program *p, const struct tensor *t)
{
    const struct weight *w = t->weight;
    return (struct operand){
        .base = (char *)(uintptr_t)weights_data(p->weights, t), .type = w->use == WEIGHT_VECTOR ? DTYPE_F32 : w->type,
        .n_columns = w->columns.end - w->columns.begin, .row_bytes = w->use == WEIGHT_LOOKUP ? dtype_bytes(w->type, w->n_columns) : 0,
    };
}

static struct operand value_operand(const struct program *p, const struct tensor *t)
{
    return (struct operand){ .base = t->has_buffer ? p->activations + t->offset : NULL, .row_bytes = tensor_row_bytes(t), .type = t->type,
                             .n_columns = (uint32_t)tensor_columns(t), .n_rows = t->dim[0].symbol ? 0 : (uint32_t)t->dim[0].add };
}

/* A value that stays inside a chain has a row or a block for each thread, at an offset that is its `offset` here. */
static struct operand operand_of(const struct program *p, const struct tensor *t)
{
    if (t->weight)
        return weight_operand(p, t);
    struct operand o = value_operand(p, t);
    if (t->is_packed) {
        o.row_bytes = 0;
        o.n_columns = (uint32_t)t->dim[t->n_dims - 1].add;
    }
    if (!t->has_buffer && t->maker->op != OP_input) {
        o.base = p->rows + t->offset;
        o.row_bytes = t->n_bytes;
        o.thread_bytes = p->scratch_bytes;
    }
    return o;
}

/* One row of each value that stays inside. */
static size_t place_in_rows(struct node *n)
{
    size_t at = 0;
    for (uint32_t s = 0; s < n->n_steps; s++)
        for (uint32_t i = 0; i < n->step[s]->n_out; i++) {
            struct tensor *t = n->step[s]->out[i];
            if (t->has_buffer)
                continue;
            t->offset = at;
            t->n_bytes = 0;
            at += ROUND_UP(dtype_bytes(t->type, tensor_columns(t)), CACHE_LINE);
        }
    return at;
}

/* Offsets inside a thread's scratch, for what has no buffer.  One chain runs at a time, so chains share it. */
static void place_inner_values(struct program *p)
{
    for (struct node *n = p->graph->first; n; n = n->next) {
        size_t n_bytes = n->op == OP_matmul_chain ? matmul_chain_place(n) : place_in_rows(n);
        p->scratch_bytes = MAX(p->scratch_bytes, n_bytes);
    }
}

/* ---- instructions ---- */
static void compile_tree(struct instr *in, const struct node *n)
{
    const struct tree *tree = &n->attr.tree;
    if (!n->attr.sum_label)
        return;
    in->tree.n_groups = tree->n_leaves;
    in->tree.n_parts = tree->n_parts;
    for (uint32_t i = 0; i < tree->n_leaves; i++) {
        in->tree.end[i] = tree->leaf[i].end;
        in->tree.n_merges[i] = tree->n_merges[i];
    }
    in->tree_or_null = &in->tree;
}

static int compile_frequencies(struct program *p, struct instr *in, const struct node *n)
{
    uint32_t n_pairs = n->attr.n_rotated / 2;
    const float *factors = n->n_in > 1 ? (const float *)in->in[1].base : NULL;
    if (!(in->frequency = arena_array(&p->memory, float, n_pairs)))
        return no_memory("RoPE frequencies");
    rope_frequencies(in->frequency, &n->attr.rope, n->attr.n_rotated, factors);
    return 0;
}

static int compile_boundary(struct program *p, struct instr *in, const struct node *n)
{
    struct boundary *b = in->boundary = arena_new(&p->memory, struct boundary);
    if (!b)
        return no_memory("boundary buffers");
    b->n_slots = p->options.mesh->size[AXIS_PP] + 1;        /* as many plans as may be in flight */
    b->slot_bytes = ROUND_UP(in->in[0].row_bytes * dim_max(p->graph, &n->in[0]->dim[0]), CACHE_LINE);
    b->next_boundary = p->boundaries;
    p->boundaries = b;
    b->request = arena_array(&p->memory, struct comm_request, b->n_slots);
    b->bytes = arena_alloc(&p->memory, b->n_slots * b->slot_bytes);
    return b->request && b->bytes ? 0 : no_memory("boundary buffers");
}

static void compile_joined(struct instr *in, const struct node *n)
{
    in->joined.n_parts = n->attr.joined.n_parts;
    in->joined.first = n->attr.joined.first;
    memcpy(in->joined.n_merges, n->attr.joined.n_merges, sizeof in->joined.n_merges);
}

/* Where each rank's part of a gathered weight begins, in bytes. */
static void compile_parts(const struct program *p, struct instr *in, const struct node *n)
{
    uint32_t n_ranks = p->options.mesh->size[AXIS_DP];
    size_t panel_bytes = matmul_packed_bytes(in->out[0].type, WEIGHT_PANEL, in->out[0].n_columns);
    for (uint32_t r = 0; r <= n_ranks; r++)
        in->first[r] = panel_bytes * (r < n_ranks ? share_items(n->attr.n_panels, NULL, n_ranks, r).begin : n->attr.n_panels);
}

/* The ranks' parts of what a collective moves: of rows by step, of weights once and for all. */
static int compile_collective(struct program *p, struct instr *in, const struct node *n)
{
    compile_joined(in, n);
    if (!(in->first = arena_array(&p->memory, size_t, p->options.mesh->size[n->attr.axis] + 1)))
        return no_memory("collectives");
    if (n->op == OP_gather_weight)
        compile_parts(p, in, n);
    return 0;
}

static struct instr *instr_array(size_t n)
{
    struct instr *instr = aligned_alloc(CACHE_LINE, (n + 1) * sizeof *instr);
    if (instr)
        memset(instr, 0, (n + 1) * sizeof *instr);
    return instr;
}

static int compile_node(struct program *p, struct instr *in, struct node *n);

/* From the program's store of steps. */
static struct instr *take_steps(struct program *p, uint32_t n)
{
    p->n_steps += n;
    return p->steps + p->n_steps - n;
}

static int compile_steps(struct program *p, struct instr *in, struct node *n)
{
    int err = 0;
    in->n_steps = n->n_steps;
    in->step = take_steps(p, n->n_steps);
    for (uint32_t s = 0; !err && s < n->n_steps; s++)
        err = compile_node(p, &in->step[s], n->step[s]);
    if (!err && n->op == OP_matmul_chain)
        err = matmul_chain_compile(p, in, take_steps(p, n->product), n);
    return err;
}

/* In pairs of panels, as some kernels take them. */
static int cut_panels(struct program *p, struct instr *in, const struct node *n)
{
    for (uint32_t i = 0; i < n->n_out; i++)
        in->n_panels += DIV_UP(in->out[i].n_columns, PANEL_ROWS);
    return cuts_make(&in->cuts, &p->memory, in->n_panels, 2, 2, 0, (uint32_t)pool_n_threads(p->options.pool));
}

static struct instr_rows rows_of(const struct node *n)
{
    bool by_input = n->op == OP_kv_store || n->op == OP_send || n->op == OP_sort_by_expert;
    const struct tensor *t = by_input ? n->in[0] : n->out[0];
    bool split = n->op == OP_send || n->op == OP_receive ? n->attr.split_rows : tensor_rows_are_split(t);
    return (struct instr_rows){ .symbol = t->dim[0].symbol, .split = split };
}

static int compile_node(struct program *p, struct instr *in, struct node *n)
{
    in->op = n->op;
    in->kind = work_kind_of(n);
    in->attr = &n->attr;
    in->n_in = n->n_in;
    in->n_out = n->n_out;
    for (uint32_t i = 0; i < n->n_in; i++)
        in->in[i] = operand_of(p, n->in[i]);
    for (uint32_t i = 0; i < n->n_out; i++)
        in->out[i] = operand_of(p, n->out[i]);
    in->rows = rows_of(n->n_steps ? n->step[n->product] : n);
    if (node_multiplies(n) && cut_panels(p, in, n) < 0)
        return ERR_NO_MEMORY;
    switch (n->op) {
    case OP_matmul:      compile_tree(in, n); return 0;
    case OP_rope_angles: return compile_frequencies(p, in, n);
    case OP_send:        return compile_boundary(p, in, n);
    case OP_all_reduce:
    case OP_combine:     compile_joined(in, n); return 0;
    case OP_reduce_scatter:
    case OP_all_gather:
    case OP_gather_weight: return compile_collective(p, in, n);
    case OP_row_chain:
    case OP_matmul_chain:  return compile_steps(p, in, n);
    default:             return 0;
    }
}

/* A matmul whose weights have no kernel for the mode of its input is a hole in the table, found here and not in a step. */
static int check_kernels(const struct program *p, const struct node *n)
{
    const struct kernels *k = p->options.kernels;
    if (!program_can_run(n->op))
        return error_set(ERR_FAILED, "%s has no function that executes it", op_info[n->op].name);
    for (uint32_t i = 0; i < n->n_steps; i++) {
        int err = check_kernels(p, n->step[i]);
        if (err < 0)
            return err;
    }
    for (uint32_t i = node_first_weight(n); node_multiplies(n) && i < n->n_in; i++)
        if (!(n->in[0]->type == DTYPE_ACT8 ? k->matmul_int8 : k->matmul_f32)[n->in[i]->type])
            return error_set(ERR_FAILED, "instruction set %s has no matmul for %s", k->name, dtype_info[n->in[i]->type].name);
    if (!k->attention[p->graph->cache_type] || !k->kv_store[p->graph->cache_type])
        return error_set(ERR_USAGE, "--kv: a cache of %s is not supported", dtype_info[p->graph->cache_type].name);
    return 0;
}

/* A node is one instruction, with a prologue two. */
static int compile(struct program *p)
{
    uint32_t n_steps = 0, at = 0;
    int err = 0;
    for (struct node *n = p->graph->first; n; n = n->next) {
        p->n_instr += n->product ? 2 : 1;
        n_steps += n->n_steps + n->product;
    }
    if (!(p->instr = instr_array(p->n_instr)) || !(p->steps = instr_array(n_steps)))
        return no_memory("instructions");
    for (struct node *n = p->graph->first; !err && n; n = n->next) {
        at += n->product ? 2 : 1;
        if ((err = check_kernels(p, n)) == 0)
            err = compile_node(p, &p->instr[at - 1], n);
    }
    return err;
}

/* ---- memory ---- */
static size_t reduce_scratch_bytes(const struct program *p)
{
    size_t most = 0;
    for (uint32_t i = 0; i < p->n_instr; i++) {
        const struct instr *in = &p->instr[i];
        size_t n_max = (size_t)p->graph->symbol_max[in->rows.symbol] * in->out[0].n_columns;
        const struct comm *axis = p->options.axis[in->attr->axis];
        if (in->op == OP_all_reduce || in->op == OP_reduce_scatter)
            most = MAX(most, comm_all_reduce_scratch(axis, &in->joined, n_max));
        if (in->op == OP_reduce_scatter)
            most = MAX(most, comm_reduce_scatter_scratch(axis, &in->joined, n_max));
    }
    return ROUND_UP(most + 1, CACHE_LINE);
}

static int take_memory(struct program *p)
{
    size_t n_threads = (size_t)pool_n_threads(p->options.pool), n_tokens = p->graph->symbol_max[SYMBOL_T];
    place_inner_values(p);
    p->scratch_bytes = ROUND_UP(p->scratch_bytes + 1, 4096);
    p->activations = mmap(NULL, p->graph->arena_bytes + CACHE_LINE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p->activations == MAP_FAILED) {
        p->activations = NULL;
        return error_set(ERR_NO_MEMORY, "no memory for %zu MB of activations; a smaller --chunk needs less", p->graph->arena_bytes >> 20);
    }
    p->rows = aligned_alloc(CACHE_LINE, p->scratch_bytes * n_threads);
    p->sequence_of = calloc(n_tokens, sizeof *p->sequence_of);
    p->active = calloc(p->graph->labels[LABEL_EXPERTS].n_elements + 1, sizeof *p->active);
    if ((p->own_input = aligned_alloc(CACHE_LINE, n_threads * sizeof *p->own_input)))
        memset(p->own_input, 0, n_threads * sizeof *p->own_input);
    if (!p->rows || !p->own_input || !p->sequence_of || !p->active)
        return no_memory("a step");
    memset(p->rows, 0, p->scratch_bytes * n_threads);
    return 0;
}

static int open_caches(struct program *p)
{
    int err = 0;
    for (uint32_t i = 0; !err && i < p->graph->n_cache_groups; i++) {
        const struct cache_group *g = &p->graph->cache_group[i];
        err = kv_cache_open(&p->cache[i], g->n_layers, g->n_kv_heads, g->head_dim, p->graph->cache_type, p->options.n_blocks[i]);
    }
    return err;
}

static int open_gather(struct program *p)
{
    size_t largest = 0;
    uint32_t n = p->options.mesh->size[AXIS_DP];
    for (uint32_t i = 0; i < p->n_instr; i++)
        if (p->instr[i].op == OP_gather_weight)
            largest = MAX(largest, p->instr[i].first[n]);
    return largest ? comm_gather_open(&p->gather, p->options.axis[AXIS_DP], largest) : 0;
}

int program_open(struct program **out, struct graph *graph, const struct program_options *options)
{
    struct program *p = aligned_alloc(CACHE_LINE, sizeof *p);
    int err = 0;
    if (!p) {
        graph_close(graph);
        return no_memory("a program");
    }
    *p = (struct program){ .graph = graph, .options = *options };
    cpu_float_mode_set();
    if ((err = open_caches(p)) < 0 ||
        (err = weights_open(&p->weights, graph, options->file, options->pool, options->packed_cache, options->progress,
                            options->progress_user)) < 0 ||
        (err = take_memory(p)) < 0 || (err = attend_open(p)) < 0 || (err = compile(p)) < 0 || (err = moved_open(p)) < 0 ||
        (err = open_gather(p)) < 0 || (err = profile_open(p)) < 0)
        goto done;
    if (!(p->reduce_scratch = aligned_alloc(CACHE_LINE, reduce_scratch_bytes(p)))) {
        err = no_memory("reductions");
        goto done;
    }
    program_serve(p);
    *out = p;
    p = NULL;
done:
    program_close(p);
    return err;
}

void program_serve(struct program *p)
{
    pool_serve(p->options.pool, program_run_thread, p);
}

/* Waits for sends that are still under way: their bytes go away here. */
void program_close(struct program *p)
{
    if (!p)
        return;
    pool_rest(p->options.pool);
    for (struct boundary *b = p->boundaries; b; b = b->next_boundary)
        for (uint32_t s = 0; b->request && s < b->n_slots; s++)
            comm_wait(p->options.stages, &b->request[s]);
    weights_close(p->weights);
    for (uint32_t i = 0; i < GRAPH_MAX_CACHE_GROUPS; i++)
        kv_cache_release(&p->cache[i]);
    if (p->activations)
        munmap(p->activations, p->graph->arena_bytes + CACHE_LINE);
    free(p->instr);
    free(p->steps);
    free(p->own_input);
    free(p->rows);
    free(p->sequence_of);
    attend_release(&p->attend);
    free(p->active);
    moved_release(&p->moved);
    profile_close(p);
    comm_gather_close(p->gather);
    free(p->reduce_scratch);
    arena_close(&p->memory);
    graph_close(p->graph);
    free(p);
}

/* ---- steps ---- */
/* From this many tokens on, rows are split among the ranks of tp: fewer bytes move, in two rounds instead of one.  Below, the
 * second round costs more than the bytes. */
#define SPLIT_TOKENS 32

static void prepare(struct program *p, const struct step *step)
{
    p->step = step;
    p->count[SYMBOL_T] = step->n_tokens;
    p->count[SYMBOL_R] = step->n_rows;
    p->count[SYMBOL_U] = (uint32_t)MIN(step->n_all_tokens, p->graph->symbol_max[SYMBOL_U]);
    if (p->graph->symbol_max[SYMBOL_P]) {       /* every token at each of its experts, of whoever may send some */
        uint32_t n_used = (uint32_t)(p->graph->symbol_max[SYMBOL_P] / p->graph->symbol_max[SYMBOL_U]);
        p->count[SYMBOL_P] = n_used * (mesh_island(p->options.mesh) > 1 ? p->count[SYMBOL_U] : p->count[SYMBOL_T]);
    }
    p->splits_rows = p->options.mesh->sp == SP_ALWAYS || (p->options.mesh->sp == SP_AUTO && step->n_tokens >= SPLIT_TOKENS);
    p->error = 0;
    for (uint32_t s = 0; s < step->n_sequences; s++) {
        const struct step_sequence *q = &step->sequences[s];
        for (uint32_t t = 0; t < q->n_tokens; t++)
            p->sequence_of[q->first_token + t] = s;
    }
    attend_prepare(p);
    unsigned number = atomic_load_explicit(&p->step_number, memory_order_relaxed) + 1;
    work_prepare(&p->items, number, 0);
    for (uint32_t i = 0; i < p->n_instr; i++)
        work_prepare(&p->instr[i].work, number, program_n_chunks(p, &p->instr[i]));
    atomic_store(&p->step_number, number);
}

/* False when the number is no longer `number`. */
static bool run_items(struct program *p, unsigned number, int thread)
{
    for (uint32_t item; work_claim(&p->items, number, &item);) {
        p->item_fn(p->item_user, item, thread);
        work_done(&p->items);
    }
    return work_wait(&p->items, &p->step_number, number, pool_spins(p->options.pool));
}

/* Every thread, the leading one too, goes through the instructions and takes what chunks it finds. */
static void program_run_thread(void *user, int thread)
{
    struct program *p = user;
    unsigned number = atomic_load(&p->step_number);
    cpu_float_mode_set();
    if (!run_items(p, number, thread))
        return;
    for (uint32_t i = 0; i < p->n_instr; i++) {
        struct instr *in = &p->instr[i];
        bool speaks = op_info[in->op].kind == KIND_COMM;
        pool_give_way(p->options.pool, thread);
        for (uint32_t chunk; (thread == 0 || !speaks) && work_claim(&in->work, number, &chunk);) {
            double chunk_s = profile_now(p);
            program_run_chunk(p, in, chunk, thread);
            profile_add_chunk(p, in, thread, chunk_s);
            work_done(&in->work);
            if (thread == 0 && p->n_gathering)
                program_push(p);
        }
        if (thread == 0)
            program_push(p);
        if (!work_wait(&in->work, &p->step_number, number, pool_spins(p->options.pool)))
            return;
    }
}

/* Like a step that has no instruction: those of the step before have nothing to claim under this number. */
void program_run_items(struct program *p, program_item_fn *fn, void *user, uint32_t n)
{
    unsigned number = atomic_load_explicit(&p->step_number, memory_order_relaxed) + 1;
    p->item_fn = fn;
    p->item_user = user;
    work_prepare(&p->items, number, n);
    atomic_store(&p->step_number, number);
    pool_offer(p->options.pool);
    run_items(p, number, 0);
}

static void count_hidden(struct program *p)
{
    uint32_t n = 0;
    for (const struct node *node = p->graph->first; node; node = node->next)
        for (uint32_t i = 0; i < node->n_out; i++) {
            const struct tensor *t = node->out[i];
            if (!t->is_output || strcmp(t->name, "hidden") || n == COUNT_OF(p->counters.hidden_square))
                continue;
            const float *x = (const float *)(p->activations + t->offset);
            size_t n_floats = (size_t)p->count[t->dim[0].symbol] * tensor_columns(t);
            for (size_t j = 0; j < n_floats; j++)
                p->counters.hidden_square[n] += (double)x[j] * x[j];
            n++;
        }
    p->counters.n_hidden = n;
}

int program_step(struct program *p, const struct step *step)
{
    assert(step->n_tokens <= p->graph->symbol_max[SYMBOL_T] && step->n_rows <= p->graph->symbol_max[SYMBOL_R]);
    double start_s = seconds_now();
    prepare(p, step);
    pool_offer(p->options.pool);
    program_run_thread(p, 0);
    count_hidden(p);
    profile_add_step(p, start_s);
    p->counters.step_s += seconds_now() - start_s;
    return p->error < 0 ? p->error : cpu_float_mode_check();
}

void program_copy_block(struct program *p, uint32_t cache_group, uint32_t from, uint32_t to)
{
    kv_cache_copy(&p->cache[cache_group], from, to);
}

const float *program_output(const struct program *p, const char *name, uint32_t *n_columns)
{
    for (const struct node *n = p->graph->last; n; n = n->prev)
        for (uint32_t i = 0; i < n->n_out; i++)
            if (n->out[i]->is_output && !strcmp(n->out[i]->name, name)) {
                *n_columns = (uint32_t)tensor_columns(n->out[i]);
                return (const float *)(p->activations + n->out[i]->offset);
            }
    return NULL;
}

/* ---- counters ---- */
static void each_comm(const struct program *p, void (*visit)(struct comm *, struct program_counters *), struct program_counters *out)
{
    if (p->options.stages)
        visit(p->options.stages, out);
    for (int a = 0; a < N_AXES; a++)
        if (p->options.axis[a])
            visit(p->options.axis[a], out);
}

static void add_comm(struct comm *comm, struct program_counters *out)
{
    const struct comm_counters *c = comm_counters(comm);
    out->wait_s += c->wait_s;
    out->wire_s += c->wire_s;
    out->bytes_sent += c->bytes_sent;
}

static void reset_comm(struct comm *comm, struct program_counters *out)
{
    (void)out;
    comm_counters_reset(comm);
}

void program_counters(const struct program *p, struct program_counters *out)
{
    *out = p->counters;
    profile_sum(p, out->work);
    out->weight_bytes = weights_bytes(p->weights);
    out->weights_mapped = weights_are_mapped(p->weights);
    each_comm(p, add_comm, out);
}

void program_counters_reset(struct program *p)
{
    p->counters = (struct program_counters){ 0 };
    profile_reset(p);
    each_comm(p, reset_comm, NULL);
}
