/* comm.c: what all transports share: worlds and groups, and messages from one rank to another. */
#include "comm/comm.h"

#include "base/base.h"
#include "base/error.h"
#include "base/threads.h"
#include "comm/transport.h"
#include "comm/wait.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- open and close ----------------------------------------------------------------------------------------------------- */
bool comm_world_given(void)
{
    return getenv("PMIX_RANK") || getenv("OMPI_COMM_WORLD_RANK") || getenv("PMI_RANK");
}

static int alloc_exchange(struct comm *comm)
{
    size_t size = (size_t)comm->size;
    comm->sends = calloc(COMM_TREE_MAX_PARTS * size, sizeof *comm->sends);
    comm->arrivals = calloc(COMM_TREE_MAX_PARTS + size, sizeof *comm->arrivals);
    comm->slices = calloc(size + 1, sizeof *comm->slices);
    comm->gathered = calloc(COMM_MAX_CHUNK * size, sizeof *comm->gathered);
    if (!comm->sends || !comm->arrivals || !comm->slices || !comm->gathered)
        return error_set(ERR_NO_MEMORY, "no memory for the messages of %zu ranks", size);
    return 0;
}

static int open_given_world(struct comm *world)
{
#ifdef HAVE_MPI
    return comm_mpi_open(world);
#else
    (void)world;
    return error_set(ERR_USAGE, "a launcher has started this as one of many ranks, but it is built without MPI: install "
                     "libopenmpi-dev (scripts/deps does) and build it again");
#endif
}

static void release(struct comm *comm)
{
    if (!comm)
        return;
    free(comm->sends);
    free(comm->arrivals);
    free(comm->slices);
    free(comm->gathered);
    free(comm);
}

static int open_world(struct comm **out, int (*open_transport)(struct comm *world))
{
    struct comm *world = calloc(1, sizeof *world);
    int err;

    if (!world)
        return error_set(ERR_NO_MEMORY, "no memory for the world");
    world->world = world;
    world->piece_bytes = 1u << 30;
    if ((err = open_transport(world)) < 0 || (err = alloc_exchange(world)) < 0)
        goto done;
    comm_set_threads(world, 1);
    *out = world;
    world = NULL;
done:
    release(world);             /* MPI stays as it is: what follows a failure here is comm_abort() */
    return err;
}

int comm_open_world(struct comm **out)
{
    return open_world(out, comm_world_given() ? open_given_world : comm_self_open);
}

int comm_open_self(struct comm **out)
{
    return open_world(out, comm_self_open);
}

int comm_split(struct comm **out, struct comm *parent, int color, int key)
{
    struct comm *group = calloc(1, sizeof *group);
    int err;

    assert(color >= 0);
    if (!group)
        return error_set(ERR_NO_MEMORY, "no memory for a group");
    group->transport = parent->transport;
    group->world = parent->world;
    if ((err = group->transport->split(group, parent, color, key)) < 0 ||
        (err = alloc_exchange(group)) < 0)
        goto done;
    *out = group;
    group = NULL;
done:
    comm_close(group);
    return err;
}

void comm_close(struct comm *comm)
{
    if (!comm)
        return;
    if (comm == comm->world)
        comm_barrier(comm);     /* napping: the transport's own end would burn a core until the last rank comes */
    comm->transport->close(comm);
    release(comm);
}

void comm_abort(struct comm *world, int exit_code)
{
    (void)world;
    fflush(NULL);
#ifdef HAVE_MPI
    comm_mpi_abort(exit_code);
#endif
    _exit(exit_code);
}

int comm_rank(const struct comm *comm)
{
    return comm->rank;
}

int comm_size(const struct comm *comm)
{
    return comm->size;
}

const struct comm_counters *comm_counters(const struct comm *comm)
{
    return &comm->counters;
}

void comm_counters_reset(struct comm *comm)
{
    comm->counters = (struct comm_counters){ 0 };
}

struct comm_sharing comm_sharing(const struct comm *world)
{
    return world->sharing;
}

int comm_host_ranks(const struct comm *world)
{
    return world->n_host_ranks;
}

void comm_set_threads(struct comm *world, int n_threads)
{
    world->spins = world->n_host_ranks * n_threads <= world->n_host_cores;
}

/* ---- point to point --------------------------------------------------------------------------------------------------- */
int comm_send_start(struct comm *comm, struct comm_request *request, const void *bytes, size_t n_bytes, int to, int tag)
{
    double start = seconds_now();
    assert(tag >= 0 && tag < COMM_TAGS);
    int err = wait_send(comm, request, bytes, n_bytes, to, tag);
    wait_count_wire(comm, start, comm->counters.wait_s);
    return err;
}

int comm_wait(struct comm *comm, struct comm_request *request)
{
    double start = seconds_now();
    size_t n_bytes;
    if (!request->handle)
        return 0;
    int err = wait_done(comm, request, &n_bytes, false);
    wait_count_wire(comm, start, comm->counters.wait_s);
    return err;
}

int comm_test(struct comm *comm, struct comm_request *request)
{
    size_t n_bytes;
    return request->handle ? comm->transport->test(comm, request, &n_bytes) : 1;
}

int comm_probe(struct comm *comm, int from, int tag, bool idle, double timeout_s, size_t *n_bytes, int *sender)
{
    int seen = 0, who = -1;
    assert(from < comm->size && from != comm->rank && tag >= 0 && tag < COMM_TAGS);
    if (comm->size > 1)
        seen = wait_seen(comm, from, tag, idle, timeout_s, n_bytes, &who);
    else if (timeout_s < 0)
        return error_set(ERR_USAGE, "a rank that is alone waits for a message for ever");
    if (seen <= 0)
        *n_bytes = SIZE_MAX;
    if (sender)
        *sender = who;
    return MIN(seen, 0);
}

int comm_receive(struct comm *comm, void *bytes, size_t n_bytes, int from, int tag)
{
    double start = seconds_now(), wait_s_before = comm->counters.wait_s;
    struct comm_request request;
    size_t n_there;
    int err;

    assert(from >= 0);
    if ((err = comm_probe(comm, from, tag, false, -1, &n_there, NULL)) < 0)
        return err;
    if (n_there != n_bytes)
        return error_set(ERR_PEER, "rank %d sent %zu bytes with tag %d to rank %d, which waits for %zu", from, n_there, tag,
                         comm->rank, n_bytes);
    if ((err = comm->transport->receive(comm, &request, bytes, n_bytes, from, tag)) < 0 ||
        (err = wait_done(comm, &request, &n_there, false)) < 0)
        return err;
    wait_count_wire(comm, start, wait_s_before);
    return 0;
}
