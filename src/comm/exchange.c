#include "comm/exchange.h"

#include "base/base.h"
#include "base/error.h"
#include "comm/wait.h"

struct exchange exchange_begin(struct comm *comm)
{
    comm->n_sends = comm->n_arrivals = 0;
    return (struct exchange){ .start = wait_now(), .wait_s_before = comm->counters.wait_s };
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

static int finish_arrivals(struct comm *comm, bool idle)
{
    size_t n_bytes;
    int err, sender;
    if (comm->n_arrivals == 0)
        return 0;
    if ((err = wait_seen(comm, -1, TAG_COLLECTIVE, idle, -1, &n_bytes, &sender)) < 0)
        return err;
    for (struct comm_arrival *a = comm->arrivals; a < comm->arrivals + comm->n_arrivals; a++)
        if ((err = comm->transport->receive(comm, &a->request, a->bytes, a->n_bytes, a->from, TAG_COLLECTIVE)) < 0)
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
