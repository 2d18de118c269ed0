/* exchange.h: what a collective is made of.
 *
 * exchange_begin, then exchange_send and exchange_receive in any order, then exchange_finish, after which all bytes are
 * where they belong and all sent ones may be changed.  Receives are started when the first message is seen: so a peer that
 * is late and a wire that is slow can be told apart. */
#ifndef STOA_COMM_EXCHANGE_H
#define STOA_COMM_EXCHANGE_H

#include "comm/transport.h"

enum {
    TAG_COLLECTIVE = COMM_TAGS,         /* one is enough: a collective is over on a rank before its next one starts */
    TAG_GATHER,                         /* of gather.c, whose messages lie around while collectives go on */
};

struct exchange {
    double start, wait_s_before;
    int err;                            /* the first failure; what follows does nothing */
};

struct exchange exchange_begin(struct comm *comm);
void exchange_send(struct exchange *exchange, struct comm *comm, const void *bytes, size_t n_bytes, int to);
/* Exactly n_bytes; another size is ERR_PEER when the exchange finishes. */
void exchange_receive(struct comm *comm, void *bytes, size_t n_bytes, int from);
/* What `from` has to send, at most n_room bytes; more is ERR_PEER.  *n_received is set by exchange_finish.  The only message
 * of `from` in its exchange. */
void exchange_receive_any_size(struct comm *comm, void *bytes, size_t n_room, size_t *n_received, int from);
int exchange_finish(struct exchange *exchange, struct comm *comm, bool idle);
/* Whether what was received, n_bytes, is what the arrival waits for: 0 or ERR_PEER. */
int exchange_check_size(const struct comm *comm, const struct comm_arrival *a, size_t n_bytes);

/* The peers of a rank in an order of its own, so that not everybody sends to rank 0 first: step 1 to size - 1. */
static inline int peer_to(const struct comm *comm, int step)
{
    return (comm->rank + step) % comm->size;
}
static inline int peer_from(const struct comm *comm, int step)
{
    return (comm->rank - step + comm->size) % comm->size;
}

#endif
