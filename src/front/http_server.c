/* http_server.c: listening, accepting, and the end. */
#include "base/base.h"
#include "base/error.h"
#include "base/log.h"
#include "front/http_impl.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

const struct http_limits http_usual_limits = {
    .head_bytes = 64 << 10, .body_bytes = 64 << 20, .bodies_bytes = 1 << 30, .connections = 4096,
    .head_ms = 10000, .body_ms = 60000, .idle_ms = 75000, .write_ms = 30000,
};

enum { ACCEPTS_A_TURN = 64, BACKLOG = 1024, PAUSE_MS = 100, OTHER_FILES = 128, SEND_BUFFER_BYTES = 128 << 10, SILENCE_MS = 60000 };

/* ---- accepting ---- */
static void listen_for(struct http_server *server, uint32_t events)
{
    for (int i = 0; i < server->n_listeners; i++)
        watch_change(server->loop, &server->listener[i].watch, events);
}

static void accept_again(struct timer *timer)
{
    listen_for(CONTAINER_OF(timer, struct http_server, accept_again), EPOLLIN);
}

/* Of an IPv6 address the network stays, 64 bits: whoever has one has all of its addresses. */
static void forget_host(struct sockaddr_storage *address)
{
    struct in6_addr *ip = &((struct sockaddr_in6 *)address)->sin6_addr;
    if (address->ss_family == AF_INET6 && !IN6_IS_ADDR_V4MAPPED(ip))
        memset(ip->s6_addr + 8, 0, 8);
}

static void take_client(struct http_server *server, int fd, struct sockaddr_storage *from, socklen_t n_from)
{
    char address[INET6_ADDRSTRLEN] = "";
    bool is_too_many = server->n_connections >= server->most_connections && !http_connection_give_up_one(server);
    if (server->n_connections >= server->most_connections + HTTP_SPARE_CONNECTIONS) {
        close(fd);
        return;
    }
    forget_host(from);
    getnameinfo((const struct sockaddr *)from, n_from, address, sizeof address, NULL, 0, NI_NUMERICHOST);
    bool is_mapped = !strncmp(address, "::ffff:", 7) && strchr(address, '.');
    http_connection_open(server, fd, address + (is_mapped ? 7 : 0), is_too_many);
}

/* Without descriptors or memory a connection stays in the queue, which would wake us at once again: so it is left alone for a moment. */
static void listener_ready(struct watch *watch, uint32_t events)
{
    struct http_server *server = ((struct http_listener *)watch)->server;
    (void)events;
    for (int i = 0; i < ACCEPTS_A_TURN; i++) {
        struct sockaddr_storage from;
        socklen_t n_from = sizeof from;
        int fd = accept4(watch->fd, (struct sockaddr *)&from, &n_from, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0)
            take_client(server, fd, &from, n_from);
        else if (errno == EAGAIN)
            return;
        else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            listen_for(server, 0);
            timer_set(server->loop, &server->accept_again, loop_now_ms(server->loop) + PAUSE_MS);
            return;
        }
    }
}

/* ---- listening ---- */
/* Accepted sockets inherit these.  A token is not held back; a client that reads slowly holds little of the kernel's memory, so that it is
 * seen; one whose machine is gone answers no probe, and is seen too. */
static void set_options(int fd, const struct addrinfo *at, bool is_only)
{
    static const struct { int level, name, value; } options[] = {
        { SOL_SOCKET, SO_REUSEADDR, 1 },    { IPPROTO_TCP, TCP_NODELAY, 1 },    { SOL_SOCKET, SO_SNDBUF, SEND_BUFFER_BYTES },
        { SOL_SOCKET, SO_KEEPALIVE, 1 },    { IPPROTO_TCP, TCP_KEEPIDLE, 30 },  { IPPROTO_TCP, TCP_KEEPINTVL, 10 },
        { IPPROTO_TCP, TCP_KEEPCNT, 3 },    { IPPROTO_TCP, TCP_USER_TIMEOUT, SILENCE_MS },
    };
    int only_v6 = !is_only;
    for (size_t i = 0; i < COUNT_OF(options); i++)
        setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof options[i].value);
    if (at->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only_v6, sizeof only_v6);
}

static bool same_host(const struct sockaddr *a, const struct sockaddr *b)
{
    if (a->sa_family != b->sa_family)
        return false;
    if (a->sa_family == AF_INET6)
        return !memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr, &((const struct sockaddr_in6 *)b)->sin6_addr, sizeof(struct in6_addr));
    return ((const struct sockaddr_in *)a)->sin_addr.s_addr == ((const struct sockaddr_in *)b)->sin_addr.s_addr;
}

static void set_port(struct sockaddr *address, uint16_t port)
{
    if (address->sa_family == AF_INET6)
        ((struct sockaddr_in6 *)address)->sin6_port = htons(port);
    else
        ((struct sockaddr_in *)address)->sin_port = htons(port);
}

static uint16_t bound_port(int fd)
{
    struct sockaddr_storage at = { 0 };
    socklen_t n = sizeof at;
    getsockname(fd, (struct sockaddr *)&at, &n);
    return ntohs(at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port : ((struct sockaddr_in *)&at)->sin_port);
}

/* -1 and errno, or 0. */
static int listen_at(struct http_server *server, const struct addrinfo *at, bool is_only)
{
    struct http_listener *listener = &server->listener[server->n_listeners];
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    set_options(fd, at, is_only);
    set_port(at->ai_addr, server->port);
    *listener = (struct http_listener){ { listener_ready, fd, EPOLLIN }, server };
    if (bind(fd, at->ai_addr, at->ai_addrlen) || listen(fd, BACKLOG) || watch_start(server->loop, &listener->watch) < 0) {
        int err = errno;
        close(fd);
        errno = err;
        return -1;
    }
    server->port = bound_port(fd);
    server->n_listeners++;
    return 0;
}

/* Some hosts files make of a name the same address twice. */
static bool is_repeated(const struct addrinfo *first, const struct addrinfo *at)
{
    for (; first != at; first = first->ai_next)
        if (same_host(first->ai_addr, at->ai_addr))
            return true;
    return false;
}

/* A name may stand for several addresses, as localhost does.  One that this machine does not have (IPv6 is often off) is no error while
 * another works; one that is taken is: somebody else would get a part of our clients. */
static int listen_at_all(struct http_server *server, const char *host)
{
    struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE }, *found;
    int err = getaddrinfo(host, NULL, &hints, &found), why = 0;
    if (err)
        return error_set(ERR_USAGE, "cannot listen on %s: %s", host, gai_strerror(err));
    for (const struct addrinfo *at = found; at && server->n_listeners < HTTP_MOST_LISTENERS; at = at->ai_next)
        if (!is_repeated(found, at) && listen_at(server, at, !found->ai_next) && (!why || errno == EADDRINUSE))
            why = errno;
    freeaddrinfo(found);
    if (why == EADDRINUSE || !server->n_listeners)
        return error_set(ERR_USAGE, "cannot listen on %s, port %u: %s", host, server->options.port, strerror(why));
    return 0;
}

/* ---- memory ---- */
static void discard_more(struct timer *timer)
{
    struct http_server *server = CONTAINER_OF(timer, struct http_server, discarding);
    if (discard_step(&server->discard))
        timer_set(server->loop, timer, loop_now_ms(server->loop));
}

void http_server_discard(struct http_server *server, struct buffer *buffer)
{
    discard_add(&server->discard, buffer->bytes, buffer->size);
    *buffer = (struct buffer){ 0 };
    if (server->discard.first)
        timer_set(server->loop, &server->discarding, loop_now_ms(server->loop));
}

/* ---- the server ---- */
/* The connections that descriptors allow, the limit being raised where it may be; at least one. */
static uint32_t find_room(uint32_t n_wanted)
{
    struct rlimit files;
    rlim_t n_others = HTTP_SPARE_CONNECTIONS + OTHER_FILES;
    if (getrlimit(RLIMIT_NOFILE, &files))
        return n_wanted;
    if (files.rlim_cur < n_wanted + n_others) {
        files.rlim_cur = MIN(files.rlim_max, n_wanted + n_others);
        setrlimit(RLIMIT_NOFILE, &files);
        getrlimit(RLIMIT_NOFILE, &files);
    }
    rlim_t n = files.rlim_cur <= n_others ? 1 : MIN(n_wanted, files.rlim_cur - n_others);
    if (n < n_wanted)
        log_warning("with %llu open files at most (ulimit -n), clients have %llu connections instead of %u",
                    (unsigned long long)files.rlim_cur, (unsigned long long)n, n_wanted);
    return (uint32_t)n;
}

int http_server_open(struct http_server **out, struct loop *loop, const struct http_options *options)
{
    struct http_server *server = calloc(1, sizeof *server);
    if (!server)
        return error_set(ERR_NO_MEMORY, "no memory for the HTTP server");
    server->loop = loop;
    server->options = *options;
    server->port = options->port;
    server->parse_limits = (struct http_parse_limits){ options->limits.head_bytes, options->limits.body_bytes };
    server->accept_again.due = accept_again;
    server->step.due = http_connections_step;
    server->resting.end = &server->resting.first;
    server->speaking.end = &server->speaking.first;
    server->discarding.due = discard_more;
    server->most_connections = find_room(options->limits.connections);
    if (getrandom(&server->id_key, sizeof server->id_key, 0) < 0)
        server->id_key = (uint64_t)(uintptr_t)server ^ (uint64_t)loop_now_ms(loop);
    int err = listen_at_all(server, options->host);
    if (err < 0) {
        http_server_close(server);
        return err;
    }
    *out = server;
    return 0;
}

uint16_t http_server_port(const struct http_server *server)
{
    return server->port;
}

uint32_t http_server_n_connections(const struct http_server *server)
{
    return server->n_connections;
}

static void stop_listening(struct http_server *server)
{
    timer_clear(server->loop, &server->accept_again);
    for (int i = 0; i < server->n_listeners; i++) {
        watch_stop(server->loop, &server->listener[i].watch);
        close(server->listener[i].watch.fd);
    }
    server->n_listeners = 0;
}

void http_server_drain(struct http_server *server)
{
    stop_listening(server);
    server->is_draining = true;
    for (struct http_connection *c = server->connections, *next; c; c = next) {
        next = c->next;
        if (c->state == CONNECTION_IDLE && c->n_in_used == c->in.size)
            http_connection_close(c);
    }
}

void http_server_close(struct http_server *server)
{
    if (!server)
        return;
    stop_listening(server);
    while (server->connections)
        http_connection_close(server->connections);
    timer_clear(server->loop, &server->step);
    timer_clear(server->loop, &server->discarding);
    while (discard_step(&server->discard))
        ;
    buffer_release(&server->piece);
    free(server);
}
