/* exchange.c: the instructions that talk to other ranks. */
#include "run/instr.h"

#include "base/base.h"

#include <string.h>

static size_t value_floats(const struct program *p, const struct instr *in, const struct operand *o)
{
    return (size_t)p->count[in->row_symbol] * o->n_columns;
}

int program_all_reduce(struct program *p, struct instr *in)
{
    size_t n = value_floats(p, in, &in->out[0]);
    return comm_all_reduce(p->options.axis[in->attr->axis], (float *)in->out[0].base, (const float *)in->in[0].base, n, n, &in->joined,
                           p->reduce_scratch);
}

static int stage_rank(const struct program *p, const struct instr *in)
{
    return (int)mesh_peer(p->options.mesh, p->options.rank, AXIS_PP, in->attr->peer);
}

int program_send(struct program *p, struct instr *in)
{
    struct boundary *b = in->boundary;
    uint32_t slot = b->next++ % b->n_slots;
    size_t n_bytes = p->count[in->row_symbol] * in->in[0].row_bytes;
    char *bytes = b->bytes + slot * b->slot_bytes;
    int err = comm_wait(p->options.stages, &b->request[slot]);
    if (err < 0)
        return err;
    memcpy(bytes, in->in[0].base, n_bytes);
    return comm_send_start(p->options.stages, &b->request[slot], bytes, n_bytes, stage_rank(p, in), (int)in->attr->channel);
}

int program_receive(struct program *p, struct instr *in)
{
    size_t n_bytes = p->count[in->row_symbol] * in->out[0].row_bytes;
    return comm_receive(p->options.stages, in->out[0].base, n_bytes, stage_rank(p, in), (int)in->attr->channel);
}

void program_push_sends(struct program *p)
{
    for (struct boundary *b = p->boundaries; b; b = b->next_boundary)
        for (uint32_t slot = 0; slot < b->n_slots; slot++)
            if (p->error == 0 && b->request[slot].handle)
                p->error = MIN(comm_test(p->options.stages, &b->request[slot]), 0);
}
