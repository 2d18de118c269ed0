/* client.h: the front's end of a connection to a replica.  Nothing here blocks; the front's event loop drives it.
 *
 * The replica's Hello comes first; the client answers it with its own and gives it to on_frame(), whose caller compares what it tells of
 * the model.  From then on frames may be sent.  All calls are of one thread. */
#ifndef STOA_WIRE_CLIENT_H
#define STOA_WIRE_CLIENT_H

#include "wire/wire.pb-c.h"

#include <stdint.h>

struct wire_client;

struct wire_client_options {
    const char *address;            /* "unix:PATH" or "HOST:PORT" of a loopback address */
    uint64_t epoch;                 /* of the replica that is meant; frames of another one are dropped.  0: the one that its Hello names */
    void (*on_frame)(void *user, const Stoa__Wire__Frame *frame);      /* borrowed, valid during the call; the first is a Hello */
    /* It is over: the peer left, broke the protocol, or is of another epoch.  Called once; not by wire_client_close(). */
    void (*on_end)(void *user, const char *why);
    void *user;
};

/* Starts to connect; options but the address are kept.  ERR_USAGE: that is no address, or none of this machine.  ERR_PEER: nobody
 * listens there now. */
int wire_client_open(struct wire_client **out, const struct wire_client_options *options);
void wire_client_close(struct wire_client *client);
int wire_client_fd(const struct wire_client *client);
uint32_t wire_client_events(const struct wire_client *client);         /* EPOLLIN and EPOLLOUT, what it waits for now */
/* Reads and writes what it can; calls on_frame() and, last, on_end(); either may close the client.  Look at wire_client_events() anew
 * after this and after wire_client_send(). */
void wire_client_ready(struct wire_client *client, uint32_t events);
/* Queues a frame, and sends what the socket takes; epoch is filled in.  ERR_PEER: the connection is over, or the Hello has not come yet.
 * ERR_FULL: too much is waiting.  ERR_USAGE: it is longer than a frame may be. */
int wire_client_send(struct wire_client *client, Stoa__Wire__Frame *frame);
size_t wire_client_n_waiting(const struct wire_client *client);        /* bytes that the socket has not taken yet */

#endif
