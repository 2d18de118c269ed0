/* comm.h: ranks, groups of ranks, and what travels between them.
 *
 * A comm is a group of ranks: the world, or one line of the mesh along an axis.  Two transports stand behind this one
 * interface: `self` (a world of one rank, no library needed) and MPI (plain MPI-3.1 calls).  Only one thread of a process,
 * the step thread, calls in.
 *
 * Waiting never blocks inside the library, where a waiting rank would burn a core: every wait is a loop of tests that spins
 * briefly where every thread of every rank on this host has a core of its own, else yields at once, and naps (50 us) when it
 * has waited for a millisecond.  `idle` waits (between steps) nap from the start.
 *
 * Collectives move partial sums, never add them on the way: the arithmetic is comm/tree.h's, in the one tree that every
 * layout uses, so the choice of algorithm moves bytes and never bits.
 *
 * Collectives: every rank of the comm makes the same calls in the same order.  A message goes to another rank, not to its
 * sender; it has at most 2^31 - 1 bytes and a tag below COMM_TAGS.
 *
 * Failure: a dead peer ends the whole job (the launcher sees to that), so calls return ERR_PEER only for what the library
 * reports itself.  After that the comm may hold half of a collective: comm_abort() is what is left to do. */
#ifndef STOA_COMM_COMM_H
#define STOA_COMM_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct comm;

struct comm_counters {
    uint64_t n_messages, bytes_sent;    /* payload handed to the transport for other ranks */
    double wait_s;                      /* waiting for a peer that has not come yet: until the first of the messages that a call
                                           waits for is seen (not: until it is here) */
    double wire_s;                      /* the rest of the time in which messages are started and moved; a send that nothing is
                                           received with counts here.  An all-reduce's additions are in neither */
};
#define COMM_TAGS 16384

/* True when a launcher (mpiexec, mpirun, srun) has given this process a world of ranks. */
bool comm_world_given(void);
/* The world: under a launcher MPI's, else one rank alone.  Once per process.  ERR_USAGE when there is a world and this
 * program is built without MPI, or with another MPI than the launcher's. */
int comm_open_world(struct comm **out);
/* A world of this process alone, whatever launcher there is; as many as wanted. */
int comm_open_self(struct comm **out);
/* The ranks with the same color (>= 0), ordered by key, ties by old rank.  Collective over `parent`. */
int comm_split(struct comm **out, struct comm *parent, int color, int key);
/* Closing the world waits for every rank to do so and finalises the transport; close the groups first.  NULL is fine. */
void comm_close(struct comm *comm);
/* Ends every rank of the job with this exit code, at once, after what was printed is flushed.  NULL: the world, as far as
 * it is open. */
_Noreturn void comm_abort(struct comm *world, int exit_code);

int comm_rank(const struct comm *comm);
int comm_size(const struct comm *comm);
/* Counters of this group since it was opened or since the last reset. */
const struct comm_counters *comm_counters(const struct comm *comm);
void comm_counters_reset(struct comm *comm);
/* Of the ranks of this host that may use the cores that this one may use: how many they are, and which of them it is.  n = 0: some
 * may use a part of these cores only, so there is no dividing them. */
struct comm_sharing {
    int index, n;
};
struct comm_sharing comm_sharing(const struct comm *world);
/* How many ranks this host has, whatever cores each may use. */
int comm_host_ranks(const struct comm *world);
/* How many threads each rank of this host runs (1 until it is told): waits spin only when ranks x threads of this host are
 * no more than the cores that they may use (base/cores.h: hardware threads of one core count once). */
void comm_set_threads(struct comm *world, int n_threads);

/* ---- partial sums to sums ------------------------------------------------------------------------------------------- */
/* Rank r holds parts first[r] .. first[r+1] - 1 (none is fine) of n_parts; after part p is pushed on the stack, n_merges[p]
 * times the two topmost entries are added (below + top).  One entry is left. */
#define COMM_TREE_MAX_PARTS 64
struct comm_tree {
    uint32_t n_parts;
    const uint32_t *first;              /* [comm_size + 1] */
    uint8_t n_merges[COMM_TREE_MAX_PARTS];
};
/* out[n] = the tree sum of everybody's parts; mine are parts + i * part_stride (floats).  Every rank gets the same bits.
 * Small n: all ranks exchange their parts and each sums.  Large n: each rank sums a slice, slices are exchanged.
 * out may be the place of one of my parts.  scratch: comm_all_reduce_scratch() bytes, 64-byte aligned. */
int comm_all_reduce(struct comm *comm, float *out, const float *parts, size_t part_stride, size_t n,
                    const struct comm_tree *tree, void *scratch);
/* Enough for this tree and every n up to n_max. */
size_t comm_all_reduce_scratch(const struct comm *comm, const struct comm_tree *tree, size_t n_max);

/* The same sum of n = first[size] floats, cut: rank r gets elements first[r] to first[r + 1] - 1 of it at `out`, none is fine.
 * Every rank sends each other rank its parts' elements of that one's span; out may be the place of my span in one of my parts.
 * scratch: comm_reduce_scatter_scratch() bytes, 64-byte aligned.  Followed by comm_all_gather_v() it is an all-reduce. */
int comm_reduce_scatter(struct comm *comm, float *out, const float *parts, size_t part_stride, const size_t *first,
                        const struct comm_tree *tree, void *scratch);
/* Enough for this tree and every division of up to n_max floats, also when all are one rank's. */
size_t comm_reduce_scatter_scratch(const struct comm *comm, const struct comm_tree *tree, size_t n_max);

/* ---- small exact collectives ---------------------------------------------------------------------------------------- */
/* Element-wise maximum of x[n] over the group, in place.  NaN wins, as the one quiet NaN; +0 is above -0: so the bits do not
 * depend on the order of ranks. */
int comm_all_max(struct comm *comm, float *x, size_t n);
/* Everybody's n bytes, by rank, at `to` [size][n_bytes].  `from` may be my place in it. */
int comm_all_gather(struct comm *comm, void *to, const void *from, size_t n_bytes);
/* Spans of any length, in place: [first[r], first[r + 1]) of `bytes` is rank r's, empty is fine; then everybody has all.
 * A span may be longer than a message. */
int comm_all_gather_v(struct comm *comm, void *bytes, const size_t *first);
int comm_broadcast(struct comm *comm, void *bytes, size_t n_bytes, int root);
/* A message from everybody to everybody, whose length only its sender knows.  send[r], n_send[r] bytes, goes to rank r, from
 * which n_received[r] <= n_room[r] bytes come to receive[r]; a longer one is ERR_PEER.  [size] each; the entries of my own
 * rank are left alone.  No bytes are a message too: when it returns, everybody has called. */
int comm_all_to_all(struct comm *comm, const void *const *send, const size_t *n_send, void *const *receive, const size_t *n_room,
                    size_t *n_received);
/* An error on one rank is everybody's: the first failing rank's code, with its line behind "rank N: " (but in a world of one),
 * or 0 when `err` is 0 on all. */
int comm_agree(struct comm *comm, int err);
/* Waits for everybody, napping. */
int comm_barrier(struct comm *comm);

/* ---- an all-gather while the caller computes ---------------------------------------------------------------------------- */
/* comm_all_gather_v()s that are started, go on, and are waited for later: weights come layer by layer before they are used.
 * Every rank starts the same gathers in the same order, and waits for them in that order; up to COMM_GATHERS are under way.
 *
 * Nothing runs behind the caller's back: bytes move while the step thread is inside any call of this header, on any comm,
 * and comm_gather_test() is there to be called when there is no other.  Between ranks of one host such a call copies what
 * its peers have offered.
 *
 * One struct comm_gather for a comm, which may be used for other things meanwhile (a comm of its own has counters of its own,
 * and shorter queues).  Counters: in comm_gather_wait wait_s is what passes until a first message of this gather is here; all
 * else, also in start and test, is wire_s. */
#define COMM_GATHERS 32
struct comm_gather;
/* n_max_bytes: of the longest gather, all ranks' parts together.  Nothing is allocated after this. */
int comm_gather_open(struct comm_gather **out, struct comm *comm, size_t n_max_bytes);
/* All gathers have been waited for, or comm_abort() follows.  Before its comm is closed.  NULL is fine. */
void comm_gather_close(struct comm_gather *gather);
/* [first[r], first[r + 1]) of `bytes` is rank r's.  Until the gather has been waited for, mine stay as they are and the others
 * are not touched.  first[] is not used after the call. */
int comm_gather_start(struct comm_gather *gather, void *bytes, const size_t *first);
/* 1: the oldest gather is here, or none is under way; it still has to be waited for, at no cost.  0: not yet. */
int comm_gather_test(struct comm_gather *gather);
/* Until the oldest gather is here; then the next one is the oldest.  ERR_PEER when ranks have started different ones. */
int comm_gather_wait(struct comm_gather *gather);

/* ---- point to point --------------------------------------------------------------------------------------------------- */
/* A send in flight.  {0} is done. */
struct comm_request {
    void *handle;                       /* owned by comm */
};
/* Starts to send; the bytes must stay as they are until the request is done.  A large message moves only while its sender is
 * inside some call of this header. */
int comm_send_start(struct comm *comm, struct comm_request *request, const void *bytes, size_t n_bytes, int to, int tag);
int comm_wait(struct comm *comm, struct comm_request *request);
int comm_test(struct comm *comm, struct comm_request *request);         /* 1: done, and the request is {0}; 0: not yet */
/* Receives exactly n_bytes.  A message of another size is ERR_PEER, and it stays to be received. */
int comm_receive(struct comm *comm, void *bytes, size_t n_bytes, int from, int tag);
/* Waits for a message from `from` (-1: anybody) and tells its size and sender, without receiving it.  `idle`: nap at once,
 * as a follower between steps does.  timeout_s < 0: for ever; 0: just look; *n_bytes = SIZE_MAX when nothing came.
 * sender may be NULL. */
int comm_probe(struct comm *comm, int from, int tag, bool idle, double timeout_s, size_t *n_bytes, int *sender);

#endif
