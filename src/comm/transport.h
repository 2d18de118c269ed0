/* transport.h: what comm/ asks of a transport.  Whoever waits or counts does so through wait.h; a transport starts
 * messages, tests them and looks for them, and no function of it waits for a peer except open, split and close.
 *
 * A message goes to another rank of the same comm, never to its own.  Messages between two ranks with one tag arrive in the
 * order in which they were sent.  Functions return a negative code of base/error.h when they fail. */
#ifndef STOA_COMM_TRANSPORT_H
#define STOA_COMM_TRANSPORT_H

#include "comm/comm.h"

struct comm_transport {
    /* Fills in rank, size and link of `group`; its other fields are set. */
    int (*split)(struct comm *group, struct comm *parent, int color, int key);
    void (*close)(struct comm *comm);
    /* The rest is not asked of a world of one rank. */
    int (*send)(struct comm *comm, struct comm_request *request, const void *bytes, size_t n_bytes, int to, int tag);
    int (*receive)(struct comm *comm, struct comm_request *request, void *bytes, size_t n_bytes, int from, int tag);
    /* 1 when done: the request is {0}, and *n_received is a receive's size, SIZE_MAX when the message was longer than its
     * room.  0: not yet.  Makes progress. */
    int (*test)(struct comm *comm, struct comm_request *request, size_t *n_received);
    /* 1 when a message of `from` (-1: anybody) is there, with its size and sender.  0: none yet.  Makes progress. */
    int (*probe)(struct comm *comm, int from, int tag, size_t *n_bytes, int *sender);
};

enum {
    COMM_MAX_CHUNK = 1024,              /* floats that one round of comm_all_max moves */
};

/* A receive that has been announced: exchange.c starts it when the first message of its exchange is seen,
 * or when its own is if its size is not known before. */
struct comm_arrival {
    struct comm_request request;
    void *bytes;
    size_t n_bytes;                     /* of the message; of the room, until one of any size is seen */
    size_t *n_received;                 /* NULL: exactly n_bytes are waited for */
    int from;
};

struct comm {
    const struct comm_transport *transport;
    struct comm *world;                         /* itself, when it is the world */
    void *link;                                 /* the transport's */
    int rank, size;
    struct comm_counters counters;

    int n_host_ranks, n_host_cores;             /* of the world: its ranks on this host, the cores that they may use */
    struct comm_sharing sharing;                /* of the world */
    size_t piece_bytes;                         /* of the world: gathers cut what is longer; the same on all ranks */
    bool spins;                                 /* of the world: each thread of each of them has a core of its own */

    /* The exchange that is going on inside a collective: at most COMM_TREE_MAX_PARTS messages to every peer. */
    struct comm_request *sends;                 /* [COMM_TREE_MAX_PARTS * size] */
    struct comm_arrival *arrivals;              /* [COMM_TREE_MAX_PARTS + size] */
    int n_sends, n_arrivals;
    size_t *slices;                             /* [size + 1], of comm_all_reduce */
    float *gathered;                            /* [size][COMM_MAX_CHUNK], of comm_all_max */
};

/* A world fills in transport, link, rank, size and the host's two numbers of `world`, which is zeroed. */
int comm_self_open(struct comm *world);
int comm_mpi_open(struct comm *world);          /* this and the next with HAVE_MPI only */
/* Ends the job when MPI is open.  Returns when it is not: then the caller's own exit is all that can be done. */
void comm_mpi_abort(int exit_code);

#endif
