/* wait.h: how a rank waits, and what is counted: under everything in comm/ that starts a message. */
#ifndef STOA_COMM_WAIT_H
#define STOA_COMM_WAIT_H

#include "comm/transport.h"

/* Between two tests of a wait that has lasted for waited_s. */
void wait_pause(const struct comm *comm, double waited_s, bool idle);
/* Until the request is done.  *n_received is a receive's size. */
int wait_done(struct comm *comm, struct comm_request *request, size_t *n_received, bool idle);
/* Until a message is there (1) or the time is over (0); what passes is wait_s.  timeout_s < 0: for ever. */
int wait_seen(struct comm *comm, int from, int tag, bool idle, double timeout_s, size_t *n_bytes, int *sender);
/* wire_s: what has passed since `start` and was not counted as waiting since then. */
void wait_count_wire(struct comm *comm, double start, double wait_s_before);
/* The transport's send, counted. */
int wait_send(struct comm *comm, struct comm_request *request, const void *bytes, size_t n_bytes, int to, int tag);

#endif
