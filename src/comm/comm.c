/* comm.c: what all transports share: the collectives as exchanges of messages, waiting, and the counters. */
#include "comm/comm.h"

#include "base/base.h"
#include "base/error.h"
#include "comm/transport.h"
#include "comm/tree.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    TAG_COLLECTIVE = COMM_TAGS,         /* one is enough: a collective is over on a rank before its next one starts */
    SLICE_ALIGN = 16,                   /* floats: slices and received parts begin on a cache line */
    LARGE_BYTES = 65536,                /* of all parts together: from here on each rank sums a slice */
    MAX_CHUNK = 1024,                   /* floats that one round of comm_all_max moves */
};

/* ---- waiting ---------------------------------------------------------------------------------------------------------- */
/* Two ranks that answer each other meet within the spin.  A longer one buys nothing, and costs its whole length each time
 * when a neighbour has taken a core and both ranks share the other. */
#define SPIN_S 2e-6
#define YIELD_S 1e-3
#define NAP_NS 50000

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Between two tests of a wait that has lasted for waited_s. */
static void pause_waiting(const struct comm *comm, double waited_s, bool idle)
{
    if (idle || waited_s >= YIELD_S)
        nanosleep(&(struct timespec){ .tv_nsec = NAP_NS }, NULL);
    else if (comm->world->spins && waited_s < SPIN_S)
        relax();
    else
        sched_yield();
}

/* Until the request is done.  *n_received is a receive's size. */
static int wait_done(struct comm *comm, struct comm_request *request, size_t *n_received, bool idle)
{
    int done = comm->transport->test(comm, request, n_received);
    for (double start = now(); done == 0; done = comm->transport->test(comm, request, n_received))
        pause_waiting(comm, now() - start, idle);
    return MIN(done, 0);
}

/* Until a message is there (1) or the time is over (0); what passes is wait_s.  timeout_s < 0: for ever. */
static int wait_seen(struct comm *comm, int from, int tag, bool idle, double timeout_s, size_t *n_bytes, int *sender)
{
    double start = now(), waited_s = 0;
    int seen;
    while ((seen = comm->transport->probe(comm, from, tag, n_bytes, sender)) == 0) {
        waited_s = now() - start;
        if (timeout_s >= 0 && waited_s >= timeout_s)
            break;
        pause_waiting(comm, waited_s, idle);
    }
    comm->counters.wait_s += waited_s;
    return seen;
}

/* What has passed since `start` and was not counted as waiting since then. */
static void count_wire(struct comm *comm, double start, double wait_s_before)
{
    comm->counters.wire_s += now() - start - (comm->counters.wait_s - wait_s_before);
}

/* ---- an exchange: what a collective is made of -------------------------------------------------------------------------
 * exchange_begin, then exchange_send and exchange_receive in any order, then exchange_finish, after which all bytes are
 * where they belong and all sent ones may be changed.  Receives are started when the first message is seen: so a peer that
 * is late and a wire that is slow can be told apart. */
struct exchange {
    double start, wait_s_before;
    int err;                            /* the first failure; what follows does nothing */
};

static struct exchange exchange_begin(struct comm *comm)
{
    comm->n_sends = comm->n_arrivals = 0;
    return (struct exchange){ .start = now(), .wait_s_before = comm->counters.wait_s };
}

static int send_counted(struct comm *comm, struct comm_request *request, const void *bytes, size_t n_bytes, int to, int tag)
{
    assert(to >= 0 && to < comm->size && to != comm->rank && "a message goes to another rank");
    int err = comm->transport->send(comm, request, bytes, n_bytes, to, tag);
    if (err < 0)
        return err;
    comm->counters.n_messages++;
    comm->counters.bytes_sent += n_bytes;
    return 0;
}

static void exchange_send(struct exchange *exchange, struct comm *comm, const void *bytes, size_t n_bytes, int to)
{
    assert(comm->n_sends < COMM_TREE_MAX_PARTS * comm->size);
    if (exchange->err == 0)
        exchange->err = send_counted(comm, &comm->sends[comm->n_sends++], bytes, n_bytes, to, TAG_COLLECTIVE);
}

static void exchange_receive(struct comm *comm, void *bytes, size_t n_bytes, int from)
{
    assert(comm->n_arrivals < COMM_TREE_MAX_PARTS + comm->size);
    comm->arrivals[comm->n_arrivals++] = (struct comm_arrival){ .bytes = bytes, .n_bytes = n_bytes, .from = from };
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
        if (n_bytes != a->n_bytes)
            return error_set(ERR_PEER, "rank %d sent %zu bytes to rank %d, which waits for %zu: they are not in the same call",
                             a->from, n_bytes, comm->rank, a->n_bytes);
    }
    return 0;
}

static int exchange_finish(struct exchange *exchange, struct comm *comm, bool idle)
{
    size_t n_bytes;
    if (exchange->err == 0)
        exchange->err = finish_arrivals(comm, idle);
    for (int i = 0; i < comm->n_sends && exchange->err == 0; i++)
        exchange->err = wait_done(comm, &comm->sends[i], &n_bytes, idle);
    count_wire(comm, exchange->start, exchange->wait_s_before);
    return exchange->err;
}

/* The peers of a rank in an order of its own, so that not everybody sends to rank 0 first: step 1 to size - 1. */
static int peer_to(const struct comm *comm, int step)
{
    return (comm->rank + step) % comm->size;
}
static int peer_from(const struct comm *comm, int step)
{
    return (comm->rank - step + comm->size) % comm->size;
}

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
    comm->gathered = calloc(MAX_CHUNK * size, sizeof *comm->gathered);
    if (!comm->sends || !comm->arrivals || !comm->gathered)
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

void comm_set_threads(struct comm *world, int n_threads)
{
    world->spins = world->n_host_ranks * n_threads <= world->n_host_cores;
}

/* ---- the all-reduce --------------------------------------------------------------------------------------------------- */
/* Slices are chosen by bytes and ranks alone, so every rank chooses the same.  Between two ranks a slice moves as many bytes
 * as a whole part does, later. */
static bool by_slices(const struct comm *comm, uint32_t n_parts, size_t n)
{
    return comm->size > 2 && n * n_parts * sizeof(float) > LARGE_BYTES;
}

/* Floats of a slice; the last ones of the group may be shorter or empty. */
static size_t slice_length(const struct comm *comm, size_t n)
{
    return ROUND_UP(DIV_UP(n, (size_t)comm->size), (size_t)SLICE_ALIGN);
}

struct span {
    size_t begin, n;
};

/* The elements that `rank` sums: its slice, or all. */
static struct span span_of(const struct comm *comm, bool slices, size_t n, int rank)
{
    size_t length = slice_length(comm, n), begin = MIN(n, (size_t)rank * length);
    return slices ? (struct span){ begin, MIN(length, n - begin) } : (struct span){ 0, n };
}

size_t comm_all_reduce_scratch(const struct comm *comm, const struct comm_tree *tree, size_t n_max)
{
    uint32_t n_mine = tree->first[comm->rank + 1] - tree->first[comm->rank], n_others = tree->n_parts - n_mine;
    size_t longest = n_max;
    if (tree->n_parts > 0 && by_slices(comm, tree->n_parts, n_max))
        longest = MAX(LARGE_BYTES / (tree->n_parts * sizeof(float)), slice_length(comm, n_max));
    return MAX(n_others * ROUND_UP(longest, (size_t)SLICE_ALIGN) * sizeof(float), (size_t)CACHE_LINE);
}

/* Everybody's parts of my span, in part[]; what comes from others comes into scratch. */
static int exchange_parts(struct comm *comm, const float **part, const float *parts, size_t part_stride, size_t n, bool slices,
                          const struct comm_tree *tree, float *scratch)
{
    struct exchange exchange = exchange_begin(comm);
    struct span mine = span_of(comm, slices, n, comm->rank);
    uint32_t first = tree->first[comm->rank], end = tree->first[comm->rank + 1];

    for (uint32_t p = first; p < end; p++)
        part[p] = parts + (p - first) * part_stride + mine.begin;
    for (int step = 1; step < comm->size; step++) {
        int to = peer_to(comm, step), from = peer_from(comm, step);
        struct span theirs = span_of(comm, slices, n, to);
        for (uint32_t p = first; p < end && theirs.n > 0; p++)
            exchange_send(&exchange, comm, parts + (p - first) * part_stride + theirs.begin, theirs.n * sizeof(float), to);
        for (uint32_t p = tree->first[from]; p < tree->first[from + 1] && mine.n > 0; p++) {
            exchange_receive(comm, scratch, mine.n * sizeof(float), from);
            part[p] = scratch;
            scratch += ROUND_UP(mine.n, (size_t)SLICE_ALIGN);
        }
    }
    return exchange_finish(&exchange, comm, false);
}

static int exchange_sums(struct comm *comm, float *out, size_t n)
{
    struct exchange exchange = exchange_begin(comm);
    struct span mine = span_of(comm, true, n, comm->rank);
    for (int step = 1; step < comm->size; step++) {
        struct span theirs = span_of(comm, true, n, peer_from(comm, step));
        if (mine.n > 0)
            exchange_send(&exchange, comm, out + mine.begin, mine.n * sizeof(float), peer_to(comm, step));
        if (theirs.n > 0)
            exchange_receive(comm, out + theirs.begin, theirs.n * sizeof(float), peer_from(comm, step));
    }
    return exchange_finish(&exchange, comm, false);
}

int comm_all_reduce(struct comm *comm, float *out, const float *parts, size_t part_stride, size_t n,
                    const struct comm_tree *tree, void *scratch)
{
    const float *part[COMM_TREE_MAX_PARTS] = { NULL };
    bool slices = by_slices(comm, tree->n_parts, n);
    struct span mine = span_of(comm, slices, n, comm->rank);
    int err;

    assert(tree->n_parts <= COMM_TREE_MAX_PARTS && tree->first[0] == 0 && tree->first[comm->size] == tree->n_parts);
    if ((err = exchange_parts(comm, part, parts, part_stride, n, slices, tree, scratch)) < 0)
        return err;
    if (mine.n > 0)
        tree_sum_f32(out + mine.begin, part, tree->n_merges, tree->n_parts, mine.n);
    return slices ? exchange_sums(comm, out, n) : 0;
}

/* ---- small exact collectives ---------------------------------------------------------------------------------------- */
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
    for (size_t begin = 0; begin < n; begin += MAX_CHUNK) {
        size_t n_chunk = MIN(n - begin, (size_t)MAX_CHUNK);
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

/* ---- point to point --------------------------------------------------------------------------------------------------- */
int comm_send_start(struct comm *comm, struct comm_request *request, const void *bytes, size_t n_bytes, int to, int tag)
{
    double start = now();
    assert(tag >= 0 && tag < COMM_TAGS);
    int err = send_counted(comm, request, bytes, n_bytes, to, tag);
    count_wire(comm, start, comm->counters.wait_s);
    return err;
}

int comm_wait(struct comm *comm, struct comm_request *request)
{
    double start = now();
    size_t n_bytes;
    if (!request->handle)
        return 0;
    int err = wait_done(comm, request, &n_bytes, false);
    count_wire(comm, start, comm->counters.wait_s);
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
    double start = now(), wait_s_before = comm->counters.wait_s;
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
    count_wire(comm, start, wait_s_before);
    return 0;
}
