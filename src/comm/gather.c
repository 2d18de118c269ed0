/* gather.c: all-gathers that go on while the caller computes.
 *
 * A gather posts all its messages when it is started, so that whatever the transport is asked next moves them.  They all have
 * one tag: two ranks' messages arrive in the order in which they were sent, and gathers are started in one order by all. */
#include "comm/comm.h"

#include "base/base.h"
#include "base/error.h"
#include "base/threads.h"
#include "comm/exchange.h"
#include "comm/transport.h"
#include "comm/wait.h"

#include <stdlib.h>

enum {
    /* A part's first message is short enough to be here as soon as its sender has started: until then a wait is for the
     * sender, from then on for the wire. */
    FIRST_BYTES = 1024,
};

/* One gather on its way.  n_open of its messages are not done: those whose requests have a handle. */
struct flight {
    struct comm_arrival *arrivals;
    struct comm_request *sends;
    size_t n_arrivals, n_sends, n_open;
    bool seen;                          /* the first of the arrivals, if there is any, is here */
};

struct comm_gather {
    struct comm *comm;
    struct flight flights[COMM_GATHERS];        /* gather number i is at i mod COMM_GATHERS */
    size_t n_started, n_waited;
    size_t max_arrivals, max_sends;             /* of a flight */
};

int comm_gather_open(struct comm_gather **out, struct comm *comm, size_t n_max_bytes)
{
    size_t n_peers = (size_t)comm->size - 1, n_pieces = n_max_bytes / comm->world->piece_bytes;
    struct comm_gather *gather = calloc(1, sizeof *gather);
    int err = 0;

    if (!gather)
        return error_set(ERR_NO_MEMORY, "no memory for a gather");
    gather->comm = comm;
    gather->max_arrivals = 2 * n_peers + n_pieces;      /* of every part the first message and a shorter last piece */
    gather->max_sends = (2 + n_pieces) * n_peers;
    for (struct flight *f = gather->flights; f < gather->flights + COMM_GATHERS; f++) {
        f->arrivals = calloc(gather->max_arrivals + 1, sizeof *f->arrivals);
        f->sends = calloc(gather->max_sends + 1, sizeof *f->sends);
        if (!f->arrivals || !f->sends)
            err = error_set(ERR_NO_MEMORY, "no memory for the messages of a gather");
    }
    if (err < 0)
        comm_gather_close(gather);
    else
        *out = gather;
    return err;
}

void comm_gather_close(struct comm_gather *gather)
{
    if (!gather)
        return;
    for (struct flight *f = gather->flights; f < gather->flights + COMM_GATHERS; f++) {
        free(f->arrivals);
        free(f->sends);
    }
    free(gather);
}

/* The length of a part's message that begins at `begin`. */
static size_t message_length(const struct comm *comm, size_t part_bytes, size_t begin)
{
    return MIN(part_bytes - begin, begin == 0 ? (size_t)FIRST_BYTES : comm->world->piece_bytes);
}

static int start_receives(struct comm_gather *gather, struct flight *f, unsigned char *part, size_t part_bytes, int from)
{
    size_t n_bytes;
    for (size_t begin = 0; begin < part_bytes; begin += n_bytes) {
        struct comm_arrival *a = &f->arrivals[f->n_arrivals];
        n_bytes = message_length(gather->comm, part_bytes, begin);
        assert(f->n_arrivals < gather->max_arrivals);
        *a = (struct comm_arrival){ .bytes = part + begin, .n_bytes = n_bytes, .from = from };
        int err = gather->comm->transport->receive(gather->comm, &a->request, a->bytes, n_bytes, from, TAG_GATHER);
        if (err < 0)
            return err;
        f->n_arrivals++;
    }
    return 0;
}

static int start_sends(struct comm_gather *gather, struct flight *f, const unsigned char *part, size_t part_bytes, int to)
{
    size_t n_bytes;
    for (size_t begin = 0; begin < part_bytes; begin += n_bytes) {
        n_bytes = message_length(gather->comm, part_bytes, begin);
        assert(f->n_sends < gather->max_sends);
        int err = wait_send(gather->comm, &f->sends[f->n_sends], part + begin, n_bytes, to, TAG_GATHER);
        if (err < 0)
            return err;
        f->n_sends++;
    }
    return 0;
}

/* Receives first: a message that finds its receive needs no copy. */
static int start_flight(struct comm_gather *gather, struct flight *f, unsigned char *bytes, const size_t *first)
{
    const struct comm *comm = gather->comm;
    int err = 0;
    for (int step = 1; step < comm->size && err == 0; step++) {
        int from = peer_from(comm, step);
        assert(first[from] <= first[from + 1]);
        err = start_receives(gather, f, bytes + first[from], first[from + 1] - first[from], from);
    }
    for (int step = 1; step < comm->size && err == 0; step++)
        err = start_sends(gather, f, bytes + first[comm->rank], first[comm->rank + 1] - first[comm->rank], peer_to(comm, step));
    f->n_open = f->n_arrivals + f->n_sends;
    f->seen = f->n_arrivals == 0;
    return err;
}

int comm_gather_start(struct comm_gather *gather, void *bytes, const size_t *first)
{
    struct flight *f = &gather->flights[gather->n_started % COMM_GATHERS];
    double start = seconds_now();
    assert(gather->n_started < gather->n_waited + COMM_GATHERS && "the oldest gather is waited for first");
    gather->n_started++;
    f->n_arrivals = f->n_sends = 0;
    int err = start_flight(gather, f, bytes, first);
    wait_count_wire(gather->comm, start, gather->comm->counters.wait_s);
    return err;
}

/* 1 when all its messages are done. */
static int test_flight(struct comm *comm, struct flight *f)
{
    size_t n_bytes;
    int done, err;
    for (struct comm_arrival *a = f->arrivals; a < f->arrivals + f->n_arrivals; a++) {
        if (!a->request.handle || (done = comm->transport->test(comm, &a->request, &n_bytes)) == 0)
            continue;
        if ((err = done) < 0 || (err = exchange_check_size(comm, a, n_bytes)) < 0)
            return err;
        f->seen = true;
        f->n_open--;
    }
    for (struct comm_request *s = f->sends; s < f->sends + f->n_sends; s++) {
        if (!s->handle || (done = comm->transport->test(comm, s, &n_bytes)) == 0)
            continue;
        if (done < 0)
            return done;
        f->n_open--;
    }
    return f->n_open == 0;
}

int comm_gather_test(struct comm_gather *gather)
{
    double start = seconds_now();
    if (gather->n_waited == gather->n_started)
        return 1;
    int done = test_flight(gather->comm, &gather->flights[gather->n_waited % COMM_GATHERS]);
    wait_count_wire(gather->comm, start, gather->comm->counters.wait_s);
    return done;
}

int comm_gather_wait(struct comm_gather *gather)
{
    struct comm *comm = gather->comm;
    struct flight *f = &gather->flights[gather->n_waited % COMM_GATHERS];
    double start = seconds_now(), wait_s_before = comm->counters.wait_s;
    int done;

    assert(gather->n_waited < gather->n_started && "a gather that is waited for has been started");
    while ((done = test_flight(comm, f)) == 0) {
        double waited_s = seconds_now() - start;
        if (!f->seen)
            comm->counters.wait_s = wait_s_before + waited_s;
        wait_pause(comm, waited_s, false);
    }
    wait_count_wire(comm, start, wait_s_before);
    gather->n_waited++;
    return MIN(done, 0);
}
