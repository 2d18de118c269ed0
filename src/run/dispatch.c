/* dispatch.c: tokens on their way to experts on other ranks of the island, and the experts' sums on their way home.
 *
 *   book   counts [ranks] of rows that went to each rank, counts [ranks] of rows that came from each, then for each rank the
 *          rows that went to it, in ascending order, at a distance of the step's T
 *   out    rows in the order of the ranks that they came from; our own, when an expert of theirs is here, in our place
 *
 * A message is a run of records: a row of x, its ids, its weights; its length tells the count.  Back go, part by part, sums for
 * every record in order. */
#include "run/instr.h"

#include "base/base.h"
#include "base/error.h"
#include "comm/tree.h"

#include <stdlib.h>
#include <string.h>

struct book {
    int32_t *n_sent, *n_came, *sent;
};

static struct book book_at(char *base, uint32_t n_ranks)
{
    int32_t *book = (int32_t *)(void *)base;
    return (struct book){ book, book + n_ranks, book + 2 * n_ranks };
}

/* The three operands that travel: x, ids, weights. */
static size_t record_bytes(const struct operand *o)
{
    size_t n = 0;
    for (uint32_t i = 0; i < 3; i++)
        n += o[i].row_bytes;
    return n;
}

static char *record_put(char *to, const struct operand *from, uint32_t row)
{
    for (uint32_t i = 0; i < 3; i++) {
        memcpy(to, from[i].base + row * from[i].row_bytes, from[i].row_bytes);
        to += from[i].row_bytes;
    }
    return to;
}

static const char *record_take(const struct operand *to, uint32_t row, const char *from)
{
    for (uint32_t i = 0; i < 3; i++) {
        memcpy(to[i].base + row * to[i].row_bytes, from, to[i].row_bytes);
        from += to[i].row_bytes;
    }
    return from;
}

static bool wants(const struct range *experts, const int32_t *ids, uint32_t k)
{
    for (uint32_t i = 0; i < k; i++)
        if ((uint32_t)ids[i] >= experts->begin && (uint32_t)ids[i] < experts->end)
            return true;
    return false;
}

static void fill_messages(struct program *p, struct instr *in, const struct book *book)
{
    struct moved *m = &p->moved;
    uint32_t n_rows = p->count[SYMBOL_T];
    for (uint32_t r = 0; r < in->attr->n_ranks; r++) {
        char *at = m->to_send + r * m->room;
        m->send[r] = at;
        book->n_sent[r] = 0;
        for (uint32_t t = 0; t < n_rows; t++)
            if (wants(&in->attr->experts_of[r], operand_row(&in->in[1], t, 0), in->in[1].n_columns)) {
                at = record_put(at, in->in, t);
                book->sent[r * n_rows + (uint32_t)book->n_sent[r]++] = (int32_t)t;
            }
        m->n_send[r] = (size_t)(at - (m->to_send + r * m->room));
    }
}

static int exchange(struct program *p, const struct instr *in)
{
    struct comm *island = p->options.axis[in->attr->axis];
    struct moved *m = &p->moved;
    int own = comm_rank(island);
    for (uint32_t r = 0; r < in->attr->n_ranks; r++) {
        m->receive[r] = m->to_receive + r * m->room;
        m->n_room[r] = m->room;
    }
    m->receive[own] = m->to_send + (size_t)own * m->room;
    m->n_received[own] = m->n_send[own];
    return comm_all_to_all(island, m->send, m->n_send, m->receive, m->n_room, m->n_received);
}

int program_dispatch(struct program *p, struct instr *in)
{
    struct book book = book_at(in->out[3].base, in->attr->n_ranks);
    size_t n_bytes = record_bytes(in->in);
    fill_messages(p, in, &book);
    int err = exchange(p, in);
    p->n_came = 0;
    for (uint32_t r = 0; !err && r < in->attr->n_ranks; r++) {
        const char *at = p->moved.receive[r];
        book.n_came[r] = (int32_t)(p->moved.n_received[r] / n_bytes);
        if (p->moved.n_received[r] % n_bytes || (uint32_t)book.n_came[r] > p->count[SYMBOL_U] - p->n_came)
            return error_set(ERR_PEER, "%zu bytes came for experts, which are no rows of %zu", p->moved.n_received[r], n_bytes);
        for (int32_t i = 0; i < book.n_came[r]; i++)
            at = record_take(in->out, p->n_came++, at);
    }
    return err;
}

/* [parts][all that came] -> for rank r [parts][those that came from it] */
static void fill_sums(struct program *p, const struct instr *in, const struct book *book)
{
    struct moved *m = &p->moved;
    int own = comm_rank(p->options.axis[in->attr->axis]);
    uint32_t n_parts = in->joined.first[own + 1] - in->joined.first[own], before = 0;
    size_t row_bytes = in->in[0].row_bytes;
    for (uint32_t r = 0; r < in->attr->n_ranks; r++) {
        size_t n_bytes = (size_t)book->n_came[r] * row_bytes;
        char *at = m->to_send + r * m->room;
        m->send[r] = at;
        m->n_send[r] = n_parts * n_bytes;
        for (uint32_t part = 0; part < n_parts; part++)
            memcpy(at + part * n_bytes, in->in[0].base + ((size_t)part * p->n_came + before) * row_bytes, n_bytes);
        before += (uint32_t)book->n_came[r];
    }
}

/* Joins, for each row, what the ranks that have an expert of it made of it. */
static void join_sums(struct program *p, const struct instr *in, const struct book *book)
{
    const struct node_attr *a = in->attr;
    uint32_t n_rows = p->count[SYMBOL_T];
    size_t row_bytes = in->in[0].row_bytes, part_stride = (size_t)n_rows * in->out[0].n_columns;
    uint32_t next[MAX_GROUPS + 1] = { 0 };
    const float *part[MAX_GROUPS];
    float *out[MAX_GROUPS];
    for (uint32_t t = 0; t < n_rows; t++) {
        for (uint32_t r = 0; r < a->n_ranks; r++) {
            bool came = next[r] < (uint32_t)book->n_sent[r] && book->sent[r * n_rows + next[r]] == (int32_t)t;
            for (uint32_t i = in->joined.first[r]; i < in->joined.first[r + 1]; i++) {
                size_t row = (size_t)(i - in->joined.first[r]) * (uint32_t)book->n_sent[r] + next[r];
                part[i] = came ? (const float *)(const void *)((const char *)p->moved.receive[r] + row * row_bytes) : NULL;
            }
            next[r] += came;
        }
        for (uint32_t i = 0; i < a->joined.n_roots; i++)
            out[i] = (float *)(void *)in->out[0].base + i * part_stride + (size_t)t * in->out[0].n_columns;
        if (a->joined.n_roots)
            tree_reduce_f32(out, a->joined.n_roots, part, in->joined.n_merges, in->joined.n_parts, in->out[0].n_columns);
    }
}

int program_combine(struct program *p, struct instr *in)
{
    struct book book = book_at(in->in[1].base, in->attr->n_ranks);
    fill_sums(p, in, &book);
    int err = exchange(p, in);
    for (uint32_t r = 0; !err && r < in->attr->n_ranks; r++) {
        size_t n_parts = in->joined.first[r + 1] - in->joined.first[r], wanted = n_parts * (uint32_t)book.n_sent[r] * in->in[0].row_bytes;
        if (p->moved.n_received[r] != wanted)
            return error_set(ERR_PEER, "%zu bytes of experts' sums came where %zu were due", p->moved.n_received[r], wanted);
    }
    if (!err)
        join_sums(p, in, &book);
    return err;
}

int moved_open(struct program *p)
{
    struct moved *m = &p->moved;
    size_t n_ranks = mesh_island(p->options.mesh), room = 0;
    for (uint32_t i = 0; i < p->n_instr; i++) {
        const struct instr *in = &p->instr[i];
        size_t one = in->op == OP_dispatch ? record_bytes(in->in)
                   : in->op == OP_combine ? (in->joined.n_parts + 1) * in->in[0].row_bytes : 0;
        room = MAX(room, one * p->graph->symbol_max[SYMBOL_T]);
    }
    if (!room)
        return 0;
    m->room = ROUND_UP(room, CACHE_LINE);
    m->to_send = aligned_alloc(CACHE_LINE, n_ranks * m->room);
    m->to_receive = aligned_alloc(CACHE_LINE, n_ranks * m->room);
    m->send = calloc(n_ranks, sizeof *m->send);
    m->receive = calloc(n_ranks, sizeof *m->receive);
    m->n_send = calloc(n_ranks, sizeof *m->n_send);
    m->n_room = calloc(n_ranks, sizeof *m->n_room);
    m->n_received = calloc(n_ranks, sizeof *m->n_received);
    return m->to_send && m->to_receive && m->send && m->receive && m->n_send && m->n_room && m->n_received
               ? 0 : error_set(ERR_NO_MEMORY, "no memory for tokens on their way to experts");
}

void moved_release(struct moved *m)
{
    free(m->to_send);
    free(m->to_receive);
    free(m->send);
    free(m->receive);
    free(m->n_send);
    free(m->n_room);
    free(m->n_received);
}
