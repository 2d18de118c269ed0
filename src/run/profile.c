#include "run/profile.h"

#include "base/base.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

const char *const work_name[N_WORK_KINDS] = { "qkv", "attn_out", "gate_up", "down", "head", "router", "attention", "rows", "comm" };

/* Of one thread. */
struct profile {
    _Alignas(CACHE_LINE) struct work_counters work[N_WORK_KINDS];
};

int profile_open(struct program *p)
{
    if (!p->options.profile)
        return 0;
    size_t n_bytes = (size_t)pool_n_threads(p->options.pool) * sizeof *p->profile;
    if (!(p->profile = aligned_alloc(CACHE_LINE, n_bytes)))
        return error_set(ERR_NO_MEMORY, "no memory for a profile");
    memset(p->profile, 0, n_bytes);
    return 0;
}

void profile_close(struct program *p)
{
    free(p->profile);
}

/* ---- kinds ---- */
static enum work_kind matmul_kind(const struct node *n)
{
    static const struct { const char *part; enum work_kind kind; } names[] = {
        { "attn_output", WORK_ATTN_OUT }, { "attn_", WORK_QKV },  { "gate_inp", WORK_ROUTER }, { "ffn_gate", WORK_GATE_UP },
        { "ffn_up", WORK_GATE_UP },       { "ffn_down", WORK_DOWN },
    };
    const struct tensor *w = n->in[node_first_weight(n)];
    const char *name = w->weight ? w->weight->name : w->maker->in[0]->weight->name;     /* the second is gathered */
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (strstr(name, names[i].part))
            return names[i].kind;
    return WORK_HEAD;
}

enum work_kind work_kind_of(const struct node *n)
{
    for (uint32_t s = 0; s < n->n_steps; s++)
        if (node_multiplies(n->step[s]))
            return matmul_kind(n->step[s]);
    if (node_multiplies(n))
        return matmul_kind(n);
    return n->op == OP_attention ? WORK_ATTENTION : op_info[n->op].kind == KIND_COMM ? WORK_COMM : WORK_ROWS;
}

/* ---- times ---- */
void profile_add_chunk(struct program *p, struct instr *in, int thread, double begin_s)
{
    if (!p->profile)
        return;
    double end_s = seconds_now();
    uint64_t now = (uint64_t)(end_s * 1e9), last = atomic_load_explicit(&in->end_ns, memory_order_relaxed);
    p->profile[thread].work[in->kind].busy_s += end_s - begin_s;
    while (last < now && !atomic_compare_exchange_weak_explicit(&in->end_ns, &last, now, memory_order_relaxed, memory_order_relaxed))
        ;
}

/* From the end of the region before to the end of its own last chunk: thread 0 may have been away for both. */
static double region_s(struct instr *in, double *last_s)
{
    double end_s = 1e-9 * (double)atomic_load_explicit(&in->end_ns, memory_order_relaxed), took_s = MAX(end_s - *last_s, 0);
    *last_s += took_s;
    return took_s;
}

/* ---- what was read and computed ---- */
static void count_matmul(struct work_counters *c, const struct instr *in, uint64_t n_rows, uint64_t n_matrices)
{
    const struct operand *x = &in->in[0];
    for (uint32_t i = 0; i < in->n_out; i++) {
        const struct operand *w = &in->in[in->n_in - in->n_out + i];
        uint64_t ops = 2 * n_rows * x->n_columns * in->out[i].n_columns;
        c->weight_bytes += n_matrices * matmul_packed_bytes(w->type, in->out[i].n_columns, x->n_columns);
        *(x->type == DTYPE_ACT8 ? &c->int_ops : &c->float_ops) += ops;
    }
}

/* Keys that a sequence's queries see, all together and one by one. */
static void count_attention(const struct program *p, struct work_counters *c, const struct instr *in, const struct step_sequence *q)
{
    const struct cache_group *group = &p->graph->cache_group[in->attr->cache_group];
    uint64_t head_dim = in->attr->head_dim, end = q->position + q->n_tokens, n_seen = 0;
    uint64_t begin = group->window && q->position + 1 > group->window ? q->position + 1 - group->window : 0;
    for (uint64_t position = q->position; position < end; position++)
        n_seen += group->window ? MIN(position + 1, group->window) : position + 1;
    c->kv_bytes += (end - begin) * group->n_kv_heads * 2 * dtype_bytes(p->graph->cache_type, head_dim);
    c->float_ops += 4 * n_seen * in->out[0].n_columns;
}

static void count_instr(struct program *p, struct work_counters *c, const struct instr *in, const struct instr *sorted)
{
    if (in->op == OP_matmul)
        count_matmul(c, in, program_max_rows(p, in), 1);
    else if (in->op == OP_expert_matmul)
        count_matmul(c, in, sorted->n_pairs, sorted->n_active);
    else if (in->op == OP_attention)
        for (uint32_t i = 0; i < p->step->n_sequences; i++)
            count_attention(p, c, in, &p->step->sequences[i]);
    for (uint32_t s = 0; s < in->n_steps; s++)          /* a product that was joined with rows */
        count_instr(p, c, &in->step[s], sorted);
}

void profile_add_step(struct program *p, double begin_s)
{
    const struct instr *sorted = NULL;
    if (!p->profile)
        return;
    for (uint32_t i = 0; i < p->n_instr; i++) {
        struct instr *in = &p->instr[i];
        struct work_counters *c = &p->profile[0].work[in->kind];
        if (in->op == OP_sort_by_expert)
            sorted = in;
        if (!atomic_load_explicit(&in->work.n_chunks, memory_order_relaxed))
            continue;
        c->n_calls++;
        c->wall_s += region_s(in, &begin_s);
        count_instr(p, c, in, sorted);
    }
}

/* ---- reading ---- */
void work_counters_add(struct work_counters *to, const struct work_counters *from)
{
    to->n_calls += from->n_calls;
    to->wall_s += from->wall_s;
    to->busy_s += from->busy_s;
    to->weight_bytes += from->weight_bytes;
    to->kv_bytes += from->kv_bytes;
    to->int_ops += from->int_ops;
    to->float_ops += from->float_ops;
}

void profile_sum(const struct program *p, struct work_counters *out)
{
    memset(out, 0, N_WORK_KINDS * sizeof *out);
    for (int t = 0; p->profile && t < pool_n_threads(p->options.pool); t++)
        for (int k = 0; k < N_WORK_KINDS; k++)
            work_counters_add(&out[k], &p->profile[t].work[k]);
}

void profile_reset(struct program *p)
{
    if (p->profile)
        memset(p->profile, 0, (size_t)pool_n_threads(p->options.pool) * sizeof *p->profile);
}
