#include "wire/server.h"

#include "base/base.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/threads.h"
#include "wire/listener.h"
#include "wire/stream.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define MOST_QUEUED ((size_t)64 << 20)  /* bytes of events that nobody has taken; more is not read */
#define FLUSH_S 1.0                     /* when the server closes */
#define PAUSE_S 0.1                     /* in accepting, when there is no descriptor for a new connection */

/* What a descriptor is to epoll; connections are numbered from N_FIXED on. */
enum { FD_WAKE = 1, FD_LISTENER, FD_STEP_THREAD, N_FIXED };

struct connection {
    uint64_t number;
    struct stream stream;               /* the thread's */
    uint32_t watched;                   /* epoll's events; the thread's */
    struct wire_event *gone;            /* its last event, taken beforehand */
    bool has_hello;

    /* under the lock */
    struct buffer queued;               /* frames of the step thread, until stream.out is empty */
    bool is_dropped;
};

struct wire_server {
    uint64_t epoch;
    struct listener listener;
    char address[128];
    struct buffer hello;                /* as every connection gets it */
    int epoll, wake;
    bool has_thread;
    pthread_t thread;
    uint64_t next_number;
    double accept_again_s;              /* INFINITY while the listener is watched; the thread's */

    pthread_mutex_t lock;
    pthread_cond_t came;                /* an event, or is_woken */
    struct connection *connection[WIRE_MAX_CONNECTIONS];        /* written by the thread alone, under the lock */
    bool is_woken;                      /* the step thread, by the descriptor that it has named */
    struct wire_event *first, **end;
    size_t n_queued_bytes;
    bool is_closing;
};

static void lock(struct wire_server *server)
{
    pthread_mutex_lock(&server->lock);
}

static void unlock(struct wire_server *server)
{
    pthread_mutex_unlock(&server->lock);
}

static void wake_thread(struct wire_server *server)
{
    const uint64_t one = 1;
    if (write(server->wake, &one, sizeof one) < 0)
        return;                         /* it is as high as it goes: the thread is awake */
}

/* ---- events ---- */
void wire_event_free(struct wire_event *event)
{
    if (event)
        frame_release(&event->frame);
    free(event);
}

static void put_event(struct wire_server *server, struct wire_event *event)
{
    lock(server);
    *server->end = event;
    server->end = &event->next;
    server->n_queued_bytes += event->frame.n_bytes;
    pthread_cond_signal(&server->came);
    unlock(server);
}

static struct timespec after_ms(int ms)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    long ns = t.tv_nsec + ms % 1000 * 1000000L;
    return (struct timespec){ t.tv_sec + ms / 1000 + ns / 1000000000, ns % 1000000000 };
}

struct wire_event *wire_server_take(struct wire_server *server, int wait_ms)
{
    struct timespec until = after_ms(wait_ms);
    bool was_full = false;
    lock(server);
    while (!server->first && !server->is_woken)
        if (!wait_ms || pthread_cond_timedwait(&server->came, &server->lock, &until) == ETIMEDOUT)
            break;
    server->is_woken = false;
    struct wire_event *event = server->first;
    if (event) {
        server->first = event->next;
        if (!server->first)
            server->end = &server->first;
        was_full = server->n_queued_bytes > MOST_QUEUED;
        server->n_queued_bytes -= event->frame.n_bytes;
        was_full = was_full && server->n_queued_bytes <= MOST_QUEUED;
    }
    unlock(server);
    if (was_full)
        wake_thread(server);            /* it may read again */
    return event;
}

void wire_server_wake_by(struct wire_server *server, int fd)
{
    struct epoll_event event = { .events = EPOLLIN | EPOLLONESHOT, .data.u64 = FD_STEP_THREAD };
    epoll_ctl(server->epoll, EPOLL_CTL_ADD, fd, &event);
}

/* ---- sending, by the step thread ---- */
static int queue_frame(struct connection *c, const Stoa__Wire__Frame *frame)
{
    int err = c->is_dropped ? error_set(ERR_PEER, "the connection has been dropped") : frame_append(&c->queued, frame);
    if (err == ERR_NO_MEMORY || c->queued.size > STREAM_MOST_WAITING)
        c->is_dropped = true;           /* the thread ends it: a front that misses a frame would wait for ever */
    return err;
}

int wire_server_send(struct wire_server *server, uint64_t connection, Stoa__Wire__Frame *frame)
{
    int err = connection == WIRE_ALL ? 0 : error_set(ERR_PEER, "there is no connection %llu", (unsigned long long)connection);
    frame->epoch = server->epoch;
    lock(server);
    for (size_t i = 0; i < WIRE_MAX_CONNECTIONS; i++) {
        struct connection *c = server->connection[i];
        if (c && connection == WIRE_ALL)
            queue_frame(c, frame);      /* whom it does not reach is gone, and that is no matter here */
        else if (c && c->number == connection)
            err = queue_frame(c, frame);
    }
    unlock(server);
    wake_thread(server);
    return err;
}

void wire_server_drop(struct wire_server *server, uint64_t connection, const char *why)
{
    lock(server);
    for (size_t i = 0; i < WIRE_MAX_CONNECTIONS; i++)
        if (server->connection[i] && server->connection[i]->number == connection)
            server->connection[i]->is_dropped = true;
    unlock(server);
    log_warning("a front's connection is closed: %s", why);
    wake_thread(server);
}

/* ---- the thread: connections ---- */
static void free_connection(struct connection *c)
{
    stream_close(&c->stream);
    buffer_release(&c->queued);
    wire_event_free(c->gone);
    free(c);
}

/* Whatever was sent to it is lost. */
static void end_connection(struct wire_server *server, struct connection **place)
{
    struct connection *c = *place;
    lock(server);
    *place = NULL;
    unlock(server);
    if (c->has_hello) {
        put_event(server, c->gone);
        c->gone = NULL;
    }
    free_connection(c);
}

/* A free place, or that of the connection that has been silent for the longest. */
static struct connection **find_place(struct wire_server *server)
{
    struct connection **silent = NULL;
    for (size_t i = 0; i < WIRE_MAX_CONNECTIONS; i++) {
        struct connection **place = &server->connection[i];
        if (!*place)
            return place;
        if (!(*place)->has_hello && (!silent || (*place)->number < (*silent)->number))
            silent = place;
    }
    if (silent)
        end_connection(server, silent);
    return silent;
}

static struct connection *open_connection(struct wire_server *server, int fd)
{
    struct connection *c = calloc(1, sizeof *c);
    struct wire_event *gone = calloc(1, sizeof *gone);
    struct epoll_event watch = { .events = EPOLLIN, .data.u64 = server->next_number };
    if (c && gone) {
        *c = (struct connection){ .number = server->next_number++, .stream.fd = fd, .watched = watch.events, .gone = gone };
        *gone = (struct wire_event){ .kind = WIRE_GONE, .connection = c->number };
        buffer_add(&c->stream.out, server->hello.bytes, server->hello.size);
        if (!c->stream.out.failed && epoll_ctl(server->epoll, EPOLL_CTL_ADD, fd, &watch) == 0)
            return c;
        free_connection(c);
        return NULL;
    }
    free(c);
    free(gone);
    close(fd);
    return NULL;
}

static void listen_for(struct wire_server *server, uint32_t events)
{
    struct epoll_event watch = { .events = events, .data.u64 = FD_LISTENER };
    epoll_ctl(server->epoll, EPOLL_CTL_MOD, server->listener.fd, &watch);
}

/* Without descriptors or memory a connection stays in the queue, which would wake us at once again: so it is left alone for a moment. */
static void accept_one(struct wire_server *server)
{
    int fd = accept4(server->listener.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            listen_for(server, 0);
            server->accept_again_s = seconds_now() + PAUSE_S;
        }
        return;
    }
    struct connection **place = find_place(server), *c = place ? open_connection(server, fd) : NULL;
    if (!place) {
        close(fd);
        log_warning("a front is turned away: there are %d connections", WIRE_MAX_CONNECTIONS);
    } else if (c) {
        lock(server);
        *place = c;
        unlock(server);
    }
}

/* ---- the thread: frames ---- */
static int take_hello(struct wire_server *server, struct connection *c, const Stoa__Wire__Frame *frame)
{
    if (frame->body_case != STOA__WIRE__FRAME__BODY_HELLO)
        return error_set(ERR_PEER, "its first frame is no Hello");
    if (frame->hello->protocol != WIRE_PROTOCOL)
        return error_set(ERR_PEER, "it speaks protocol %u, wanted %u", frame->hello->protocol, WIRE_PROTOCOL);
    if (frame->epoch != server->epoch)
        return error_set(ERR_PEER, "it wants epoch %llu, this is %llu", (unsigned long long)frame->epoch,
                         (unsigned long long)server->epoch);
    c->has_hello = true;
    return 0;
}

/* Takes the frame over when it becomes an event. */
static int make_event(struct wire_server *server, struct connection *c, struct frame *frame)
{
    const Stoa__Wire__Frame *message = frame->message;
    bool is_submit = message->body_case == STOA__WIRE__FRAME__BODY_SUBMIT;
    struct wire_event *event = calloc(1, sizeof *event);
    if (!event)
        return error_set(ERR_NO_MEMORY, "no memory for a request");
    *event = (struct wire_event){ .kind = is_submit ? WIRE_SUBMIT : WIRE_CANCEL, .connection = c->number, .frame = *frame };
    event->submit = is_submit ? message->submit : NULL;
    event->request = is_submit ? message->submit->request : message->cancel->request;
    *frame = (struct frame){ 0 };
    put_event(server, event);
    return 0;
}

static int take_frame(struct wire_server *server, struct connection *c, struct frame *frame)
{
    const Stoa__Wire__Frame *message = frame->message;
    if (!c->has_hello)
        return take_hello(server, c, message);
    if (message->epoch != server->epoch)
        return 0;
    switch (message->body_case) {
    case STOA__WIRE__FRAME__BODY__NOT_SET:
        return 0;                       /* of a kind that is not known here */
    case STOA__WIRE__FRAME__BODY_SUBMIT:
    case STOA__WIRE__FRAME__BODY_CANCEL:
        return make_event(server, c, frame);
    default:
        return error_set(ERR_PEER, "it sends what only a replica sends");
    }
}

static int take_frames(struct wire_server *server, struct connection *c)
{
    struct frame frame;
    int got;
    while ((got = frame_reader_next(&c->stream.in, &frame)) > 0) {
        int err = take_frame(server, c, &frame);
        frame_release(&frame);
        if (err < 0) {
            log_warning("a front's connection is closed: %s", error_text());
            return err;
        }
    }
    if (got < 0)
        log_warning("a front's connection is closed: %s", error_text());
    return got;
}

/* Ends the connection when nothing more can come. */
static void read_connection(struct wire_server *server, uint64_t number, uint32_t events)
{
    for (size_t i = 0; i < WIRE_MAX_CONNECTIONS; i++) {
        struct connection *c = server->connection[i];
        if (!c || c->number != number)
            continue;
        bool may_read = c->watched & EPOLLIN;       /* else only a broken link is told of */
        int err = may_read ? stream_receive(&c->stream) : events & (EPOLLHUP | EPOLLERR) ? ERR_PEER : 0;
        if (err > 0)
            err = take_frames(server, c);
        if (err < 0)
            end_connection(server, &server->connection[i]);
    }
}

/* Takes over what the step thread has queued, when all that was taken over before has been sent.  False: there is nothing to send. */
static bool take_queued(struct wire_server *server, struct connection *c)
{
    lock(server);
    if (!stream_n_waiting(&c->stream)) {
        struct buffer sent = c->stream.out;
        c->stream.out = c->queued;
        c->queued = sent;
    }
    unlock(server);
    return stream_n_waiting(&c->stream);
}

/* Sends what the socket takes, and says what is waited for. */
static int serve_connection(struct wire_server *server, struct connection *c, bool may_read)
{
    int err = 0;
    while (!err && take_queued(server, c)) {
        err = stream_send(&c->stream);
        if (stream_n_waiting(&c->stream))
            break;
    }
    lock(server);
    if (c->is_dropped)
        err = ERR_PEER;
    unlock(server);
    uint32_t wanted = (may_read ? EPOLLIN : 0) | (stream_n_waiting(&c->stream) ? EPOLLOUT : 0);
    struct epoll_event watch = { .events = wanted, .data.u64 = c->number };
    if (err < 0 || wanted == c->watched)
        return err;
    c->watched = wanted;
    return epoll_ctl(server->epoll, EPOLL_CTL_MOD, c->stream.fd, &watch);
}

/* ---- the thread ---- */
static bool anything_waits(const struct wire_server *server)
{
    bool waits = false;
    for (size_t i = 0; i < WIRE_MAX_CONNECTIONS; i++)
        waits = waits || (server->connection[i] && stream_n_waiting(&server->connection[i]->stream));
    return waits;
}

/* True when the server closes. */
static bool serve_connections(struct wire_server *server)
{
    lock(server);
    bool may_read = server->n_queued_bytes <= MOST_QUEUED, is_closing = server->is_closing;
    unlock(server);
    for (size_t i = 0; i < WIRE_MAX_CONNECTIONS; i++)
        if (server->connection[i] && serve_connection(server, server->connection[i], may_read) < 0)
            end_connection(server, &server->connection[i]);
    return is_closing;
}

static void take_wake(struct wire_server *server)
{
    uint64_t n;
    if (read(server->wake, &n, sizeof n) < 0)
        return;
}

static void wake_step_thread(struct wire_server *server)
{
    lock(server);
    server->is_woken = true;
    pthread_cond_signal(&server->came);
    unlock(server);
}

/* How long to wait for news. */
static int patience_ms(struct wire_server *server, bool is_ending)
{
    double left_s = server->accept_again_s - seconds_now();
    if (left_s <= 0) {
        listen_for(server, EPOLLIN);
        server->accept_again_s = INFINITY;
    }
    return is_ending ? 10 : server->accept_again_s < INFINITY ? (int)ceil(left_s * 1000) : -1;
}

static void *run(void *user)
{
    struct wire_server *server = user;
    double end_s = INFINITY;
    memory_fill_caches();
    while (seconds_now() < end_s) {
        struct epoll_event events[WIRE_MAX_CONNECTIONS];
        int n = epoll_wait(server->epoll, events, WIRE_MAX_CONNECTIONS, patience_ms(server, end_s < INFINITY));
        for (int i = 0; i < n; i++)
            if (events[i].data.u64 == FD_WAKE)
                take_wake(server);
            else if (events[i].data.u64 == FD_LISTENER)
                accept_one(server);
            else if (events[i].data.u64 == FD_STEP_THREAD)
                wake_step_thread(server);
            else
                read_connection(server, events[i].data.u64, events[i].events);
        bool is_closing = serve_connections(server);
        if (is_closing && end_s == INFINITY)
            end_s = seconds_now() + FLUSH_S;
        if (is_closing && !anything_waits(server))
            break;
    }
    return NULL;
}

/* ---- open and close ---- */
static int pack_hello(struct wire_server *server, const Stoa__Wire__Hello *from)
{
    Stoa__Wire__Hello hello = *from;
    Stoa__Wire__Frame frame = STOA__WIRE__FRAME__INIT;
    hello.protocol = WIRE_PROTOCOL;
    frame.epoch = server->epoch;
    frame.body_case = STOA__WIRE__FRAME__BODY_HELLO;
    frame.hello = &hello;
    return frame_append(&server->hello, &frame);
}

static int watch(struct wire_server *server, int fd, uint64_t what)
{
    struct epoll_event event = { .events = EPOLLIN, .data.u64 = what };
    return fd < 0 ? -1 : epoll_ctl(server->epoll, EPOLL_CTL_ADD, fd, &event);
}

static int start_thread(struct wire_server *server)
{
    int error = thread_start(&server->thread, NULL, run, server);
    server->has_thread = !error;
    return error ? error_set(ERR_NO_MEMORY, "no thread for the connections: %s", strerror(error)) : 0;
}

static int open_descriptors(struct wire_server *server)
{
    server->epoll = epoll_create1(EPOLL_CLOEXEC);
    server->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (server->epoll < 0 || watch(server, server->wake, FD_WAKE) < 0 || watch(server, server->listener.fd, FD_LISTENER) < 0)
        return error_set(ERR_FAILED, "epoll: %s", strerror(errno));
    return 0;
}

static struct wire_server *new_server(void)
{
    struct wire_server *server = calloc(1, sizeof *server);
    pthread_condattr_t monotonic;
    if (!server)
        return NULL;
    server->listener.fd = server->epoll = server->wake = -1;
    server->next_number = N_FIXED;
    server->accept_again_s = INFINITY;
    server->end = &server->first;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&server->came, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&server->lock, NULL);
    return server;
}

int wire_server_open(struct wire_server **out, const struct wire_server_options *options)
{
    struct wire_server *server = new_server();
    int err;
    if (!server)
        return error_set(ERR_NO_MEMORY, "no memory for a server");
    server->epoch = options->epoch;
    if ((err = pack_hello(server, options->hello)) < 0 || (err = listener_open(&server->listener, options->address)) < 0 ||
        (err = open_descriptors(server)) < 0 || (err = start_thread(server)) < 0)
        goto done;
    listener_print(&server->listener, server->address, sizeof server->address);
    *out = server;
    server = NULL;
done:
    wire_server_close(server);
    return err;
}

static void end_thread(struct wire_server *server)
{
    lock(server);
    server->is_closing = true;
    unlock(server);
    wake_thread(server);
    pthread_join(server->thread, NULL);
}

void wire_server_close(struct wire_server *server)
{
    if (!server)
        return;
    if (server->has_thread)
        end_thread(server);
    listener_close(&server->listener);
    for (size_t i = 0; i < WIRE_MAX_CONNECTIONS; i++)
        if (server->connection[i])
            free_connection(server->connection[i]);
    for (struct wire_event *event = server->first, *next; event; event = next) {
        next = event->next;
        wire_event_free(event);
    }
    if (server->epoll >= 0)
        close(server->epoll);
    if (server->wake >= 0)
        close(server->wake);
    pthread_cond_destroy(&server->came);
    pthread_mutex_destroy(&server->lock);
    buffer_release(&server->hello);
    free(server);
}

const char *wire_server_address(const struct wire_server *server)
{
    return server->address;
}
