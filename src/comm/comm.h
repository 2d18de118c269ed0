/* comm.h: ranks, groups of ranks, and what travels between them.
 *
 * A comm is a group of ranks: the world, or one line of the mesh along an axis.  Two transports stand behind this one
 * interface: `self` (a world of one rank, no library needed) and MPI (plain MPI-3.1 calls).  Only one thread of a process,
 * the step thread, calls in.
 *
 * Waiting never blocks inside the library, where a waiting rank would burn a core: every wait is a loop of MPI_Test calls
 * that spins briefly where the rank has a core of its own, then yields, and naps (50 us) once it has waited for a
 * millisecond.  `idle` waits (between steps) nap from the start.
 *
 * Collectives move partial sums, never add them on the way: the arithmetic is comm/tree.h's, in the one tree that every
 * layout uses, so the choice of algorithm moves bytes and never bits.
 *
 * Failure: a dead peer ends the whole job (the launcher sees to that), so calls return ERR_PEER only for what the library
 * reports itself. */
#ifndef STOA_COMM_COMM_H
#define STOA_COMM_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct comm;

struct comm_counters {
    uint64_t n_messages, bytes_sent;    /* payload handed to the transport for other ranks */
    double wait_s;                      /* waiting for a peer that has not come yet: until the first byte of what is waited for */
    double wire_s;                      /* the rest of the time inside comm calls */
};

/* True when a launcher (mpiexec, mpirun, srun) has given this process a world of ranks. */
bool comm_world_given(void);
/* The world: under a launcher MPI's, else one rank alone.  Once per process. */
int comm_open_world(struct comm **out);
/* The ranks with the same color, ordered by key, ties by old rank.  Collective over `parent`. */
int comm_split(struct comm **out, struct comm *parent, int color, int key);
/* Closing the world finalises the transport; close the groups first. NULL is fine. */
void comm_close(struct comm *comm);
/* Ends every rank of the job with this exit code, at once, after what was printed is flushed.  Does not return. */
_Noreturn void comm_abort(struct comm *world, int exit_code);

int comm_rank(const struct comm *comm);
int comm_size(const struct comm *comm);
/* Counters of this group since it was opened or since the last reset. */
const struct comm_counters *comm_counters(const struct comm *comm);
void comm_counters_reset(struct comm *comm);
/* True when all ranks of this host have a core each, so that spinning pays; set at open from the ranks on this host, the
 * cores this process may use and the threads that each rank will run. */
void comm_set_threads(struct comm *world, int n_threads);

/* ---- partial sums to sums ------------------------------------------------------------------------------------------- */
/* Rank r holds parts first[r] .. first[r+1] - 1 (none is fine) of n_parts; after part p is pushed on the stack, n_merges[p]
 * times the two topmost entries are added (below + top).  One entry is left. */
#define COMM_TREE_MAX_PARTS 16
struct comm_tree {
    uint32_t n_parts;
    const uint32_t *first;              /* [comm_size + 1] */
    uint8_t n_merges[COMM_TREE_MAX_PARTS];
};
/* out[n] = the tree sum of everybody's parts; mine are parts + i * part_stride (floats).  Every rank gets the same bits.
 * Small n: all ranks exchange their parts and each sums.  Large n: each rank sums a slice, slices are exchanged.
 * out may be the first part's place.  scratch: comm_all_reduce_scratch() bytes, 64-byte aligned. */
int comm_all_reduce(struct comm *comm, float *out, const float *parts, size_t part_stride, size_t n,
                    const struct comm_tree *tree, void *scratch);
size_t comm_all_reduce_scratch(const struct comm *comm, const struct comm_tree *tree, size_t n_max);

/* ---- small exact collectives ---------------------------------------------------------------------------------------- */
/* Element-wise maximum of x[n] over the group, in place (NaN wins). */
int comm_all_max(struct comm *comm, float *x, size_t n);
/* Everybody's n bytes, by rank, at `to` [size][n]. */
int comm_all_gather(struct comm *comm, void *to, const void *from, size_t n_bytes);
int comm_broadcast(struct comm *comm, void *bytes, size_t n_bytes, int root);
/* Waits for everybody, napping. */
int comm_barrier(struct comm *comm);

/* ---- point to point --------------------------------------------------------------------------------------------------- */
/* A send in flight.  {0} is done. */
struct comm_request {
    void *handle;                       /* owned by comm */
};
/* Starts to send; the bytes must stay as they are until comm_wait(request). */
int comm_send_start(struct comm *comm, struct comm_request *request, const void *bytes, size_t n_bytes, int to, int tag);
int comm_wait(struct comm *comm, struct comm_request *request);
bool comm_test(struct comm *comm, struct comm_request *request);        /* true when done (and then request is {0}) */
/* Receives exactly n_bytes.  A message of another size is ERR_PEER. */
int comm_receive(struct comm *comm, void *bytes, size_t n_bytes, int from, int tag);
/* Waits for a message from `from` (-1: anybody) and tells its size and sender, without receiving it.  `idle`: nap at once,
 * as a follower between steps does.  timeout_s < 0: for ever; 0: just look; *n_bytes = SIZE_MAX when nothing came. */
int comm_probe(struct comm *comm, int from, int tag, bool idle, double timeout_s, size_t *n_bytes, int *sender);

#endif
