#include "wire/stream.h"

#include "base/error.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PIECE 65536
#define KEPT_ROOM ((size_t)1 << 20)     /* of a buffer that is empty */

static bool would_wait(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

int stream_receive(struct stream *stream)
{
    char piece[PIECE];
    ssize_t n = recv(stream->fd, piece, sizeof piece, MSG_DONTWAIT);
    if (n < 0 && would_wait())
        return 0;
    if (n <= 0)
        return error_set(ERR_PEER, "%s", n == 0 ? "the other end has closed the connection" : strerror(errno));
    int err = frame_reader_add(&stream->in, piece, (size_t)n);
    return err < 0 ? err : 1;
}

int stream_send(struct stream *stream)
{
    while (stream_n_waiting(stream)) {
        ssize_t n = send(stream->fd, stream->out.bytes + stream->n_sent, stream_n_waiting(stream), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && would_wait())
            return 0;
        if (n < 0)
            return error_set(ERR_PEER, "%s", strerror(errno));
        stream->n_sent += (size_t)n;
    }
    if (stream->out.capacity > KEPT_ROOM)
        buffer_release(&stream->out);
    stream->out.size = stream->n_sent = 0;
    return 0;
}

void stream_close(struct stream *stream)
{
    if (stream->fd >= 0)
        close(stream->fd);
    frame_reader_release(&stream->in);
    buffer_release(&stream->out);
    *stream = (struct stream){ .fd = -1 };
}
