#include "comm/exchange.h"

#include "base/base.h"
#include "base/error.h"
#include "base/threads.h"
#include "comm/wait.h"

struct exchange exchange_begin(struct comm *comm)
{
    comm->n_sends = comm->n_arrivals = 0;
    return (struct exchange){ .start = seconds_now(), .wait_s_before = comm->counters.wait_s };
}

void exchange_send(struct exchange *exchange, struct comm *comm, const void *bytes, size_t n_bytes, int to)
{
    assert(comm->n_sends < COMM_TREE_MAX_PARTS * comm->size);
    if (exchange->err == 0)
        exchange->err = wait_send(comm, &comm->sends[comm->n_sends++], bytes, n_bytes, to, TAG_COLLECTIVE);
}

void exchange_receive(struct comm *comm, void *bytes, size_t n_bytes, int from)
{
    assert(comm->n_arrivals < COMM_TREE_MAX_PARTS + comm->size);
    comm->arrivals[comm->n_arrivals++] = (struct comm_arrival){ .bytes = bytes, .n_bytes = n_bytes, .from = from };
}

void exchange_receive_any_size(struct comm *comm, void *bytes, size_t n_room, size_t *n_received, int from)
{
    exchange_receive(comm, bytes, n_room, from);
    comm->arrivals[comm->n_arrivals - 1].n_received = n_received;
}

int exchange_check_size(const struct comm *comm, const struct comm_arrival *a, size_t n_bytes)
{
    if (n_bytes == a->n_bytes)
        return 0;
    if (n_bytes == SIZE_MAX)
        return error_set(ERR_PEER, "rank %d sent more than the %zu bytes that rank %d waits for: they are not in the same call",
                         a->from, a->n_bytes, comm->rank);
    return error_set(ERR_PEER, "rank %d sent %zu bytes to rank %d, which waits for %zu: they are not in the same call",
                     a->from, n_bytes, comm->rank, a->n_bytes);
}

/* Starts a receive (1), or not yet (0), when its size is not known before its message is seen. */
static int start_arrival(struct comm *comm, struct comm_arrival *a)
{
    int sender, err, seen = 1;
    size_t n_bytes = a->n_bytes;
    if (a->n_received && (seen = comm->transport->probe(comm, a->from, TAG_COLLECTIVE, &n_bytes, &sender)) <= 0)
        return seen;
    if (n_bytes > a->n_bytes)
        return error_set(ERR_PEER, "rank %d sent %zu bytes to rank %d, which has room for %zu", a->from, n_bytes, comm->rank, a->n_bytes);
    a->n_bytes = n_bytes;
    if (a->n_received)
        *a->n_received = n_bytes;
    err = comm->transport->receive(comm, &a->request, a->bytes, n_bytes, a->from, TAG_COLLECTIVE);
    return err < 0 ? err : 1;
}

static int start_arrivals(struct comm *comm, bool idle)
{
    int n_started = 0, err;
    for (double start = seconds_now();; wait_pause(comm, seconds_now() - start, idle)) {
        for (struct comm_arrival *a = comm->arrivals; a < comm->arrivals + comm->n_arrivals; a++) {
            if (a->request.handle)
                continue;
            if ((err = start_arrival(comm, a)) < 0)
                return err;
            n_started += err;
        }
        if (n_started == comm->n_arrivals)
            return 0;
    }
}

static int finish_arrivals(struct comm *comm, bool idle)
{
    size_t n_bytes;
    int err, sender;
    if (comm->n_arrivals == 0)
        return 0;
    if ((err = wait_seen(comm, -1, TAG_COLLECTIVE, idle, -1, &n_bytes, &sender)) < 0)
        return err;
    if ((err = start_arrivals(comm, idle)) < 0)
        return err;
    for (struct comm_arrival *a = comm->arrivals; a < comm->arrivals + comm->n_arrivals; a++) {
        if ((err = wait_done(comm, &a->request, &n_bytes, idle)) < 0)
            return err;
        if ((err = exchange_check_size(comm, a, n_bytes)) < 0)
            return err;
    }
    return 0;
}

int exchange_finish(struct exchange *exchange, struct comm *comm, bool idle)
{
    size_t n_bytes;
    if (exchange->err == 0)
        exchange->err = finish_arrivals(comm, idle);
    for (int i = 0; i < comm->n_sends && exchange->err == 0; i++)
        exchange->err = wait_done(comm, &comm->sends[i], &n_bytes, idle);
    wait_count_wire(comm, exchange->start, exchange->wait_s_before);
    return exchange->err;
}
