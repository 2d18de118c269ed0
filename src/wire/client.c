#include "wire/client.h"

#include "base/base.h"
#include "base/error.h"
#include "wire/address.h"
#include "wire/stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

struct wire_client {
    struct wire_client_options options;
    struct stream stream;
    uint64_t epoch;
    bool is_connected, has_hello, is_over;
    bool *is_closed;            /* where a call of wire_client_ready() that is under way learns of it */
};

/* ---- opening ---- */
static int start(struct wire_client *client, const struct address *address, const char *text)
{
    int fd = socket(address->socket.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    client->stream.fd = fd;
    if (fd < 0)
        return error_set(ERR_FAILED, "%s: %s", text, strerror(errno));
    client->is_connected = connect(fd, &address->socket.any, address->n_bytes) == 0;
    return client->is_connected || errno == EINPROGRESS ? 0 : error_set(ERR_PEER, "%s: %s", text, strerror(errno));
}

int wire_client_open(struct wire_client **out, const struct wire_client_options *options)
{
    struct address address;
    int err = address_read(&address, options->address);
    if (err < 0)
        return err;
    struct wire_client *client = calloc(1, sizeof *client);
    if (!client)
        return error_set(ERR_NO_MEMORY, "no memory for a connection");
    client->options = *options;
    client->epoch = options->epoch;
    if ((err = start(client, &address, options->address)) < 0) {
        wire_client_close(client);
        return err;
    }
    *out = client;
    return 0;
}

void wire_client_close(struct wire_client *client)
{
    if (!client)
        return;
    if (client->is_closed)
        *client->is_closed = true;
    stream_close(&client->stream);
    free(client);
}

int wire_client_fd(const struct wire_client *client)
{
    return client->stream.fd;
}

uint32_t wire_client_events(const struct wire_client *client)
{
    if (client->is_over)
        return 0;
    return EPOLLIN | (!client->is_connected || stream_n_waiting(&client->stream) ? EPOLLOUT : 0);
}

/* ---- frames ---- */
static int append(struct wire_client *client, Stoa__Wire__Frame *frame)
{
    if (stream_n_waiting(&client->stream) > STREAM_MOST_WAITING)
        return error_set(ERR_FULL, "%zu bytes are waiting for the replica", stream_n_waiting(&client->stream));
    frame->epoch = client->epoch;
    return frame_append(&client->stream.out, frame);
}

int wire_client_send(struct wire_client *client, Stoa__Wire__Frame *frame)
{
    if (client->is_over || !client->has_hello)
        return error_set(ERR_PEER, client->is_over ? "the connection is over" : "the replica has not said Hello yet");
    int err = append(client, frame);
    if (!err)
        stream_send(&client->stream);           /* should it fail, wire_client_ready() will see it too */
    return err;
}

size_t wire_client_n_waiting(const struct wire_client *client)
{
    return stream_n_waiting(&client->stream);
}

static int take_hello(struct wire_client *client, const Stoa__Wire__Frame *frame)
{
    if (frame->body_case != STOA__WIRE__FRAME__BODY_HELLO)
        return error_set(ERR_PEER, "its first frame is no Hello");
    if (frame->hello->protocol != WIRE_PROTOCOL)
        return error_set(ERR_PEER, "it speaks protocol %u, wanted %u", frame->hello->protocol, WIRE_PROTOCOL);
    if (client->epoch && frame->epoch != client->epoch)
        return error_set(ERR_PEER, "it is of epoch %llu, wanted %llu", (unsigned long long)frame->epoch, (unsigned long long)client->epoch);
    client->epoch = frame->epoch;
    client->has_hello = true;
    Stoa__Wire__Hello hello = STOA__WIRE__HELLO__INIT;
    Stoa__Wire__Frame answer = STOA__WIRE__FRAME__INIT;
    hello.protocol = WIRE_PROTOCOL;
    answer.body_case = STOA__WIRE__FRAME__BODY_HELLO;
    answer.hello = &hello;
    return append(client, &answer);
}

static int take_frame(struct wire_client *client, const Stoa__Wire__Frame *frame)
{
    int err = 0;
    if (client->has_hello && (frame->epoch != client->epoch || frame->body_case == STOA__WIRE__FRAME__BODY__NOT_SET))
        return 0;                               /* of an old replica, or of a kind that is not known */
    if (!client->has_hello)
        err = take_hello(client, frame);
    if (!err)
        client->options.on_frame(client->options.user, frame);
    return err;
}

/* All frames that are whole.  Stops when the client is closed meanwhile. */
static int take_frames(struct wire_client *client, const bool *is_closed)
{
    struct frame frame;
    int got;
    while ((got = frame_reader_next(&client->stream.in, &frame)) > 0) {
        int err = take_frame(client, frame.message);
        frame_release(&frame);
        if (*is_closed || err < 0)
            return err;
    }
    return got;
}

/* ---- the socket ---- */
static int finish_connecting(struct wire_client *client)
{
    int error = 0;
    socklen_t n_bytes = sizeof error;
    getsockopt(client->stream.fd, SOL_SOCKET, SO_ERROR, &error, &n_bytes);
    client->is_connected = true;
    return error ? error_set(ERR_PEER, "%s", strerror(error)) : 0;
}

/* Some 64 KB at a time, so that a busy replica does not hold up the front's other business. */
static int serve(struct wire_client *client, uint32_t events, const bool *is_closed)
{
    int err = 0;
    if (!client->is_connected && events & (EPOLLOUT | EPOLLERR | EPOLLHUP))
        err = finish_connecting(client);
    if (!err && client->is_connected && events & (EPOLLIN | EPOLLERR | EPOLLHUP) && (err = stream_receive(&client->stream)) > 0)
        err = take_frames(client, is_closed);
    return err < 0 || *is_closed || !client->is_connected ? err : stream_send(&client->stream);
}

void wire_client_ready(struct wire_client *client, uint32_t events)
{
    bool is_closed = false;
    if (client->is_over)
        return;
    client->is_closed = &is_closed;
    int err = serve(client, events, &is_closed);
    if (is_closed)
        return;
    client->is_closed = NULL;
    if (err < 0) {
        client->is_over = true;
        client->options.on_end(client->options.user, error_text());
    }
}
