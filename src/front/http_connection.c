/* http_connection.c: one client's connection: bytes in, requests in turn, bytes out. */
#include "base/base.h"
#include "front/http_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    KEPT_BYTES = 4096,                  /* of an output that is empty, while a stream runs */
    SENT_BYTES = 1 << 20,               /* at a time, to a client that takes all */
    DROPPED_BYTES = 1 << 20,            /* at a time, of what is not read */
    LINGER_BODIES = 4,                  /* times the longest body is dropped at most */
};

static void set_deadline(struct http_connection *c, int ms)
{
    timer_set(c->server->loop, &c->timer, loop_now_ms(c->server->loop) + ms);
}

static void watch_for(struct http_connection *c, uint32_t events)
{
    watch_change(c->server->loop, &c->watch, events);
}

/* ---- who may be given up ---- */
static void leave_line(struct http_connection *c)
{
    if (!c->line_link)
        return;
    *c->line_link = c->next_in_line;
    if (c->next_in_line)
        c->next_in_line->line_link = c->line_link;
    else
        c->line->end = c->line_link;
    c->line_link = NULL;
}

static void join_line(struct http_connection *c, struct http_connection_line *line)
{
    leave_line(c);
    c->next_in_line = NULL;
    c->line = line;
    c->line_link = line->end;
    *line->end = c;
    line->end = &c->next_in_line;
    c->since_ms = loop_now_ms(c->server->loop);
}

bool http_connection_give_up_one(struct http_server *server)
{
    struct http_connection *resting = server->resting.first, *speaking = server->speaking.first;
    bool is_slow = speaking && loop_now_ms(server->loop) - speaking->since_ms >= HTTP_SLOW_MS;
    /* Who has just come may be about to ask: newcomers do not push each other out. */
    struct http_connection *c = is_slow ? speaking : resting;
    if (c)
        http_connection_close(c);
    return c;
}

/* ---- bodies ---- */
static void count_body(struct http_connection *c)
{
    size_t n_bytes = c->parser.body.size + c->n_body_taken;
    c->server->n_body_bytes += n_bytes - c->n_body_counted;
    c->n_body_counted = n_bytes;
}

/* When the answer is there: nobody asks for the request's body any more, and a long one is not kept as long as a stream runs. */
void http_connection_drop_body(struct http_connection *c)
{
    http_server_discard(c->server, &c->parser.body);
    c->n_body_taken = 0;
    count_body(c);
}

/* ---- out ---- */
static bool has_output(const struct http_connection *c)
{
    return c->n_out_sent < c->out.size || c->whole.size;
}

/* What stood in it has been sent. */
static void empty_output(struct http_connection *c)
{
    bool failed = c->out.failed;
    if (c->whole.size || c->out.capacity > KEPT_BYTES)
        http_server_discard(c->server, &c->out);
    if (c->whole.size) {
        c->out = c->whole;
        c->whole = (struct buffer){ 0 };
    } else
        c->out.size = 0;
    c->out.failed = failed;
    c->n_out_sent = 0;
}

/* False: the client is gone, or memory.  What there was no memory for is not sent in part, nor what comes after it. */
static bool send_output(struct http_connection *c, size_t *n_sent)
{
    *n_sent = 0;
    while (!c->out.failed && has_output(c) && *n_sent < SENT_BYTES) {
        size_t n_left = MIN(c->out.size - c->n_out_sent, SENT_BYTES - *n_sent);
        ssize_t n = n_left ? send(c->watch.fd, c->out.bytes + c->n_out_sent, n_left, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;
        if (n < 0 && errno != EINTR)
            return errno == EAGAIN && !c->out.failed;
        c->n_out_sent += (size_t)MAX(n, 0);
        *n_sent += (size_t)MAX(n, 0);
        if (c->n_out_sent == c->out.size)
            empty_output(c);
    }
    return !c->out.failed;
}

static void linger(struct http_connection *c)
{
    if (c->peer_has_closed || shutdown(c->watch.fd, SHUT_WR)) {
        http_connection_close(c);
        return;
    }
    buffer_release(&c->in);
    c->state = CONNECTION_LINGER;
    c->n_dropped = 0;
    join_line(c, &c->server->speaking);
    set_deadline(c, HTTP_LINGER_MS);
    watch_for(c, EPOLLIN);
}

/* As long as it goes on sending, but no longer than a body may take, and not for ever. */
static void drop_input(struct http_connection *c)
{
    const struct http_limits *limits = &c->server->options.limits;
    ssize_t n = recv(c->watch.fd, NULL, DROPPED_BYTES, MSG_DONTWAIT | MSG_TRUNC);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    c->n_dropped += (size_t)MAX(n, 0);
    int64_t left_ms = c->since_ms + limits->body_ms - loop_now_ms(c->server->loop);
    if (n <= 0 || left_ms <= 0 || c->n_dropped / LINGER_BODIES > limits->body_bytes)
        http_connection_close(c);
    else
        set_deadline(c, (int)MIN(left_ms, HTTP_LINGER_MS));
}

static void await_request(struct http_connection *c)
{
    bool has_input = c->n_in_used < c->in.size;
    c->state = CONNECTION_IDLE;
    join_line(c, &c->server->resting);
    set_deadline(c, c->server->options.limits.idle_ms);
    watch_for(c, has_input ? 0 : EPOLLIN);
    if (has_input)
        http_connection_list(c);
}

static void end_answer(struct http_connection *c)
{
    http_exchange_end(c);
    http_parser_next(&c->parser);
    http_server_discard(c->server, &c->out);
    bool is_last = c->must_close || c->server->is_draining || (c->peer_has_closed && c->n_in_used == c->in.size);
    if (is_last)
        linger(c);
    else
        await_request(c);
}

/* Sends what there is; where the socket takes it all, a stream is asked for one more piece. */
static void step_answer(struct http_connection *c)
{
    struct http_exchange *x = &c->exchange;
    size_t n_sent, n_more = 0;
    bool goes_on = !(c->peer_has_closed && !x->has_ended) && send_output(c, &n_sent);
    if (goes_on && !has_output(c)) {
        http_exchange_fill(c);
        goes_on = send_output(c, &n_more);
    }
    if (!goes_on) {
        http_connection_close(c);
        return;
    }
    if (!has_output(c)) {
        timer_clear(c->server->loop, &c->timer);
        if (x->has_ended && !x->fill) {
            end_answer(c);
            return;
        }
        if (x->is_hungry)
            http_connection_list(c);
    } else if (n_sent + n_more || !c->timer.link)
        set_deadline(c, c->server->options.limits.write_ms);
    watch_for(c, (c->peer_has_closed ? 0 : EPOLLRDHUP) | (has_output(c) ? EPOLLOUT : 0));
}

/* ---- in ---- */
static void await_answer(struct http_connection *c)
{
    c->state = CONNECTION_ANSWER;
    leave_line(c);
    timer_clear(c->server->loop, &c->timer);
    http_connection_list(c);
}

static void refuse(struct http_connection *c, int status, const char *text)
{
    if (c->state != CONNECTION_BODY)
        http_exchange_begin(c);
    c->must_close = true;
    http_answer_error(&c->exchange, status, text);
    await_answer(c);
}

static void refuse_for_now(struct http_connection *c, const char *text)
{
    http_add_header(&c->exchange, "Retry-After", "1");
    refuse(c, 503, text);
}

static void take_head(struct http_connection *c)
{
    http_exchange_begin(c);
    c->state = CONNECTION_BODY;
    leave_line(c);
    set_deadline(c, c->server->options.limits.body_ms);
    if (!http_route_head(&c->exchange))
        await_answer(c);
}

static void take_whole(struct http_connection *c)
{
    await_answer(c);
    c->exchange.route->handle(&c->exchange, c->server->options.user);
}

/* To a client that waits for it before it sends its body.  So few bytes fit: everything before them has been sent. */
static void send_continue(struct http_connection *c)
{
    static const char line[] = "HTTP/1.1 100 Continue\r\n\r\n";
    c->parser.request.expects_continue = false;
    if (send(c->watch.fd, line, sizeof line - 1, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)sizeof line - 1)
        shutdown(c->watch.fd, SHUT_RDWR);       /* the next read tells */
}

static void take_more(struct http_connection *c, bool has_body_bytes)
{
    if (c->state == CONNECTION_BODY && c->parser.request.expects_continue && !has_body_bytes)
        send_continue(c);
    if (c->state != CONNECTION_IDLE || !http_parser_has_begun(&c->parser))
        return;
    c->state = CONNECTION_HEAD;
    if (c->is_fresh)                            /* all has run since the accept */
        return;
    join_line(c, &c->server->speaking);
    set_deadline(c, c->server->options.limits.head_ms);
}

/* Up to the end of one request at most; gives how many bytes it used. */
static size_t parse(struct http_connection *c, const char *bytes, size_t n_bytes)
{
    size_t n_used = 0, n = 0;
    while (c->state < CONNECTION_ANSWER) {
        enum http_part part = http_parser_feed(&c->parser, bytes + n_used, n_bytes - n_used, &n);
        n_used += n;
        if (part == HTTP_MORE) {
            take_more(c, n > 0);
            break;
        }
        c->is_fresh = false;
        if (part == HTTP_HEAD)
            take_head(c);
        else if (part == HTTP_WHOLE)
            take_whole(c);
        else
            refuse(c, c->parser.status, c->parser.why);
    }
    count_body(c);
    if (c->state == CONNECTION_BODY && c->server->n_body_bytes > c->server->options.limits.bodies_bytes)
        refuse_for_now(c, "too many long bodies at once");
    return n_used;
}

static void parse_kept(struct http_connection *c)
{
    c->n_in_used += parse(c, c->in.bytes + c->n_in_used, c->in.size - c->n_in_used);
    if (c->n_in_used < c->in.size)
        return;
    buffer_release(&c->in);
    c->n_in_used = 0;
    if (c->state < CONNECTION_ANSWER)
        watch_for(c, EPOLLIN);
}

static void receive(struct http_connection *c)
{
    char *input = c->server->input;
    if (c->state == CONNECTION_LINGER) {
        drop_input(c);
        return;
    }
    ssize_t n = recv(c->watch.fd, input, HTTP_INPUT_BYTES, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        http_connection_close(c);
        return;
    }
    size_t n_used = parse(c, input, (size_t)n);
    if (n_used < (size_t)n)
        buffer_add(&c->in, input + n_used, (size_t)n - n_used);
    c->out.failed |= c->in.failed;
}

/* ---- what drives it ---- */
static void connection_ready(struct watch *watch, uint32_t events)
{
    struct http_connection *c = (struct http_connection *)watch;
    c->peer_has_closed |= (events & EPOLLRDHUP) != 0;
    if (events & (EPOLLERR | EPOLLHUP))
        http_connection_close(c);
    else if (c->state == CONNECTION_ANSWER)
        step_answer(c);
    else
        receive(c);
}

void http_connection_step(struct http_connection *c)
{
    if (c->state == CONNECTION_ANSWER)
        step_answer(c);
    else if (c->n_in_used < c->in.size)
        parse_kept(c);
}

static void deadline_is_over(struct timer *timer)
{
    struct http_connection *c = CONTAINER_OF(timer, struct http_connection, timer);
    if (c->state == CONNECTION_HEAD || c->state == CONNECTION_BODY)
        refuse(c, 408, "the request came too slowly");
    else
        http_connection_close(c);
}

/* ---- lists, its begin and end ---- */
static void put(struct http_connection **link, struct http_connection *c)
{
    *link = c;
    if (c)
        c->listed_link = link;
}

void http_connection_list(struct http_connection *c)
{
    struct http_server *server = c->server;
    if (c->listed_link)
        return;
    c->next_listed = NULL;
    put(&c->next_listed, server->listed);
    put(&server->listed, c);
    timer_set(server->loop, &server->step, loop_now_ms(server->loop));
}

static void unlist(struct http_connection *c)
{
    if (!c->listed_link)
        return;
    put(c->listed_link, c->next_listed);
    c->listed_link = NULL;
}

void http_connections_step(struct timer *timer)
{
    struct http_server *server = CONTAINER_OF(timer, struct http_server, step);
    put(&server->stepping, server->listed);     /* what is listed meanwhile waits for the next turn */
    server->listed = NULL;
    while (server->stepping) {
        struct http_connection *c = server->stepping;
        unlist(c);
        http_connection_step(c);
    }
}

void http_connection_open(struct http_server *server, int fd, const char *address, bool is_too_many)
{
    struct http_connection *c = calloc(1, sizeof *c);
    if (!c) {
        close(fd);
        return;
    }
    *c = (struct http_connection){ .watch = { connection_ready, fd, EPOLLIN }, .timer.due = deadline_is_over };
    c->server = server;
    c->is_fresh = true;
    c->exchange.connection = c;
    snprintf(c->address, sizeof c->address, "%s", address);
    http_parser_init(&c->parser, &server->parse_limits);
    c->next = server->connections;
    c->link = &server->connections;
    if (c->next)
        c->next->link = &c->next;
    server->connections = c;
    server->n_connections++;
    join_line(c, &server->speaking);
    set_deadline(c, server->options.limits.head_ms);
    if (watch_start(server->loop, &c->watch) < 0)
        http_connection_close(c);
    else if (is_too_many) {
        http_exchange_begin(c);
        c->state = CONNECTION_BODY;
        refuse_for_now(c, "too many connections");
    }
}

void http_connection_close(struct http_connection *c)
{
    struct http_exchange *x = &c->exchange;
    struct http_server *server = c->server;
    watch_stop(server->loop, &c->watch);
    timer_clear(server->loop, &c->timer);
    close(c->watch.fd);
    unlist(c);
    leave_line(c);
    if (x->gone)
        x->gone(x->gone_user);
    http_exchange_end(c);
    *c->link = c->next;
    if (c->next)
        c->next->link = c->link;
    server->n_connections--;
    http_connection_drop_body(c);
    http_parser_release(&c->parser);
    buffer_release(&c->in);
    http_server_discard(server, &c->out);
    http_server_discard(server, &c->whole);
    free(c);
}
