/* stream.h: a nonblocking socket that carries frames, as either end of it sees it. */
#ifndef STOA_WIRE_STREAM_H
#define STOA_WIRE_STREAM_H

#include "wire/frame.h"

#include <stdbool.h>

#define STREAM_MOST_WAITING ((size_t)64 << 20)  /* bytes that wait for the socket; a peer that takes none of more is given up */

struct stream {
    int fd;
    struct frame_reader in;
    struct buffer out;
    size_t n_sent;                              /* of out */
};

/* Reads what there is, a bounded part of it.  1: something came; 0: nothing now; ERR_PEER: the peer has closed, or the link is broken. */
int stream_receive(struct stream *stream);
/* Writes what the socket takes of `out`.  ERR_PEER: the link is broken. */
int stream_send(struct stream *stream);
static inline size_t stream_n_waiting(const struct stream *stream)
{
    return stream->out.size - stream->n_sent;
}
void stream_close(struct stream *stream);

#endif
