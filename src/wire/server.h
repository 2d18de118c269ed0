/* server.h: the replica's end of its connections: a thread of its own, so that the step thread waits for no socket.
 *
 *   fronts <--sockets--> the server's thread --events--> wire_server_take()  \ the step
 *                                            <--frames-- wire_server_send()  / thread
 *
 * Every front that connects is told the Hello.  Its own must come first; then Submits and Cancels of this epoch become events, others
 * are dropped, and kinds that are not known are skipped.  Whoever breaks the protocol, or lets too much wait for its socket, loses its
 * connection and no other's.  The last event of a connection is WIRE_GONE. */
#ifndef STOA_WIRE_SERVER_H
#define STOA_WIRE_SERVER_H

#include "wire/frame.h"

#include <stdbool.h>
#include <stdint.h>

#define WIRE_MAX_CONNECTIONS 16         /* beyond it those that have not said Hello are closed, then new ones */

struct wire_server;

struct wire_server_options {
    const char *address;                /* "unix:PATH" or "HOST:PORT" of this machine; port 0: any that is free */
    uint64_t epoch;
    const Stoa__Wire__Hello *hello;     /* copied; protocol is filled in */
};

/* Listens from now on.  ERR_USAGE: no such address, or it is taken; other errors are the system's. */
int wire_server_open(struct wire_server **out, const struct wire_server_options *options);
/* What has been sent goes out first, for a second at most.  NULL is fine. */
void wire_server_close(struct wire_server *server);
/* Where it listens, as a client wants it. */
const char *wire_server_address(const struct wire_server *server);

enum wire_event_kind { WIRE_SUBMIT, WIRE_CANCEL, WIRE_GONE };
struct wire_event {
    enum wire_event_kind kind;
    uint64_t connection;                /* a number that is not used again */
    const Stoa__Wire__Submit *submit;   /* the event's, of WIRE_SUBMIT */
    uint64_t request;                   /* of WIRE_SUBMIT and WIRE_CANCEL */

    struct frame frame;                 /* the server's */
    struct wire_event *next;
};
/* The next event, the caller's; NULL when none comes within wait_ms, or when it is woken. */
struct wire_event *wire_server_take(struct wire_server *server, int wait_ms);
void wire_event_free(struct wire_event *event);
/* The first time that the descriptor can be read, or has hung up, a wire_server_take() that waits returns at once, or else the next one.  A
 * file, of which epoll knows nothing, wakes nobody. */
void wire_server_wake_by(struct wire_server *server, int fd);

/* Queues a frame for a connection, or for all (WIRE_ALL); never waits.  epoch is filled in.  ERR_PEER: there is no such connection any
 * more; ERR_USAGE: the frame is too long; ERR_NO_MEMORY. */
#define WIRE_ALL 0
int wire_server_send(struct wire_server *server, uint64_t connection, Stoa__Wire__Frame *frame);
/* Ends a connection, which has broken the protocol in a way that only the caller can see. */
void wire_server_drop(struct wire_server *server, uint64_t connection, const char *why);

#endif
