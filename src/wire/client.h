/* client.h: the front's end of a connection to a replica.  Nothing here blocks; the front's event loop drives it. */
#ifndef STOA_WIRE_CLIENT_H
#define STOA_WIRE_CLIENT_H

#include "wire/wire.pb-c.h"

#include <stdint.h>

struct wire_client;

struct wire_client_options {
    const char *address;            /* "unix:PATH" or "HOST:PORT" of a loopback address */
    uint64_t epoch;                 /* frames of another one are dropped */
    void (*on_frame)(void *user, const Stoa__Wire__Frame *frame);      /* borrowed, valid during the call; the first is a Hello */
    /* It is over: the peer left, or broke the protocol.  Not called by wire_client_close(). */
    void (*on_end)(void *user, const char *why);
    void *user;
};

/* Starts to connect.  ERR_USAGE: no such address, or none of this machine. */
int wire_client_open(struct wire_client **out, const struct wire_client_options *options);
void wire_client_close(struct wire_client *client);
int wire_client_fd(const struct wire_client *client);
uint32_t wire_client_events(const struct wire_client *client);         /* EPOLLIN and EPOLLOUT, what it waits for now */
/* Reads and writes what it can; calls on_frame() and, last, on_end(), which may close the client. */
void wire_client_ready(struct wire_client *client, uint32_t events);
/* Queues a frame; epoch is filled in.  ERR_PEER when the connection is over, ERR_FULL when too much is waiting. */
int wire_client_send(struct wire_client *client, Stoa__Wire__Frame *frame);

#endif
