/* exchange.c: the instructions that talk to other ranks, but for those of experts (dispatch.c). */
#include "run/instr.h"

#include "base/base.h"

#include <string.h>

int program_all_reduce(struct program *p, struct instr *in)
{
    size_t n = (size_t)program_max_rows(p, in) * in->out[0].n_columns;
    return comm_all_reduce(p->options.axis[in->attr->axis], (float *)in->out[0].base, (const float *)in->in[0].base, n, n, &in->joined,
                           p->reduce_scratch);
}

/* ---- rows that are split along tp ---- */
/* Where each rank's share of n_rows rows begins, in items of which a row has n_items. */
static void find_shares(const struct program *p, struct instr *in, uint32_t n_rows, size_t n_items)
{
    uint32_t n = p->options.mesh->size[AXIS_TP];
    for (uint32_t r = 0; r <= n; r++)
        in->first[r] = n_items * (r < n ? share_items(n_rows, NULL, n, r).begin : n_rows);
}

int program_reduce_scatter(struct program *p, struct instr *in)
{
    struct comm *tp = p->options.axis[in->attr->axis];
    uint32_t n_rows = program_max_rows(p, in), columns = in->out[0].n_columns;
    if (!p->splits_rows)
        return program_all_reduce(p, in);
    find_shares(p, in, n_rows, columns);
    return comm_reduce_scatter(tp, (float *)in->out[0].base + in->first[comm_rank(tp)], (const float *)in->in[0].base,
                               (size_t)n_rows * columns, in->first, &in->joined, p->reduce_scratch);
}

int program_all_gather(struct program *p, struct instr *in)
{
    struct comm *tp = p->options.axis[in->attr->axis];
    struct range mine = share_items(program_max_rows(p, in), NULL, (uint32_t)comm_size(tp), (uint32_t)comm_rank(tp));
    size_t row_bytes = in->out[0].row_bytes;
    if (!p->splits_rows)
        mine = (struct range){ 0, program_max_rows(p, in) };
    memcpy(in->out[0].base + mine.begin * row_bytes, in->in[0].base + mine.begin * row_bytes, (mine.end - mine.begin) * row_bytes);
    if (!p->splits_rows)
        return 0;
    find_shares(p, in, program_max_rows(p, in), row_bytes);
    return comm_all_gather_v(tp, in->out[0].base, in->first);
}

/* ---- weights that are stored in parts ---- */
int program_gather_weight(struct program *p, struct instr *in)
{
    int at = comm_rank(p->options.axis[AXIS_DP]);
    size_t n_bytes = in->first[at + 1] - in->first[at];
    if (n_bytes)                        /* more groups than panels: a part may be nothing, and have no address */
        memcpy(in->out[0].base + in->first[at], in->in[0].base, n_bytes);
    int err = comm_gather_start(p->gather, in->out[0].base, in->first);
    p->n_gathering++;
    return err < 0 || in->attr->early ? err : program_gather_wait(p, in);
}

int program_gather_wait(struct program *p, struct instr *in)
{
    (void)in;
    p->n_gathering--;
    return comm_gather_wait(p->gather);
}

/* ---- between stages ---- */
static int stage_rank(const struct program *p, const struct instr *in)
{
    return (int)mesh_peer(p->options.mesh, p->options.rank, AXIS_PP, in->attr->peer);
}

int program_send(struct program *p, struct instr *in)
{
    struct boundary *b = in->boundary;
    struct range rows = program_rows(p, in);
    uint32_t slot = b->next++ % b->n_slots;
    size_t n_bytes = (rows.end - rows.begin) * in->in[0].row_bytes;
    char *bytes = b->bytes + slot * b->slot_bytes;
    int err = comm_wait(p->options.stages, &b->request[slot]);
    if (err < 0)
        return err;
    memcpy(bytes, in->in[0].base + rows.begin * in->in[0].row_bytes, n_bytes);
    return comm_send_start(p->options.stages, &b->request[slot], bytes, n_bytes, stage_rank(p, in), (int)in->attr->channel);
}

int program_receive(struct program *p, struct instr *in)
{
    struct range rows = program_rows(p, in);
    size_t row_bytes = in->out[0].row_bytes;
    return comm_receive(p->options.stages, in->out[0].base + rows.begin * row_bytes, (rows.end - rows.begin) * row_bytes, stage_rank(p, in),
                        (int)in->attr->channel);
}

void program_push(struct program *p)
{
    for (struct boundary *b = p->boundaries; b; b = b->next_boundary)
        for (uint32_t slot = 0; slot < b->n_slots; slot++)
            if (p->error == 0 && b->request[slot].handle)
                p->error = MIN(comm_test(p->options.stages, &b->request[slot]), 0);
    if (p->error == 0 && p->n_gathering)
        p->error = MIN(comm_gather_test(p->gather), 0);
}
