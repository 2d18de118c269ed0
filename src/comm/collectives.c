/* collectives.c: the collectives that move bytes, and the small exact ones, each a few exchanges. */
#include "comm/comm.h"

#include "base/base.h"
#include "base/error.h"
#include "comm/exchange.h"
#include "comm/transport.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int comm_all_gather(struct comm *comm, void *to, const void *from, size_t n_bytes)
{
    struct exchange exchange = exchange_begin(comm);
    unsigned char *place = to;
    memmove(place + (size_t)comm->rank * n_bytes, from, n_bytes);
    for (int step = 1; step < comm->size; step++) {
        exchange_send(&exchange, comm, from, n_bytes, peer_to(comm, step));
        exchange_receive(comm, place + (size_t)peer_from(comm, step) * n_bytes, n_bytes, peer_from(comm, step));
    }
    return exchange_finish(&exchange, comm, false);
}

static size_t piece_length(const struct comm *comm, const size_t *first, int rank, size_t begin)
{
    size_t n = first[rank + 1] - first[rank];
    return begin < n ? MIN(n - begin, comm->world->piece_bytes) : 0;
}

/* The bytes [begin, begin + piece_bytes) of every rank's part. */
static int gather_piece(struct comm *comm, unsigned char *bytes, const size_t *first, size_t begin)
{
    struct exchange exchange = exchange_begin(comm);
    for (int step = 1; step < comm->size; step++) {
        int to = peer_to(comm, step), from = peer_from(comm, step);
        size_t n_mine = piece_length(comm, first, comm->rank, begin), n_theirs = piece_length(comm, first, from, begin);
        if (n_mine > 0)
            exchange_send(&exchange, comm, bytes + first[comm->rank] + begin, n_mine, to);
        if (n_theirs > 0)
            exchange_receive(comm, bytes + first[from] + begin, n_theirs, from);
    }
    return exchange_finish(&exchange, comm, false);
}

int comm_all_gather_v(struct comm *comm, void *bytes, const size_t *first)
{
    size_t longest = 0;
    int err = 0;
    for (int r = 0; r < comm->size; r++) {
        assert(first[r] <= first[r + 1]);
        longest = MAX(longest, first[r + 1] - first[r]);
    }
    for (size_t begin = 0; begin < longest && comm->size > 1 && err == 0; begin += comm->world->piece_bytes)
        err = gather_piece(comm, bytes, first, begin);
    return err;
}

int comm_all_to_all(struct comm *comm, const void *const *send, const size_t *n_send, void *const *receive, const size_t *n_room,
                    size_t *n_received)
{
    struct exchange exchange = exchange_begin(comm);
    for (int step = 1; step < comm->size; step++) {
        int to = peer_to(comm, step), from = peer_from(comm, step);
        exchange_send(&exchange, comm, send[to], n_send[to], to);
        exchange_receive_any_size(comm, receive[from], n_room[from], &n_received[from], from);
    }
    return exchange_finish(&exchange, comm, false);
}

/* The order of IEEE 754's maximum: -0 below +0, NaN above all. */
static float maximum(float a, float b)
{
    if (isnan(a) || isnan(b))
        return NAN;
    if (a == b)
        return signbit(a) ? b : a;
    return a > b ? a : b;
}

int comm_all_max(struct comm *comm, float *x, size_t n)
{
    for (size_t begin = 0; begin < n; begin += COMM_MAX_CHUNK) {
        size_t n_chunk = MIN(n - begin, (size_t)COMM_MAX_CHUNK);
        int err = comm_all_gather(comm, comm->gathered, x + begin, n_chunk * sizeof(float));
        if (err < 0)
            return err;
        for (int r = 0; r < comm->size; r++)
            for (size_t i = 0; i < n_chunk; i++)
                x[begin + i] = maximum(x[begin + i], comm->gathered[(size_t)r * n_chunk + i]);
    }
    return 0;
}

/* A binomial tree: seen from the root, rank v gets the bytes from v without its lowest bit and passes them on to v + bit for
 * each bit below that one. */
int comm_broadcast(struct comm *comm, void *bytes, size_t n_bytes, int root)
{
    int v = (comm->rank - root + comm->size) % comm->size, bit = 1;
    struct exchange exchange;
    int err;

    while (bit < comm->size && !(v & bit))
        bit *= 2;
    if (v > 0) {
        exchange = exchange_begin(comm);
        exchange_receive(comm, bytes, n_bytes, (v - bit + root) % comm->size);
        if ((err = exchange_finish(&exchange, comm, false)) < 0)
            return err;
    }
    exchange = exchange_begin(comm);
    while ((bit /= 2) > 0)
        if (v + bit < comm->size)
            exchange_send(&exchange, comm, bytes, n_bytes, (v + bit + root) % comm->size);
    return exchange_finish(&exchange, comm, false);
}

/* In round k everybody hears from the rank 2^k below: after the last one, of all. */
int comm_barrier(struct comm *comm)
{
    for (int step = 1; step < comm->size; step *= 2) {
        struct exchange exchange = exchange_begin(comm);
        exchange_send(&exchange, comm, NULL, 0, peer_to(comm, step));
        exchange_receive(comm, NULL, 0, peer_from(comm, step));
        int err = exchange_finish(&exchange, comm, true);
        if (err < 0)
            return err;
    }
    return 0;
}

struct report {
    int32_t code;
    char text[252];
};

int comm_agree(struct comm *comm, int err)
{
    struct report mine = { .code = err };
    if (comm->size == 1)
        return err;
    if (err < 0)
        snprintf(mine.text, sizeof mine.text, "%s", error_text());
    struct report *all = calloc((size_t)comm->size, sizeof *all);
    if (!all)
        comm_abort(comm, 1);            /* others can not be told otherwise */
    err = comm_all_gather(comm, all, &mine, sizeof mine);
    for (int r = 0; err == 0 && r < comm->size; r++)
        if (all[r].code < 0)
            err = error_set(all[r].code, "rank %d: %s", r, all[r].text);
    free(all);
    return err;
}
