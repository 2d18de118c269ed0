/* test_http.c: the HTTP server on real sockets: a thread runs its loop with routes made for the test, this one is its clients. */
#include "base/buffer.h"
#include "base/error.h"
#include "base/threads.h"
#include "front/http.h"
#include "tests/check.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { WAIT_MS = 10000, LATER_MS = 20 };        /* WAIT_MS: for what must come; a test that hangs is ended by it */

/* ---- the server ---- */
static struct loop *loop;
static struct http_server *server;
static pthread_t thread;
static atomic_int n_gone, n_filled, n_answered, n_open, n_wrong;
static _Atomic(const char *) last_route;
static atomic_int last_status;

struct later {                  /* an exchange that is answered by a timer, or never */
    struct timer timer;
    struct http_exchange *x;
    int n_left;                 /* pieces of a stream */
    bool ends_outside;
};

static void forget(struct later *l)
{
    timer_clear(loop, &l->timer);
    free(l);
    atomic_fetch_sub(&n_open, 1);
}

static void is_gone(void *user)
{
    atomic_fetch_add(&n_gone, 1);
    forget(user);
}

static struct later *hold(struct http_exchange *x)
{
    struct later *l = calloc(1, sizeof *l);
    l->x = x;
    atomic_fetch_add(&n_open, 1);
    http_on_gone(x, is_gone, l);
    return l;
}

static void hello(struct http_exchange *x, void *user)
{
    (void)user;
    http_answer(x, 200, "text/plain", "hello", 5);
}

static void answer_later(struct timer *timer)
{
    struct later *l = (struct later *)timer;
    struct http_exchange *x = l->x;
    forget(l);
    http_answer(x, 200, "text/plain", "later", 5);
}

static void later(struct http_exchange *x, void *user)
{
    struct later *l = hold(x);
    (void)user;
    l->timer.due = answer_later;
    timer_set(loop, &l->timer, loop_now_ms(loop) + LATER_MS);
}

static void never(struct http_exchange *x, void *user)
{
    (void)user;
    hold(x);
}

static void echo(struct http_exchange *x, void *user)
{
    size_t n;
    const char *body = http_body(x, &n);
    (void)user;
    http_answer(x, 200, "application/json", body, n);
}

/* What a handler sees of a request. */
static void show(struct http_exchange *x, void *user)
{
    struct buffer out = { 0 };
    size_t n;
    const char *header = http_header(x, "X-A");
    http_body(x, &n);
    (void)user;
    buffer_printf(&out, "%s %s rest=%s x-a=%s body=%zu from=%s id=%s", http_method(x), http_path(x), http_path_rest(x), header ? header : "-", n,
                  http_client_address(x), http_request_id(x));
    http_add_header(x, "X-B", "one\r\nX-Evil: yes");
    http_answer(x, 200, "text/plain", out.bytes, out.size);
    buffer_release(&out);
}

/* Pieces "piece 3\n" .. "piece 1\n", each after a timer. */
static void fill_tick(struct buffer *out, void *user)
{
    struct later *l = user;
    struct http_exchange *x = l->x;
    if (l->timer.link)
        return;
    buffer_printf(out, "piece %d\n", l->n_left--);
    if (l->n_left) {
        timer_set(loop, &l->timer, loop_now_ms(loop) + LATER_MS);
        return;
    }
    forget(l);
    http_stream_end(x);
}

static void tick(struct timer *timer)
{
    http_stream_wake(((struct later *)timer)->x);
}

static void stream(struct http_exchange *x, void *user)
{
    struct later *l = hold(x);
    (void)user;
    l->timer.due = tick;
    l->n_left = 3;
    http_stream_begin(x, 200, "text/event-stream", fill_tick, l);
}

/* 64 KB at a time, without an end. */
static void fill_flood(struct buffer *out, void *user)
{
    static const char zeros[65536];
    (void)user;
    atomic_fetch_add(&n_filled, 1);
    buffer_add(out, zeros, sizeof zeros);
}

static void flood(struct http_exchange *x, void *user)
{
    (void)user;
    http_stream_begin(x, 200, "application/octet-stream", fill_flood, hold(x));
}

/* Nothing to send, ever. */
static void fill_idle(struct buffer *out, void *user)
{
    (void)out;
    (void)user;
    atomic_fetch_add(&n_filled, 1);
}

static void idle(struct http_exchange *x, void *user)
{
    (void)user;
    http_stream_begin(x, 200, "text/event-stream", fill_idle, hold(x));
}

static void end_outside(struct timer *timer)
{
    struct later *l = (struct later *)timer;
    struct http_exchange *x = l->x;
    forget(l);
    http_stream_end(x);
}

static void cut(struct http_exchange *x, void *user)
{
    struct later *l = hold(x);
    (void)user;
    l->timer.due = end_outside;
    timer_set(loop, &l->timer, loop_now_ms(loop) + LATER_MS);
    http_stream_begin(x, 200, "text/event-stream", fill_idle, l);
}

static bool admit(struct http_exchange *x, const struct http_route *route, void *user)
{
    (void)user;
    if (route->is_open || !http_header(x, "authorization") || !strcmp(http_header(x, "authorization"), "Bearer good"))
        return true;
    http_add_header(x, "WWW-Authenticate", "Bearer");
    http_answer_error(x, 401, "no such key");
    return false;
}

static void answered(struct http_exchange *x, const struct http_route *route, int status, void *user)
{
    (void)user;
    atomic_fetch_add(&n_wrong, !http_request_id(x)[0] || !http_begun_ms(x));
    atomic_store(&last_route, route ? route->path : NULL);
    atomic_store(&last_status, status);
    atomic_fetch_add(&n_answered, 1);
}

static void error_body(struct buffer *out, int status, const char *text, void *user)
{
    (void)user;
    buffer_printf(out, "{\"status\": %d, \"text\": \"%s\"}", status, text);
}

static const struct http_route routes[] = {
    { "GET", "/hello", hello, true, false },    { "GET", "/later", later, false, false },   { "GET", "/never", never, false, false },
    { "POST", "/echo", echo, false, true },     { "POST", "/show", show, false, false },    { "GET", "/models/", show, false, false },
    { "GET", "/models/known", hello, false, false },
    { "GET", "/stream", stream, false, false }, { "GET", "/flood", flood, false, false },   { "GET", "/idle", idle, false, false },
    { "GET", "/cut", cut, false, false },
};

static struct http_options usual(void)
{
    return (struct http_options){ .host = "127.0.0.1", .limits = http_usual_limits, .routes = routes, .n_routes = COUNT_OF(routes), .admit = admit,
                                  .answered = answered, .error_body = error_body };
}

static void *run(void *user)
{
    (void)user;
    atomic_fetch_add(&n_wrong, loop_run(loop) != 0);
    return NULL;
}

static bool begin(const struct http_options *options)
{
    n_gone = n_filled = n_answered = n_open = n_wrong = 0;
    return check_int(loop_open(&loop), 0) && check_int(http_server_open(&server, loop, options), 0) &&
           check_int(pthread_create(&thread, NULL, run, NULL), 0);
}

static void end(void)
{
    loop_stop(loop);
    pthread_join(thread, NULL);
    http_server_close(server);
    check_int(n_wrong, 0);
    check_int(n_open, 0);               /* whoever held an exchange was told of its end */
    loop_close(loop);
    loop = NULL;
}

static void nap_ms(long ms)
{
    nanosleep(&(struct timespec){ ms / 1000, ms % 1000 * 1000000 }, NULL);
}

static bool comes_to(atomic_int *count, int want)
{
    for (int i = 0; i < WAIT_MS && atomic_load(count) != want; i++)
        nap_ms(1);
    return check_int(atomic_load(count), want);
}

/* ---- a client ---- */
static int dial(void)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(http_server_port(server)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (!check(fd >= 0) || !check_int(connect(fd, (struct sockaddr *)&at, sizeof at), 0))
        exit(check_done());
    return fd;
}

static bool say(int fd, const char *text)
{
    size_t n = strlen(text);
    while (n) {
        ssize_t k = send(fd, text, n, MSG_NOSIGNAL);
        if (k <= 0)
            return false;
        text += k;
        n -= (size_t)k;
    }
    return true;
}

/* What comes until `mark` has come `n_times`, or the end, or nothing any more; the caller frees it. */
static char *hear(int fd, const char *mark, int n_times)
{
    struct buffer in = { 0 };
    char piece[4096];
    buffer_add_text(&in, "");
    for (;;) {
        int n_marks = 0;
        for (const char *at = in.bytes; mark && (at = strstr(at, mark)); at += strlen(mark))
            n_marks++;
        struct pollfd poll_fd = { fd, POLLIN, 0 };
        if ((mark && n_marks >= n_times) || poll(&poll_fd, 1, WAIT_MS) <= 0)
            break;
        ssize_t n = recv(fd, piece, sizeof piece, 0);
        if (n <= 0)
            break;
        buffer_add(&in, piece, (size_t)n);
    }
    return in.bytes;
}

static bool has(const char *text, const char *part)
{
    bool ok = strstr(text, part);
    if (!check(ok))
        printf("  no %s in\n%s\n", part, text);
    return ok;
}

static bool has_not(const char *text, const char *part)
{
    bool ok = !strstr(text, part);
    if (!check(ok))
        printf("  %s in\n%s\n", part, text);
    return ok;
}

/* A connection of its own: says it, closes nothing, hears all until the server closes. */
static char *ask(const char *text)
{
    int fd = dial();
    say(fd, text);
    char *answer = hear(fd, NULL, 0);
    close(fd);
    return answer;
}

#define GET(path) "GET " path " HTTP/1.1\r\nHost: h\r\n"
#define POST(path) "POST " path " HTTP/1.1\r\nHost: h\r\n"
#define CLOSE "Connection: close\r\n"
#define JSON "Content-Type: application/json\r\n"

/* ---- one request, one answer ---- */
static const struct { const char *name, *say, *status; const char *parts[5]; const char *absent; } answers[] = {
    { "GET", GET("/hello") CLOSE "\r\n", "200 OK", { "\r\nContent-Length: 5\r\n", "\r\n\r\nhello", "\r\nDate: ", "\r\nx-request-id: ",
      "\r\nConnection: close\r\n" }, "Access-Control" },
    { "HEAD", "HEAD /hello HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n", "200 OK", { "\r\nContent-Length: 5\r\n" }, "hello" },
    { "HEAD of a stream", "HEAD /stream HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n", "200 OK", { "chunked" }, "piece" },
    { "HTTP/1.0", "GET /hello HTTP/1.0\r\n\r\n", "200 OK", { "\r\nConnection: close\r\n", "\r\n\r\nhello" }, NULL },
    { "an absolute address", "GET http://x/hello HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n", "200 OK", { "hello" }, NULL },
    { "an answer that comes later", GET("/later") CLOSE "\r\n", "200 OK", { "\r\n\r\nlater" }, NULL },
    { "an id that is given", GET("/hello") CLOSE "X-Request-ID: Ab-1_.:\r\n\r\n", "200 OK", { "\r\nx-request-id: Ab-1_.:\r\n" }, NULL },
    { "an id that is odd", GET("/hello") CLOSE "X-Request-ID: a b\r\n\r\n", "200 OK", { "x-request-id: " }, "a b" },
    { "an id that is long", GET("/hello") CLOSE "X-Request-ID: 1234567890123456789012345678901234567890123456789012345678901234x\r\n\r\n", "200 OK",
      { "x-request-id: " }, "1234567890123456789012345678901234567890123456789012345678901234x" },

    { "what a handler sees", POST("/show") CLOSE "X-A: 1\r\nx-a: 2\r\nContent-Length: 3\r\n\r\nabc", "200 OK",
      { "POST /show rest= x-a=1, 2 body=3 from=127.0.0.1 id=" }, NULL },
    { "a header cannot bring another", POST("/show") CLOSE "\r\n", "200 OK", { "\r\nX-B: one  X-Evil: yes\r\n" }, "\r\nX-Evil" },
    { "a prefix", GET("/models/org%2Fa%20b") CLOSE "\r\n", "200 OK", { "GET /models/org/a b rest=org/a b " }, NULL },
    { "an exact path goes before a prefix", GET("/models/known") CLOSE "\r\n", "200 OK", { "\r\n\r\nhello" }, NULL },
    { "a prefix alone", GET("/models/") CLOSE "\r\n", "404 Not Found", { "{\"status\": 404" }, NULL },
    { "an escaped slash is none of a route's", GET("/models%2Fknown") CLOSE "\r\n", "404 Not Found", { NULL }, NULL },
    { "an exact path with one", GET("%2Fhello") CLOSE "\r\n", "400 Bad Request", { NULL }, NULL },
    { "dots are names", GET("/models/../hello") CLOSE "\r\n", "200 OK", { "rest=../hello " }, NULL },

    { "JSON", POST("/echo") CLOSE JSON "Content-Length: 2\r\n\r\n{}", "200 OK", { "\r\n\r\n{}" }, NULL },
    { "JSON with parameters", POST("/echo") CLOSE "Content-Type: application/json; charset=utf-8\r\nContent-Length: 2\r\n\r\n{}", "200 OK",
      { "\r\n\r\n{}" }, NULL },
    { "JSON in chunks", POST("/echo") CLOSE JSON "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n", "200 OK", { "\r\n\r\n{}" }, NULL },
    { "JSON without a body", POST("/echo") CLOSE "\r\n", "200 OK", { "Content-Length: 0" }, NULL },
    { "another type", POST("/echo") CLOSE "Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}", "415 Unsupported Media Type",
      { "application/json" }, NULL },
    { "a type that begins like it", POST("/echo") CLOSE "Content-Type: application/jsonl\r\nContent-Length: 2\r\n\r\n{}", "415 ", { NULL }, NULL },
    { "no type", POST("/echo") CLOSE "Content-Length: 2\r\n\r\n{}", "415 ", { NULL }, NULL },
    { "a coding", POST("/echo") CLOSE JSON "Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}", "415 ", { "Content-Encoding" }, NULL },
    { "another Expect", POST("/echo") CLOSE JSON "Expect: 200-ok\r\n\r\n", "417 Expectation Failed", { NULL }, NULL },

    { "no such path", GET("/nothing") CLOSE "\r\n", "404 Not Found", { "Content-Type: application/json\r\n", "{\"status\": 404" }, NULL },
    { "HEAD of no such path", "HEAD /nothing HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n", "404 Not Found", { "\r\nContent-Length: " }, "{" },
    { "not this method", POST("/hello") CLOSE "\r\n", "405 Method Not Allowed", { "\r\nAllow: GET, HEAD, OPTIONS\r\n" }, NULL },
    { "not this method either", "DELETE /echo HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n", "405 ", { "\r\nAllow: POST, OPTIONS\r\n" }, NULL },
    { "no such method", "BREW /hello HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n", "501 Not Implemented", { NULL }, NULL },
    { "a tunnel", "CONNECT h:443 HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n", "501 Not Implemented", { NULL }, NULL },
    { "options", "OPTIONS /hello HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n", "204 No Content", { "\r\nAllow: GET, HEAD, OPTIONS\r\n" }, "Content-Length" },
    { "options of everything", "OPTIONS * HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n", "204 No Content", { "\r\nAllow: GET, HEAD, POST, OPTIONS\r\n" }, NULL },
    { "options of nothing", "OPTIONS /nothing HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n", "404 Not Found", { NULL }, NULL },
    { "options without a key", "OPTIONS /never HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer bad\r\n" CLOSE "\r\n", "204 ", { NULL }, NULL },

    { "a bad key", GET("/never") "Authorization: Bearer bad\r\n" CLOSE "\r\n", "401 Unauthorized", { "\r\nWWW-Authenticate: Bearer\r\n" }, NULL },
    { "a good key", GET("/later") "Authorization: Bearer good\r\n" CLOSE "\r\n", "200 OK", { NULL }, NULL },
    { "a bad key on an open route", GET("/hello") "Authorization: Bearer bad\r\n" CLOSE "\r\n", "200 OK", { NULL }, NULL },
    { "a bad key costs no body", POST("/echo") JSON "Authorization: Bearer bad\r\nContent-Length: 1000\r\n\r\n", "401 ",
      { "\r\nConnection: close\r\n" }, NULL },
    { "nor the wrong path", POST("/nothing") "Content-Length: 1000\r\n\r\n", "404 ", { "\r\nConnection: close\r\n" }, NULL },
    { "too long a body", POST("/echo") JSON "Content-Length: 2147483658\r\n\r\n", "413 Content Too Large", { "\r\nConnection: close\r\n" }, NULL },
    { "smuggling", POST("/echo") JSON "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" GET("/hello") "\r\n", "400 Bad Request",
      { "\r\nConnection: close\r\n" }, "hello" },
    { "no HTTP", "\x16\x03\x01", "400 Bad Request", { "\r\nConnection: close\r\n" }, NULL },
    { "HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505 HTTP Version Not Supported", { NULL }, NULL },
};

static void test_answers(void)
{
    struct http_options options = usual();
    begin(&options);
    for (size_t i = 0; i < COUNT_OF(answers); i++) {
        check_begin("%s", answers[i].name);
        char status[64], *got = ask(answers[i].say);
        snprintf(status, sizeof status, "HTTP/1.1 %s", answers[i].status);
        if (!check(!strncmp(got, status, strlen(status))))
            printf("  wanted %s, got\n%s\n", status, got);
        for (int k = 0; k < 5 && answers[i].parts[k]; k++)
            has(got, answers[i].parts[k]);
        if (answers[i].absent)
            has_not(got, answers[i].absent);
        has(got, "\r\nx-request-id: ");
        comes_to(&n_answered, (int)i + 1);
        check_int(atomic_load(&last_status), atoi(answers[i].status));
        free(got);
    }
    check_int(n_gone, 0);
    end();
}

/* ---- one connection, several requests ---- */
static int count(const char *text, const char *part)
{
    int n = 0;
    for (; (text = strstr(text, part)); text += strlen(part))
        n++;
    return n;
}

static void test_keep_alive(void)
{
    struct http_options options = usual();
    begin(&options);
    check_begin("a connection serves many requests, also after an error that leaves no body unread");
    int fd = dial();
    for (int i = 0; i < 50; i++) {
        say(fd, i % 5 == 4 ? GET("/nothing") "\r\n" : i % 5 == 3 ? GET("/later") "\r\n" : i % 5 == 2 ? GET("/stream") "\r\n" : GET("/hello") "\r\n");
        char *got = hear(fd, i % 5 == 4 ? "}" : i % 5 == 3 ? "\r\nlater" : i % 5 == 2 ? "\r\n0\r\n\r\n" : "\r\nhello", 1);
        has_not(got, "Connection:");
        check_int(count(got, "HTTP/1.1 "), 1);
        free(got);
    }
    check_int(http_server_n_connections(server), 1);
    say(fd, "GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    char *got = hear(fd, "\r\nhello", 1);
    has(got, "\r\nConnection: keep-alive\r\n");
    free(got);
    close(fd);
    check_begin("pipelined requests are answered in order");
    fd = dial();
    char order[512] = "", *at = order;
    say(fd, GET("/later") "\r\n" POST("/show") "Content-Length: 3\r\nX-A: 1\r\n\r\nabc" GET("/stream") "\r\n" GET("/nothing") "\r\n" GET("/hello") CLOSE "\r\n"
            GET("/later") "\r\n");
    got = hear(fd, NULL, 0);
    for (const char *line = got; (line = strstr(line, "HTTP/1.1 ")); line++)
        at += sprintf(at, "%.3s ", line + 9);
    check_text(order, "200 200 200 404 200 ");
    const char *places[] = { strstr(got, "\r\nlater"), strstr(got, "x-a=1"), strstr(got, "piece 1"), strstr(got, "404"), strstr(got, "\r\nhello") };
    for (int i = 1; i < 5; i++)
        check(places[i - 1] && places[i] && places[i - 1] < places[i]);
    free(got);
    close(fd);
    end();
}

static void test_many_pipelined(void)
{
    enum { N = 5000 };
    struct http_options options = usual();
    struct buffer all = { 0 };
    begin(&options);
    check_begin("%d requests at once", N);
    for (int i = 0; i < N; i++)
        buffer_add_text(&all, i < N - 1 ? GET("/hello") "\r\n" : GET("/hello") CLOSE "\r\n");
    char *got = ask(all.bytes);
    check_int(count(got, "\r\n\r\nhello"), N);
    comes_to(&n_answered, N);
    free(got);
    buffer_release(&all);
    end();
}

static void test_continue(void)
{
    struct http_options options = usual();
    begin(&options);
    check_begin("100-continue");
    int fd = dial();
    say(fd, POST("/echo") JSON CLOSE "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    char *got = hear(fd, "\r\n\r\n", 1);
    check_text(got, "HTTP/1.1 100 Continue\r\n\r\n");
    free(got);
    say(fd, "{}");
    got = hear(fd, NULL, 0);
    check(!strncmp(got, "HTTP/1.1 200 OK", 15));
    has(got, "\r\n\r\n{}");
    free(got);
    close(fd);
    static const struct { const char *name, *say, *want; } rows[] = {
        { "not when the body is there", POST("/echo") JSON CLOSE "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}", "HTTP/1.1 200" },
        { "not when it is too long", POST("/echo") JSON CLOSE "Expect: 100-continue\r\nContent-Length: 999999999\r\n\r\n", "HTTP/1.1 413" },
        { "not without a key", POST("/echo") JSON "Authorization: Bearer bad\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n", "HTTP/1.1 401" },
        { "not without a body", POST("/echo") CLOSE "Expect: 100-continue\r\n\r\n", "HTTP/1.1 200" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        check_begin("100-continue: %s", rows[i].name);
        got = ask(rows[i].say);
        check(!strncmp(got, rows[i].want, strlen(rows[i].want)));
        free(got);
    }
    end();
}

/* ---- streams ---- */
static void test_streams(void)
{
    struct http_options options = usual();
    begin(&options);
    check_begin("a stream in chunks");
    char *got = ask(GET("/stream") CLOSE "\r\n");
    has(got, "\r\nTransfer-Encoding: chunked\r\n");
    has(got, "\r\n\r\n8\r\npiece 3\n\r\n8\r\npiece 2\n\r\n8\r\npiece 1\n\r\n0\r\n\r\n");
    has_not(got, "Content-Length");
    free(got);
    check_begin("a stream in HTTP/1.0");
    got = ask("GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    has(got, "\r\nConnection: close\r\n");
    has(got, "\r\n\r\npiece 3\npiece 2\npiece 1\n");
    has_not(got, "chunked");
    free(got);
    check_begin("a stream that is ended from outside");
    got = ask(GET("/cut") CLOSE "\r\n");
    has(got, "\r\n\r\n0\r\n\r\n");
    free(got);
    check_begin("the head of a stream comes before its first byte");
    int fd = dial();
    say(fd, GET("/idle") "\r\n");
    got = hear(fd, "\r\n\r\n", 1);
    has(got, "200 OK");
    free(got);
    close(fd);
    comes_to(&n_gone, 1);
    end();
}

/* A client that does not read: what is asked for is what fits the sockets, and then nothing. */
static void test_slow_reader(void)
{
    struct http_options options = usual();
    options.limits.write_ms = 700;
    begin(&options);
    check_begin("a client that reads nothing is not written for, and is gone after a while");
    int fd = dial();
    say(fd, GET("/flood") "\r\n");
    nap_ms(300);
    int n = atomic_load(&n_filled);
    check(n > 0 && n < 200);
    nap_ms(100);
    check_int(atomic_load(&n_filled), n);
    check_int(n_gone, 0);
    comes_to(&n_gone, 1);
    close(fd);
    check_begin("one that reads a little now and then stays");
    fd = dial();
    say(fd, GET("/flood") "\r\n");
    for (int i = 0; i < 20; i++) {
        char bytes[300000];
        nap_ms(100);
        check(recv(fd, bytes, sizeof bytes, 0) > 0);
    }
    check_int(n_gone, 1);
    close(fd);
    comes_to(&n_gone, 2);
    end();
}

/* ---- clients that leave ---- */
static void reset(int fd)
{
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){ 1, 0 }, sizeof(struct linger));
    close(fd);
}

static void half_close(int fd)
{
    shutdown(fd, SHUT_WR);
}

static void leave(int fd)
{
    close(fd);
}

static void test_leaving(void)
{
    static const struct { const char *name; void (*leave)(int fd); } ways[] = { { "closes", leave }, { "closes its half", half_close }, { "resets", reset } };
    static const char *const paths[] = { "/never", "/idle", "/flood" };
    struct http_options options = usual();
    int want = 0;
    begin(&options);
    for (size_t w = 0; w < COUNT_OF(ways); w++)
        for (size_t p = 0; p < COUNT_OF(paths); p++) {
            char text[100];
            check_begin("a client of %s %s", paths[p], ways[w].name);
            int fd = dial();
            snprintf(text, sizeof text, GET("%s") "\r\n", paths[p]);
            say(fd, text);
            comes_to(&n_open, 1);
            nap_ms(20);
            double left_s = seconds_now();
            ways[w].leave(fd);
            comes_to(&n_gone, ++want);
            check(seconds_now() - left_s < 1);
            check_int(n_open, 0);
            if (ways[w].leave == half_close)
                close(fd);
        }
    check_begin("a client that has closed its half gets an answer that is there at once");
    int fd = dial();
    say(fd, GET("/hello") "\r\n" GET("/hello") "\r\n");
    shutdown(fd, SHUT_WR);
    char *got = hear(fd, NULL, 0);
    check_int(count(got, "\r\n\r\nhello"), 2);
    free(got);
    close(fd);
    check_int(n_gone, want);
    check_begin("nobody is left");
    for (int i = 0; i < 3000 && http_server_n_connections(server); i++)
        nap_ms(1);
    check_int(http_server_n_connections(server), 0);
    end();
}

/* ---- limits ---- */
static void test_deadlines(void)
{
    static const struct { const char *name, *say, *dribble, *want; } rows[] = {
        { "no byte", "", "", "" },
        { "half a head", "GET / HT", "", "HTTP/1.1 408 Request Timeout" },
        { "a head, byte by byte", "GET /", "a", "HTTP/1.1 408" },
        { "half a body", POST("/echo") JSON "Content-Length: 1000\r\n\r\n", "", "HTTP/1.1 408" },
        { "a body, byte by byte", POST("/echo") JSON "Content-Length: 1000\r\n\r\n", "a", "HTTP/1.1 408" },
        { "chunks, one by one", POST("/echo") JSON "Transfer-Encoding: chunked\r\n\r\n", "1\r\na\r\n", "HTTP/1.1 408" },
        { "nothing after an answer", GET("/hello") "\r\n", "", "HTTP/1.1 200" },
        { "half a head after an answer", GET("/hello") "\r\n" "GET /he", "", "HTTP/1.1 200" },
    };
    struct http_options options = usual();
    options.limits.head_ms = options.limits.body_ms = options.limits.idle_ms = 300;
    begin(&options);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        check_begin("slow: %s", rows[i].name);
        double begun_s = seconds_now();
        int fd = dial();
        say(fd, rows[i].say);
        for (int k = 0; k < 200 && *rows[i].dribble && seconds_now() - begun_s < 0.25; k++) {
            nap_ms(20);
            if (!say(fd, rows[i].dribble))
                break;
        }
        char *got = hear(fd, NULL, 0);
        check(!strncmp(got, rows[i].want, strlen(rows[i].want)));
        check(seconds_now() - begun_s > 0.2 && seconds_now() - begun_s < 5);
        if (i == COUNT_OF(rows) - 1)
            has(got, "HTTP/1.1 408");
        free(got);
        close(fd);
    }
    end();
}

static void test_too_many(void)
{
    enum { MOST = 8 };
    struct http_options options = usual();
    int fd[MOST];
    options.limits.connections = MOST;
    begin(&options);
    check_begin("beyond the limit of connections: 503 at once");
    for (int i = 0; i < MOST; i++) {
        fd[i] = dial();
        say(fd[i], GET("/idle") "\r\n");
    }
    comes_to(&n_open, MOST);
    char *got = ask(GET("/hello") "\r\n");
    check(!strncmp(got, "HTTP/1.1 503 Service Unavailable", 32));
    has(got, "\r\nRetry-After: ");
    has(got, "\r\nConnection: close\r\n");
    free(got);
    check_int(n_gone, 0);
    close(fd[0]);
    comes_to(&n_gone, 1);
    for (int i = 0; i < 3000 && http_server_n_connections(server) >= MOST; i++)
        nap_ms(1);
    got = ask(GET("/hello") CLOSE "\r\n");
    has(got, "\r\n\r\nhello");
    free(got);
    for (int i = 1; i < MOST; i++)
        close(fd[i]);
    comes_to(&n_gone, MOST);
    end();
}

/* A head of 1 MB and a chunk's size of 1 MB, sent in full: the answer comes through although the server reads no more of it. */
static void test_long_lines(void)
{
    static const struct { const char *name, *begin, *want; } rows[] = {
        { "a header", GET("/hello") "A: ", "HTTP/1.1 431" },    { "a path", "GET /", "HTTP/1.1 414" },
        { "a chunk's size", POST("/echo") JSON "Transfer-Encoding: chunked\r\n\r\n", "HTTP/1.1 400" },
    };
    struct http_options options = usual();
    begin(&options);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        check_begin("%s of 1 MB", rows[i].name);
        struct buffer text = { 0 };
        buffer_add_text(&text, rows[i].begin);
        for (int k = 0; k < 1 << 20; k++)
            buffer_add(&text, "0", 1);
        char *got = ask(text.bytes);
        check(!strncmp(got, rows[i].want, strlen(rows[i].want)));
        free(got);
        buffer_release(&text);
    }
    end();
}

int main(void)
{
    test_answers();
    test_keep_alive();
    test_many_pipelined();
    test_continue();
    test_streams();
    test_slow_reader();
    test_leaving();
    test_deadlines();
    test_too_many();
    test_long_lines();
    return check_done();
}
