/* http_world.h: the HTTP server on real sockets, for tests: a thread runs its loop with routes made for tests, the test's own is its
 * clients. */
#ifndef STOA_TESTS_HTTP_WORLD_H
#define STOA_TESTS_HTTP_WORLD_H

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
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RUNS_SANITIZED 1                /* they keep what was freed */
#else
#define RUNS_SANITIZED 0
#endif
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

static inline void forget(struct later *l)
{
    timer_clear(loop, &l->timer);
    free(l);
    atomic_fetch_sub(&n_open, 1);
}

static inline void is_gone(void *user)
{
    forget(user);
    atomic_fetch_add(&n_gone, 1);         /* the last: who has seen it looks at n_open */
}

static inline struct later *hold(struct http_exchange *x)
{
    struct later *l = calloc(1, sizeof *l);
    l->x = x;
    atomic_fetch_add(&n_open, 1);
    http_on_gone(x, is_gone, l);
    return l;
}

static inline void hello(struct http_exchange *x, void *user)
{
    (void)user;
    http_answer(x, 200, "text/plain", "hello", 5);
}

static inline void answer_later(struct timer *timer)
{
    struct later *l = (struct later *)timer;
    struct http_exchange *x = l->x;
    forget(l);
    http_answer(x, 200, "text/plain", "later", 5);
}

static inline void later(struct http_exchange *x, void *user)
{
    struct later *l = hold(x);
    (void)user;
    l->timer.due = answer_later;
    timer_set(loop, &l->timer, loop_now_ms(loop) + LATER_MS);
}

static inline void never(struct http_exchange *x, void *user)
{
    (void)user;
    hold(x);
}

static inline void echo(struct http_exchange *x, void *user)
{
    size_t n;
    char *body = http_take_body(x, &n);
    (void)user;
    http_answer(x, 200, "application/json", body, n);
    http_give_back(server, body, n);
}

/* What a handler sees of a request. */
static inline void show(struct http_exchange *x, void *user)
{
    struct buffer out = { 0 };
    size_t n;
    const char *header = http_header(x, "X-A");
    char *body = http_take_body(x, &n);
    http_give_back(server, body, n);
    (void)user;
    buffer_printf(&out, "%s %s rest=%s ", http_method(x), http_path(x), http_path_rest(x));
    buffer_printf(&out, "x-a=%s body=%zu from=%s id=%s", header ? header : "-", n,
                  http_client_address(x), http_request_id(x));
    http_add_header(x, "X-B", "one\r\nX-Evil: yes");
    http_answer(x, 200, "text/plain", out.bytes, out.size);
    buffer_release(&out);
}

/* Pieces "piece 3\n" .. "piece 1\n", each after a timer. */
static inline void fill_tick(struct buffer *out, void *user)
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

static inline void tick(struct timer *timer)
{
    http_stream_wake(((struct later *)timer)->x);
}

static inline void stream(struct http_exchange *x, void *user)
{
    struct later *l = hold(x);
    (void)user;
    l->timer.due = tick;
    l->n_left = 3;
    http_stream_begin(x, 200, "text/event-stream", fill_tick, l);
}

/* 64 KB at a time, without an end; woken again and again, as tokens do it. */
static inline void fill_flood(struct buffer *out, void *user)
{
    static const char zeros[65536];
    (void)user;
    atomic_fetch_add(&n_filled, 1);
    buffer_add(out, zeros, sizeof zeros);
}

static inline void tick_again(struct timer *timer)
{
    timer_set(loop, timer, loop_now_ms(loop) + LATER_MS);
    tick(timer);
}

static inline void flood(struct http_exchange *x, void *user)
{
    struct later *l = hold(x);
    (void)user;
    l->timer.due = tick_again;
    timer_set(loop, &l->timer, loop_now_ms(loop) + LATER_MS);
    http_stream_begin(x, 200, "application/octet-stream", fill_flood, l);
}

/* Nothing to send, ever. */
static inline void fill_idle(struct buffer *out, void *user)
{
    (void)out;
    (void)user;
    atomic_fetch_add(&n_filled, 1);
}

static inline void idle(struct http_exchange *x, void *user)
{
    (void)user;
    http_stream_begin(x, 200, "text/event-stream", fill_idle, hold(x));
}

static inline void end_outside(struct timer *timer)
{
    struct later *l = (struct later *)timer;
    struct http_exchange *x = l->x;
    forget(l);
    http_stream_end(x);
}

static inline void cut(struct http_exchange *x, void *user)
{
    struct later *l = hold(x);
    (void)user;
    l->timer.due = end_outside;
    timer_set(loop, &l->timer, loop_now_ms(loop) + LATER_MS);
    http_stream_begin(x, 200, "text/event-stream", fill_idle, l);
}

enum { BIG_BYTES = 8 << 20 };

static inline void big(struct http_exchange *x, void *user)
{
    char *bytes = malloc(BIG_BYTES);
    (void)user;
    memset(bytes, 'b', BIG_BYTES);
    http_answer(x, 200, "text/plain", bytes, BIG_BYTES);
    free(bytes);
}

static struct buffer prepared;          /* by the test's thread */

static inline void whole(struct http_exchange *x, void *user)
{
    (void)user;
    http_answer_buffer(x, 200, "text/plain", &prepared);
}

/* Takes the body, and never answers. */
static inline void take(struct http_exchange *x, void *user)
{
    size_t n;
    (void)user;
    hold(x);
    char *body = http_take_body(x, &n);
    http_give_back(server, body, n);
}

static inline bool admit(struct http_exchange *x, const struct http_route *route, void *user)
{
    (void)user;
    if (route->is_open || !http_header(x, "authorization") || !strcmp(http_header(x, "authorization"), "Bearer good"))
        return true;
    http_add_header(x, "WWW-Authenticate", "Bearer");
    http_answer_error(x, 401, "no such key");
    return false;
}

static inline void answered(struct http_exchange *x, const struct http_route *route, int status, void *user)
{
    (void)user;
    atomic_fetch_add(&n_wrong, !http_request_id(x)[0]);
    atomic_store(&last_route, route ? route->path : NULL);
    atomic_store(&last_status, status);
    atomic_fetch_add(&n_answered, 1);
}

static inline void error_body(struct buffer *out, int status, const char *text, void *user)
{
    (void)user;
    buffer_printf(out, "{\"status\": %d, \"text\": \"%s\"}", status, text);
}

static const struct http_route routes[] = {
    { "GET", "/hello", hello, true, false },    { "GET", "/later", later, false, false },   { "GET", "/never", never, false, false },
    { "POST", "/echo", echo, false, true },     { "POST", "/show", show, false, false },
    { "GET", "/models/a", hello, false, false },
    { "GET", "/models/", show, false, false },  { "GET", "/models/b", hello, false, false },
    { "GET", "/stream", stream, false, false }, { "GET", "/flood", flood, false, false },   { "GET", "/idle", idle, false, false },
    { "GET", "/cut", cut, false, false },       { "GET", "/big", big, false, false },       { "GET", "/whole", whole, false, false },
    { "POST", "/take", take, false, false },
};

static inline struct http_options usual(void)
{
    return (struct http_options){ .host = "127.0.0.1", .limits = http_usual_limits, .routes = routes, .n_routes = COUNT_OF(routes),
                                  .admit = admit, .answered = answered, .error_body = error_body };
}

static inline void *run(void *user)
{
    (void)user;
    atomic_fetch_add(&n_wrong, loop_run(loop) != 0);
    return NULL;
}

static inline bool begin(const struct http_options *options)
{
    n_gone = n_filled = n_answered = n_open = n_wrong = 0;
    return check_int(loop_open(&loop), 0) && check_int(http_server_open(&server, loop, options), 0) &&
           check_int(pthread_create(&thread, NULL, run, NULL), 0);
}

static inline void end(void)
{
    loop_stop(loop);
    pthread_join(thread, NULL);
    http_server_close(server);
    check_int(n_wrong, 0);
    check_int(n_open, 0);               /* whoever held an exchange was told of its end */
    loop_close(loop);
    loop = NULL;
}

/* Runs it on the loop's thread, which alone may ask the server something. */
struct errand {
    struct loop_job job;
    void (*run)(void);
    sem_t is_done;
};

static inline void run_errand(struct loop_job *job)
{
    struct errand *errand = (struct errand *)job;
    errand->run();
    sem_post(&errand->is_done);
}

static inline void on_loop(void (*fn)(void))
{
    struct errand errand = { .job.run = run_errand, .run = fn };
    sem_init(&errand.is_done, 0, 0);
    loop_post(loop, &errand.job);
    sem_wait(&errand.is_done);
    sem_destroy(&errand.is_done);
}

static atomic_int n_connections;

static inline void count_connections(void)
{
    atomic_store(&n_connections, (int)http_server_n_connections(server));
}

static inline void nap_ms(long ms)
{
    nanosleep(&(struct timespec){ ms / 1000, ms % 1000 * 1000000 }, NULL);
}

static inline bool comes_to(atomic_int *count, int want)
{
    for (int i = 0; i < WAIT_MS && atomic_load(count) != want; i++)
        nap_ms(1);
    return check_int(atomic_load(count), want);
}

static inline void connections_come_to(int want)
{
    do
        on_loop(count_connections);
    while (n_connections != want && (nap_ms(1), true));
}

/* ---- a client ---- */
static inline struct sockaddr_in loopback(uint16_t port)
{
    return (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
}

static inline int dial(void)
{
    struct sockaddr_in at = loopback(http_server_port(server));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (!check(fd >= 0) || !check_int(connect(fd, (struct sockaddr *)&at, sizeof at), 0))
        exit(check_done());
    return fd;
}

static inline bool say(int fd, const char *text)
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

/* What comes until `mark` has come, or the end, or nothing any more; the caller frees it. */
static inline char *hear(int fd, const char *mark)
{
    struct buffer in = { 0 };
    char piece[16384];
    size_t n_seen = 0;                  /* the mark does not begin before */
    buffer_add_text(&in, "");
    while (!mark || !strstr(in.bytes + n_seen, mark)) {
        struct pollfd poll_fd = { fd, POLLIN, 0 };
        ssize_t n = poll(&poll_fd, 1, WAIT_MS) > 0 ? recv(fd, piece, sizeof piece, 0) : 0;
        if (n <= 0)
            break;
        n_seen = mark && in.size > strlen(mark) ? in.size - strlen(mark) : 0;
        buffer_add(&in, piece, (size_t)n);
    }
    return in.bytes;
}

static inline int count(const char *text, const char *part)
{
    int n = 0;
    for (; (text = strstr(text, part)); text += strlen(part))
        n++;
    return n;
}

static inline bool has(const char *text, const char *part)
{
    bool ok = strstr(text, part);
    if (!check(ok))
        printf("  no %s in\n%s\n", part, text);
    return ok;
}

static inline bool has_not(const char *text, const char *part)
{
    bool ok = !strstr(text, part);
    if (!check(ok))
        printf("  %s in\n%s\n", part, text);
    return ok;
}

/* A connection of its own: says it, closes nothing, hears all until the server closes. */
static inline char *ask(const char *text)
{
    int fd = dial();
    say(fd, text);
    char *answer = hear(fd, NULL);
    close(fd);
    return answer;
}

#define GET(path) "GET " path " HTTP/1.1\r\nHost: h\r\n"
#define POST(path) "POST " path " HTTP/1.1\r\nHost: h\r\n"
#define CLOSE "Connection: close\r\n"
#define JSON "Content-Type: application/json\r\n"

/* ---- what it costs ---- */
static inline double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline long resident_kb(void)
{
    long kb = 0;
    char line[256];
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmRSS: %ld", &kb) == 1)
            break;
    if (f)
        fclose(f);
    return kb;
}

#endif
