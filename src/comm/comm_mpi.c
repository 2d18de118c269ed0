/* comm_mpi.c: the transport over MPI, in plain MPI-3.1 calls.
 *
 * Between open and close no call here blocks: messages are started with MPI_Isend and MPI_Irecv and moved by MPI_Test and
 * MPI_Iprobe.  Every comm has a communicator of its own, so tags of different groups never meet. */
#include "comm/transport.h"

#include "base/base.h"
#include "base/cores.h"
#include "base/error.h"

#include <limits.h>
#include <mpi.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

struct mpi_link {
    MPI_Comm comm;
};

/* A request travels in comm_request.handle: a pointer in Open MPI, a number that is never 0 in MPICH. */
_Static_assert(sizeof(MPI_Request) <= sizeof(void *), "an MPI_Request fits into comm_request.handle");

static void request_set(struct comm_request *to, MPI_Request from)
{
    to->handle = NULL;
    memcpy(&to->handle, &from, sizeof from);
}

static MPI_Request request_get(const struct comm_request *from)
{
    MPI_Request to;
    memcpy(&to, &from->handle, sizeof to);
    return to;
}

static MPI_Comm comm_of(const struct comm *comm)
{
    return ((const struct mpi_link *)comm->link)->comm;
}

static int mpi_error(const char *what, int code)
{
    char text[MPI_MAX_ERROR_STRING];
    int length;
    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS)
        text[0] = '\0';
    return error_set(ERR_PEER, "%s: %s", what, text);
}

static int mpi_send(struct comm *comm, struct comm_request *request, const void *bytes, size_t n_bytes, int to, int tag)
{
    MPI_Request started;
    if (n_bytes > INT_MAX)
        return error_set(ERR_USAGE, "a message of %zu bytes is too large for MPI", n_bytes);
    int code = MPI_Isend(bytes, (int)n_bytes, MPI_BYTE, to, tag, comm_of(comm), &started);
    if (code != MPI_SUCCESS)
        return mpi_error("send", code);
    request_set(request, started);
    return 0;
}

static int mpi_receive(struct comm *comm, struct comm_request *request, void *bytes, size_t n_bytes, int from, int tag)
{
    MPI_Request started;
    if (n_bytes > INT_MAX)
        return error_set(ERR_USAGE, "a message of %zu bytes is too large for MPI", n_bytes);
    int code = MPI_Irecv(bytes, (int)n_bytes, MPI_BYTE, from, tag, comm_of(comm), &started);
    if (code != MPI_SUCCESS)
        return mpi_error("receive", code);
    request_set(request, started);
    return 0;
}

static bool is_truncated(int code)
{
    int class;
    return MPI_Error_class(code, &class) == MPI_SUCCESS && class == MPI_ERR_TRUNCATE;
}

static int mpi_test(struct comm *comm, struct comm_request *request, size_t *n_received)
{
    MPI_Request started = request_get(request);
    MPI_Status status;
    int done, n = 0;
    (void)comm;
    int code = MPI_Test(&started, &done, &status);
    if (code == MPI_SUCCESS && !done)
        return 0;
    request->handle = NULL;
    *n_received = SIZE_MAX;
    if (code != MPI_SUCCESS)
        return is_truncated(code) ? 1 : mpi_error("a message", code);
    MPI_Get_count(&status, MPI_BYTE, &n);
    *n_received = (size_t)n;
    return 1;
}

static int mpi_probe(struct comm *comm, int from, int tag, size_t *n_bytes, int *sender)
{
    MPI_Status status;
    int found, n = 0;
    int code = MPI_Iprobe(from < 0 ? MPI_ANY_SOURCE : from, tag, comm_of(comm), &found, &status);
    if (code != MPI_SUCCESS)
        return mpi_error("probe", code);
    if (!found)
        return 0;
    MPI_Get_count(&status, MPI_BYTE, &n);
    *n_bytes = (size_t)n;
    *sender = status.MPI_SOURCE;
    return 1;
}

static int link_open(struct comm *comm, MPI_Comm of)
{
    struct mpi_link *link = malloc(sizeof *link);
    if (!link)
        return error_set(ERR_NO_MEMORY, "no memory for a communicator");
    link->comm = of;
    comm->link = link;
    MPI_Comm_set_errhandler(of, MPI_ERRORS_RETURN);
    MPI_Comm_rank(of, &comm->rank);
    MPI_Comm_size(of, &comm->size);
    return 0;
}

static int mpi_split(struct comm *group, struct comm *parent, int color, int key)
{
    MPI_Comm of;
    int code = MPI_Comm_split(comm_of(parent), color, key, &of);
    return code == MPI_SUCCESS ? link_open(group, of) : mpi_error("split", code);
}

static void mpi_close(struct comm *comm)
{
    struct mpi_link *link = comm->link;
    if (!link)
        return;
    MPI_Comm_free(&link->comm);
    free(link);
    if (comm == comm->world)
        MPI_Finalize();
}

void comm_mpi_abort(int exit_code)
{
    int open = 0, closed = 0;
    MPI_Initialized(&open);
    MPI_Finalized(&closed);
    if (open && !closed)
        MPI_Abort(MPI_COMM_WORLD, exit_code);
}

static struct comm_sharing sharing_of(const cpu_set_t *cores, int n_ranks, int rank)
{
    struct comm_sharing sharing = { 0 };
    for (int r = 0; r < n_ranks; r++) {
        cpu_set_t common;
        CPU_AND(&common, &cores[r], &cores[rank]);
        bool equal = CPU_EQUAL(&cores[r], &cores[rank]);
        if (!equal && CPU_COUNT(&common))
            return (struct comm_sharing){ 0 };
        sharing.n += equal;
        sharing.index += equal && r < rank;
    }
    return sharing;
}

/* How many ranks share this host, and the cores that they may use together: each may be bound to its own. */
static int count_host(struct comm *world)
{
    MPI_Comm host;
    int rank;
    cpu_set_t mine, all;
    struct cores together;
    CPU_ZERO(&mine);
    CPU_ZERO(&all);
    sched_getaffinity(0, sizeof mine, &mine);
    MPI_Comm_split_type(comm_of(world), MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_size(host, &world->n_host_ranks);
    MPI_Comm_rank(host, &rank);
    cpu_set_t *cores = calloc((size_t)world->n_host_ranks, sizeof *cores);
    if (!cores)
        return error_set(ERR_NO_MEMORY, "no memory for the ranks of this host");
    MPI_Allgather(&mine, sizeof mine, MPI_BYTE, cores, sizeof mine, MPI_BYTE, host);
    MPI_Comm_free(&host);
    for (int r = 0; r < world->n_host_ranks; r++)
        CPU_OR(&all, &all, &cores[r]);
    cores_of(&together, &all);
    world->n_host_cores = together.n;
    world->sharing = sharing_of(cores, world->n_host_ranks, rank);
    free(cores);
    return 0;
}

/* The launcher of another MPI gives each process a world of its own: its ranks would all be rank 0 of 1. */
static int check_launcher(const struct comm *world)
{
    const char *told = getenv("PMI_SIZE");
    if (told && !getenv("PMIX_RANK") && !getenv("OMPI_COMM_WORLD_RANK") && atoi(told) != world->size)
        return error_set(ERR_USAGE, "the launcher has started %d ranks, but it is not Open MPI's: this one sees a world of %d; "
                         "use mpirun.openmpi, or srun --mpi=pmix", atoi(told), world->size);
    return 0;
}

static const struct comm_transport mpi = {
    .split = mpi_split, .close = mpi_close,
    .send = mpi_send, .receive = mpi_receive, .test = mpi_test, .probe = mpi_probe,
};

int comm_mpi_open(struct comm *world)
{
    MPI_Comm of;
    int level, err;
    int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
    if (code != MPI_SUCCESS)
        return mpi_error("MPI_Init_thread", code);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (level < MPI_THREAD_FUNNELED)
        return error_set(ERR_FAILED, "this MPI has no MPI_THREAD_FUNNELED");
    if ((code = MPI_Comm_dup(MPI_COMM_WORLD, &of)) != MPI_SUCCESS)
        return mpi_error("MPI_Comm_dup", code);
    world->transport = &mpi;
    if ((err = link_open(world, of)) < 0 || (err = check_launcher(world)) < 0)
        return err;
    return count_host(world);
}
