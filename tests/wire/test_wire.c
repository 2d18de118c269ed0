/* test_wire.c: clients against a server, over real sockets; the test is both fronts and step thread. */
#include "base/error.h"
#include "base/log.h"
#include "base/threads.h"
#include "tests/check.h"
#include "wire/address.h"
#include "wire/client.h"
#include "wire/frame.h"
#include "wire/server.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define EPOCH 5
#define PATIENCE_S 10.0

/* ---- a front ---- */
struct front {
    struct wire_client *client;
    int n_frames, n_hellos, n_tokens, n_progress, n_ends;
    uint64_t last_request, next_index;
    bool closes;                /* at the next frame that is no Hello */
    char why[128];
};

static void on_frame(void *user, const Stoa__Wire__Frame *frame)
{
    struct front *front = user;
    front->n_frames++;
    front->n_hellos += frame->body_case == STOA__WIRE__FRAME__BODY_HELLO && !strcmp(frame->hello->model, "m");
    front->n_progress += frame->body_case == STOA__WIRE__FRAME__BODY_PROGRESS;
    if (frame->body_case == STOA__WIRE__FRAME__BODY_TOKENS)
        for (size_t i = 0; i < frame->tokens->n_token; i++, front->n_tokens++) {
            check_int(frame->tokens->token[i]->index, front->next_index++);
            front->last_request = frame->tokens->token[i]->request;
        }
    if (front->closes && frame->body_case != STOA__WIRE__FRAME__BODY_HELLO) {
        wire_client_close(front->client);
        front->client = NULL;
    }
}

static void on_end(void *user, const char *why)
{
    struct front *front = user;
    front->n_ends++;
    snprintf(front->why, sizeof front->why, "%s", why);
}

static int front_open(struct front *front, const char *address, uint64_t epoch)
{
    *front = (struct front){ 0 };
    struct wire_client_options options = { .address = address, .epoch = epoch, .on_frame = on_frame, .on_end = on_end, .user = front };
    return wire_client_open(&front->client, &options);
}

/* One turn of an event loop. */
static void front_turn(struct front *front, int wait_ms)
{
    if (!front->client)
        return;
    uint32_t events = wire_client_events(front->client);
    struct pollfd fd = { .fd = wire_client_fd(front->client), .events = (short)((events & EPOLLIN ? POLLIN : 0) | (events & EPOLLOUT ? POLLOUT : 0)) };
    if (events && poll(&fd, 1, wait_ms) > 0)
        wire_client_ready(front->client, (fd.revents & POLLIN ? EPOLLIN : 0) | (fd.revents & POLLOUT ? EPOLLOUT : 0) |
                          (fd.revents & POLLHUP ? EPOLLHUP : 0) | (fd.revents & POLLERR ? EPOLLERR : 0));
}

#define until(front, condition)                                                 \
    do {                                                                        \
        double end_s = seconds_now() + PATIENCE_S;                              \
        while (!(condition) && seconds_now() < end_s)                           \
            front_turn(front, 20);                                              \
        check(condition);                                                       \
    } while (0)

static int front_submit(struct front *front, uint64_t request, uint32_t n_prompt)
{
    Stoa__Wire__Frame frame = STOA__WIRE__FRAME__INIT;
    Stoa__Wire__Submit submit = STOA__WIRE__SUBMIT__INIT;
    submit.request = request;
    submit.n_prompt = n_prompt;
    submit.prompt = calloc(n_prompt + 1, sizeof *submit.prompt);
    frame.body_case = STOA__WIRE__FRAME__BODY_SUBMIT;
    frame.submit = &submit;
    int err = wire_client_send(front->client, &frame);
    free(submit.prompt);
    return err;
}

static void front_cancel(struct front *front, uint64_t request)
{
    Stoa__Wire__Frame frame = STOA__WIRE__FRAME__INIT;
    Stoa__Wire__Cancel cancel = STOA__WIRE__CANCEL__INIT;
    cancel.request = request;
    frame.body_case = STOA__WIRE__FRAME__BODY_CANCEL;
    frame.cancel = &cancel;
    check_int(wire_client_send(front->client, &frame), 0);
}

/* ---- a step thread ---- */
static int send_tokens(struct wire_server *server, uint64_t connection, uint32_t first, size_t n)
{
    Stoa__Wire__Frame frame = STOA__WIRE__FRAME__INIT;
    Stoa__Wire__Tokens tokens = STOA__WIRE__TOKENS__INIT;
    Stoa__Wire__Token *token = calloc(n, sizeof *token), **list = calloc(n, sizeof *list);
    for (uint32_t i = 0; i < n; i++) {
        token[i] = (Stoa__Wire__Token)STOA__WIRE__TOKEN__INIT;
        token[i].request = 9;
        token[i].index = first + i;
        list[i] = &token[i];
    }
    tokens.n_token = n;
    tokens.token = list;
    frame.body_case = STOA__WIRE__FRAME__BODY_TOKENS;
    frame.tokens = &tokens;
    int err = wire_server_send(server, connection, &frame);
    free(token);
    free(list);
    return err;
}

/* The next event, which must be of this kind; its connection. */
static uint64_t expect(struct wire_server *server, enum wire_event_kind kind, uint64_t request)
{
    struct wire_event *event = wire_server_take(server, (int)(PATIENCE_S * 1000));
    uint64_t connection = event ? event->connection : 0;
    if (check(event)) {
        check_int(event->kind, kind);
        if (kind != WIRE_GONE)
            check_int(event->request, request);
    }
    wire_event_free(event);
    return connection;
}

static struct wire_server *server_open(const char *address)
{
    struct wire_server *server = NULL;
    Stoa__Wire__Hello hello = STOA__WIRE__HELLO__INIT;
    hello.model = "m";
    struct wire_server_options options = { .address = address, .epoch = EPOCH, .hello = &hello };
    if (wire_server_open(&server, &options) < 0) {
        check_text(error_text(), "");
        exit(check_done());
    }
    return server;
}

/* A socket without a client behind it. */
static int connect_plain(const char *address)
{
    struct address to;
    check_int(address_read(&to, address), 0);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    check_int(connect(fd, &to.socket.any, to.n_bytes), 0);
    return fd;
}

/* ---- what is tested ---- */
static char folder[64] = "/tmp/stoa-wire.XXXXXX", path[128];

static void test_exchange(const char *address)
{
    struct wire_server *server = server_open(address);
    struct front front;
    check_begin("Hello, requests, tokens over %s", address);
    check_int(front_open(&front, wire_server_address(server), EPOCH), 0);
    check_int(front_submit(&front, 1, 1), ERR_PEER);            /* before the Hello */
    until(&front, front.n_hellos == 1);
    check_int(front_submit(&front, 77, 1000), 0);
    front_cancel(&front, 77);
    uint64_t connection = expect(server, WIRE_SUBMIT, 77);
    check_int(expect(server, WIRE_CANCEL, 77), connection);
    check_int(send_tokens(server, connection, 0, 3), 0);
    check_int(send_tokens(server, connection + 1, 0, 3), ERR_PEER);
    until(&front, front.n_tokens == 3);
    check_int(front.last_request, 9);
    wire_client_close(front.client);
    check_int(expect(server, WIRE_GONE, 0), connection);
    check(!wire_server_take(server, 0));
    check_int(send_tokens(server, connection, 0, 1), ERR_PEER);
    wire_server_close(server);
}

static void test_epochs(void)
{
    struct wire_server *server = server_open("127.0.0.1:0");
    struct front old, any;
    check_begin("a front that wants another epoch learns that this is none");
    check_int(front_open(&old, wire_server_address(server), EPOCH - 1), 0);
    until(&old, old.n_ends == 1);
    check_int(old.n_frames, 0);
    check_text(old.why, "it is of epoch 5, wanted 4");
    check_int(front_submit(&old, 1, 1), ERR_PEER);
    wire_client_close(old.client);

    check_begin("a front that takes any epoch");
    check_int(front_open(&any, wire_server_address(server), 0), 0);
    until(&any, any.n_hellos == 1);
    check_int(front_submit(&any, 1, 1), 0);
    uint64_t connection = expect(server, WIRE_SUBMIT, 1);
    wire_client_close(any.client);
    check_int(expect(server, WIRE_GONE, 0), connection);
    wire_server_close(server);
}

/* A connection that sends these bytes is closed, and nothing comes of it. */
static void check_closed(const char *address, const char *name, const struct buffer *bytes, int n_frames)
{
    char in[4096];
    ssize_t n;
    check_begin("a front that sends %s is closed", name);
    int fd = connect_plain(address);
    check_int(send(fd, bytes->bytes, bytes->size, MSG_NOSIGNAL), bytes->size);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){ .tv_sec = (long)PATIENCE_S }, sizeof(struct timeval));
    while ((n = read(fd, in, sizeof in)) > 0)
        n_frames--;
    check(n == 0 || n_frames == 0);
    check(n >= 0);
    close(fd);
}

static void add_frame(struct buffer *out, uint64_t epoch, Stoa__Wire__Frame__BodyCase kind, void *body)
{
    Stoa__Wire__Frame frame = STOA__WIRE__FRAME__INIT;
    frame.epoch = epoch;
    frame.body_case = kind;
    frame.hello = body;
    frame_append(out, &frame);
}

static void test_broken_fronts(void)
{
    snprintf(path, sizeof path, "unix:%s/socket", folder);
    struct wire_server *server = server_open(path);
    Stoa__Wire__Hello hello = STOA__WIRE__HELLO__INIT;
    Stoa__Wire__Tokens tokens = STOA__WIRE__TOKENS__INIT;
    Stoa__Wire__Cancel cancel = STOA__WIRE__CANCEL__INIT;
    struct front good;
    struct buffer bytes = { 0 };
    hello.protocol = WIRE_PROTOCOL;
    front_open(&good, path, EPOCH);
    until(&good, good.n_hellos == 1);

    buffer_add_text(&bytes, "GET / HTTP/1.1\r\n\r\n");
    check_closed(path, "HTTP", &bytes, 1);
    bytes.size = 0;
    add_frame(&bytes, EPOCH, STOA__WIRE__FRAME__BODY_CANCEL, &cancel);
    check_closed(path, "a Cancel first", &bytes, 1);
    bytes.size = 0;
    add_frame(&bytes, EPOCH, STOA__WIRE__FRAME__BODY_HELLO, &hello);
    add_frame(&bytes, EPOCH, STOA__WIRE__FRAME__BODY_TOKENS, &tokens);
    check_closed(path, "Tokens", &bytes, 1);
    bytes.size = 0;
    add_frame(&bytes, EPOCH - 1, STOA__WIRE__FRAME__BODY_HELLO, &hello);
    check_closed(path, "a Hello of another epoch", &bytes, 1);
    bytes.size = 0;
    hello.protocol = WIRE_PROTOCOL + 1;
    add_frame(&bytes, EPOCH, STOA__WIRE__FRAME__BODY_HELLO, &hello);
    check_closed(path, "a Hello of another protocol", &bytes, 1);
    buffer_release(&bytes);

    check_begin("and the others go on");
    expect(server, WIRE_GONE, 0);                               /* of the one that had said Hello */
    check_int(front_submit(&good, 4, 1), 0);
    uint64_t connection = expect(server, WIRE_SUBMIT, 4);
    wire_server_drop(server, connection, "the test says so");
    until(&good, good.n_ends == 1);
    check_int(expect(server, WIRE_GONE, 0), connection);
    wire_client_close(good.client);
    wire_server_close(server);
}

/* Frames of another epoch and of no known kind, between two that count. */
static void test_skipped_frames(void)
{
    struct wire_server *server = server_open(path);
    Stoa__Wire__Hello hello = STOA__WIRE__HELLO__INIT;
    Stoa__Wire__Cancel cancel = STOA__WIRE__CANCEL__INIT;
    struct buffer bytes = { 0 };
    check_begin("frames of an old epoch are dropped, unknown bodies skipped");
    hello.protocol = WIRE_PROTOCOL;
    add_frame(&bytes, EPOCH, STOA__WIRE__FRAME__BODY_HELLO, &hello);
    cancel.request = 1;
    add_frame(&bytes, EPOCH - 1, STOA__WIRE__FRAME__BODY_CANCEL, &cancel);
    buffer_add(&bytes, "\x06\x00\x00\x00\x08\x05\xa2\x06\x01x", 10);
    cancel.request = 2;
    add_frame(&bytes, EPOCH, STOA__WIRE__FRAME__BODY_CANCEL, &cancel);
    int fd = connect_plain(path);
    check_int(write(fd, bytes.bytes, bytes.size), bytes.size);
    expect(server, WIRE_CANCEL, 2);
    close(fd);
    expect(server, WIRE_GONE, 0);
    buffer_release(&bytes);
    wire_server_close(server);
}

static void test_slow_front(void)
{
    struct wire_server *server = server_open(path);
    struct front slow, quick;
    uint32_t sent = 0;
    int err = 0;
    check_begin("a front that reads nothing is given up, and no other");
    front_open(&slow, path, EPOCH);
    until(&slow, slow.n_hellos == 1);
    front_submit(&slow, 1, 1);
    uint64_t stuck = expect(server, WIRE_SUBMIT, 1), other;
    front_open(&quick, path, EPOCH);
    until(&quick, quick.n_hellos == 1);
    front_submit(&quick, 1, 1);
    other = expect(server, WIRE_SUBMIT, 1);
    for (; sent < 40000000 && (err = send_tokens(server, stuck, sent, 20000)) == 0; sent += 20000)
        continue;
    check_int(err, ERR_PEER);
    check(sent > 1000000);
    check_int(expect(server, WIRE_GONE, 0), stuck);
    check_int(send_tokens(server, other, 0, 5), 0);
    until(&quick, quick.n_tokens == 5);
    until(&slow, slow.n_ends == 1);
    wire_client_close(slow.client);
    wire_client_close(quick.client);
    wire_server_close(server);
}

/* More requests than the server holds for a step thread that takes none; all of them come in the end. */
static void test_busy_step_thread(void)
{
    enum { N = 60, N_PROMPT = 1000000 };
    struct wire_server *server = server_open(path);
    struct front front;
    int n = 0;
    check_begin("requests wait in the socket when the step thread takes none");
    front_open(&front, path, EPOCH);
    until(&front, front.n_hellos == 1);
    for (int i = 0; i < N; i++) {
        check_int(front_submit(&front, (uint64_t)i, N_PROMPT), 0);
        front_turn(&front, 0);
    }
    for (double end_s = seconds_now() + 3; wire_client_events(front.client) & EPOLLOUT && seconds_now() < end_s;)
        front_turn(&front, 20);
    check(wire_client_events(front.client) & EPOLLOUT);
    for (double end_s = seconds_now() + 3 * PATIENCE_S; n < N && seconds_now() < end_s;) {
        struct wire_event *event = wire_server_take(server, 5);
        if (event && check_int(event->kind, WIRE_SUBMIT) && check_int(event->request, n))
            check_int(event->submit->n_prompt, N_PROMPT);
        n += event != NULL;
        wire_event_free(event);
        front_turn(&front, 0);
    }
    check_int(n, N);
    wire_client_close(front.client);
    wire_server_close(server);
}

static void test_closing(void)
{
    struct wire_server *server = server_open(path);
    struct front front, closes;
    check_begin("a server that closes sends what was queued");
    front_open(&front, path, EPOCH);
    until(&front, front.n_hellos == 1);
    front_submit(&front, 1, 1);
    send_tokens(server, expect(server, WIRE_SUBMIT, 1), 0, 100);
    wire_server_close(server);
    until(&front, front.n_ends == 1);
    check_int(front.n_tokens, 100);
    wire_client_close(front.client);
    check(access(path + 5, F_OK) < 0);

    check_begin("a front may close from within on_frame()");
    server = server_open(path);
    front_open(&closes, path, EPOCH);
    until(&closes, closes.n_hellos == 1);
    front_submit(&closes, 1, 1);
    closes.closes = true;
    uint64_t connection = expect(server, WIRE_SUBMIT, 1);
    send_tokens(server, connection, 0, 1);
    send_tokens(server, connection, 1, 1);
    until(&closes, !closes.client);
    check_int(expect(server, WIRE_GONE, 0), connection);
    wire_server_close(server);
}

static void *write_soon(void *fd)
{
    usleep(50000);
    check_int(write(*(int *)fd, "x", 1), 1);
    return NULL;
}

static void test_wake(void)
{
    struct wire_server *server = server_open(path);
    pthread_t thread;
    int fds[2];
    double start_s = seconds_now();
    check_begin("a step thread that waits is woken by its descriptor, once");
    check_int(pipe(fds), 0);
    wire_server_wake_by(server, fds[0]);
    pthread_create(&thread, NULL, write_soon, &fds[1]);
    check(!wire_server_take(server, 60000));
    check(seconds_now() - start_s < 30);
    pthread_join(thread, NULL);
    start_s = seconds_now();
    check(!wire_server_take(server, 50));
    check(seconds_now() - start_s >= 0.05);
    close(fds[0]);
    close(fds[1]);
    wire_server_close(server);
}

static bool refuses_chmod;

int __real_chmod(const char *name, mode_t mode);
int __wrap_chmod(const char *name, mode_t mode);
int __wrap_chmod(const char *name, mode_t mode)
{
    return refuses_chmod ? (errno = EPERM, -1) : __real_chmod(name, mode);
}

static void test_paths(void)
{
    struct wire_server *server = server_open(path), *second = NULL;
    Stoa__Wire__Hello hello = STOA__WIRE__HELLO__INIT;
    struct wire_server_options options = { .address = path, .hello = &hello };
    struct stat file;
    check_begin("the socket is its owner's alone");
    check_int(stat(path + 5, &file), 0);
    check_int(file.st_mode & 0777, 0600);
    check_begin("a path that somebody listens on is taken");
    check_int(wire_server_open(&second, &options), ERR_USAGE);
    check(strstr(error_text(), "in use"));
    wire_server_close(server);

    check_begin("a socket that a dead server has left is replaced");
    struct address dead;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    address_read(&dead, path);
    check_int(bind(fd, &dead.socket.any, dead.n_bytes), 0);
    close(fd);
    check_int(wire_server_open(&second, &options), 0);
    wire_server_close(second);

    check_begin("a file that is no socket stays");
    close(open(path + 5, O_WRONLY | O_CREAT, 0600));
    check_int(wire_server_open(&second, &options), ERR_USAGE);
    check_int(unlink(path + 5), 0);
    check_begin("a folder that somebody else has locked");
    int lock = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    check_int(flock(lock, LOCK_EX), 0);
    check_int(wire_server_open(&second, &options), ERR_FAILED);
    check(strstr(error_text(), folder));
    close(lock);
    check_begin("a path that cannot be its owner's alone is not left there");
    refuses_chmod = true;
    check_int(wire_server_open(&second, &options), ERR_USAGE);
    refuses_chmod = false;
    check(access(path + 5, F_OK) < 0);
    check_begin("nobody listens there");
    struct front front;
    check_int(front_open(&front, path, EPOCH), ERR_PEER);
}

static void test_crowd(void)
{
    struct wire_server *server = server_open(path);
    struct front front[WIRE_MAX_CONNECTIONS + 1];
    int silent[WIRE_MAX_CONNECTIONS], n_good = 0;
    check_begin("connections that say nothing make way");
    for (int i = 0; i < WIRE_MAX_CONNECTIONS; i++)
        silent[i] = connect_plain(path);
    for (int i = 0; i < WIRE_MAX_CONNECTIONS; i++) {
        front_open(&front[i], path, EPOCH);
        until(&front[i], front[i].n_hellos == 1);
        check_int(front_submit(&front[i], (uint64_t)i, 1), 0);
        expect(server, WIRE_SUBMIT, (uint64_t)i);
        n_good++;
    }
    check_begin("one more front than there is room for");
    front_open(&front[n_good], path, EPOCH);
    until(&front[n_good], front[n_good].n_ends == 1);
    for (int i = 0; i <= n_good; i++)
        wire_client_close(front[i].client);
    for (int i = 0; i < n_good; i++)
        expect(server, WIRE_GONE, 0);
    for (int i = 0; i < WIRE_MAX_CONNECTIONS; i++)
        close(silent[i]);
    wire_server_close(server);
}

/* A server that slept for 10 ms, whenever it cannot accept, would take two seconds for the tokens. */
static void test_no_files(void)
{
    enum { N = 200 };
    struct wire_server *server = server_open(path);
    struct front front;
    struct rlimit before, few;
    char byte;
    check_begin("without descriptors those who are there are served, and others when there are some");
    front_open(&front, path, EPOCH);
    until(&front, front.n_hellos == 1);
    front_submit(&front, 1, 1);
    uint64_t connection = expect(server, WIRE_SUBMIT, 1);
    int late = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), next = dup(late);        /* the next free one */
    struct address to;
    close(next);
    address_read(&to, path);
    check_int(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = (struct rlimit){ (rlim_t)next, before.rlim_max };
    check_int(setrlimit(RLIMIT_NOFILE, &few), 0);
    check_int(connect(late, &to.socket.any, to.n_bytes), 0);
    usleep(20000);
    double start_s = seconds_now();
    for (uint32_t i = 0; i < N; i++) {
        send_tokens(server, connection, i, 1);
        until(&front, front.n_tokens == (int)i + 1);
    }
    check(seconds_now() - start_s < 1.5);
    check(recv(late, &byte, 1, MSG_DONTWAIT) < 0);
    setrlimit(RLIMIT_NOFILE, &before);
    setsockopt(late, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){ .tv_sec = (long)PATIENCE_S }, sizeof(struct timeval));
    check_int(recv(late, &byte, 1, 0), 1);
    close(late);
    wire_client_close(front.client);
    wire_server_close(server);
}

int main(void)
{
    log_silence(true);
    if (!mkdtemp(folder))
        return 1;
    test_exchange("127.0.0.1:0");
    test_exchange("[::1]:0");
    test_epochs();
    test_broken_fronts();
    test_exchange(path);
    test_skipped_frames();
    test_slow_front();
    test_busy_step_thread();
    test_closing();
    test_wake();
    test_paths();
    test_crowd();
    test_no_files();
    rmdir(folder);
    return check_done();
}
