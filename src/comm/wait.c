#include "comm/wait.h"

#include "base/base.h"
#include "base/threads.h"

#include <sched.h>
#include <time.h>

/* Two ranks that answer each other meet within the spin.  A longer one buys nothing, and costs its whole length each time
 * when a neighbour has taken a core and both ranks share the other. */
#define SPIN_S 2e-6
#define YIELD_S 1e-3
#define NAP_NS 50000

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

void wait_pause(const struct comm *comm, double waited_s, bool idle)
{
    if (idle || waited_s >= YIELD_S)
        nanosleep(&(struct timespec){ .tv_nsec = NAP_NS }, NULL);
    else if (comm->world->spins && waited_s < SPIN_S)
        relax();
    else
        sched_yield();
}

int wait_done(struct comm *comm, struct comm_request *request, size_t *n_received, bool idle)
{
    int done = comm->transport->test(comm, request, n_received);
    for (double start = seconds_now(); done == 0; done = comm->transport->test(comm, request, n_received))
        wait_pause(comm, seconds_now() - start, idle);
    return MIN(done, 0);
}

int wait_seen(struct comm *comm, int from, int tag, bool idle, double timeout_s, size_t *n_bytes, int *sender)
{
    double start = seconds_now(), waited_s = 0;
    int seen;
    while ((seen = comm->transport->probe(comm, from, tag, n_bytes, sender)) == 0) {
        waited_s = seconds_now() - start;
        if (timeout_s >= 0 && waited_s >= timeout_s)
            break;
        wait_pause(comm, waited_s, idle);
    }
    comm->counters.wait_s += waited_s;
    return seen;
}

void wait_count_wire(struct comm *comm, double start, double wait_s_before)
{
    comm->counters.wire_s += seconds_now() - start - (comm->counters.wait_s - wait_s_before);
}

int wait_send(struct comm *comm, struct comm_request *request, const void *bytes, size_t n_bytes, int to, int tag)
{
    assert(to >= 0 && to < comm->size && to != comm->rank && "a message goes to another rank");
    int err = comm->transport->send(comm, request, bytes, n_bytes, to, tag);
    if (err < 0)
        return err;
    comm->counters.n_messages++;
    comm->counters.bytes_sent += n_bytes;
    return 0;
}
