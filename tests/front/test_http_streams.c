/* test_http_streams.c: answers that take a while, clients that read slowly or leave meanwhile, and many of them. */
#include "tests/front/http_world.h"

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
    got = hear(fd, "\r\n\r\n");
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
    options.limits.write_ms = 1500;
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
    check_begin("also of a long answer, of which something is always left");
    fd = dial();
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &(int){ 65536 }, sizeof(int));        /* else the kernel reads megabytes for us, and then none */
    say(fd, GET("/big") CLOSE "\r\n");
    size_t n_heard = 0;
    for (int i = 0; i < 25; i++) {
        char bytes[100000];
        nap_ms(100);
        ssize_t n_now = recv(fd, bytes, sizeof bytes, 0);
        n_heard += (size_t)MAX(n_now, 0);
    }
    char *got = hear(fd, NULL);
    check(n_heard + strlen(got) > BIG_BYTES);
    free(got);
    close(fd);
    end();
}

/* A peer that has closed its half is told of for ever: that must not make us spin while it reads slowly. */
static void test_half_closed_reader(void)
{
    struct http_options options = usual();
    static char bytes[1 << 16];
    size_t n_bytes = 0;
    begin(&options);
    check_begin("a client that has closed its half and reads a long answer late gets all of it");
    int fd = dial();
    say(fd, GET("/big") "\r\n");
    char *got = hear(fd, "\r\n\r\n");
    n_bytes = strlen(strstr(got, "\r\n\r\n")) - 4;
    free(got);
    shutdown(fd, SHUT_WR);
    double before_s = cpu_seconds();
    nap_ms(400);
    check(cpu_seconds() - before_s < 0.05);
    for (ssize_t n; (n = recv(fd, bytes, sizeof bytes, 0)) > 0;)
        n_bytes += (size_t)n;
    check_int(n_bytes, BIG_BYTES);
    close(fd);
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
    static const struct { const char *name; void (*leave)(int fd); } ways[] = {
        { "closes", leave }, { "closes its half", half_close }, { "resets", reset },
    };
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
    char *got = hear(fd, NULL);
    check_int(count(got, "\r\n\r\nhello"), 2);
    free(got);
    close(fd);
    check_begin("also one that waits in line");
    fd = dial();
    say(fd, GET("/big") "\r\n" GET("/hello") "\r\n");
    shutdown(fd, SHUT_WR);
    got = hear(fd, "hello");
    check_int(count(got, "HTTP/1.1 200 OK"), 2);
    free(got);
    close(fd);
    check_int(n_gone, want);
    check_begin("nobody is left");
    connections_come_to(0);
    end();
}

/* ---- many ---- */
/* Idle ones cost nothing: no time while they are idle, and little memory. */
static void test_many_idle(void)
{
    enum { N_IDLE = 1000 };
    static int fd[N_IDLE];
    struct http_options options = usual();
    begin(&options);
    check_begin("%d idle streams", N_IDLE);
    long before_kb = resident_kb();
    for (int i = 0; i < N_IDLE; i++) {
        fd[i] = dial();
        say(fd[i], GET("/idle") "\r\n");
    }
    comes_to(&n_filled, N_IDLE);
    check(resident_kb() - before_kb < 8 * N_IDLE * (RUNS_SANITIZED ? 8 : 1));
    double before_s = cpu_seconds();
    nap_ms(500);
    check(cpu_seconds() - before_s < 0.05);
    check_begin("a busy one beside them");
    int busy = dial(), n_filled_before = n_filled;
    before_s = cpu_seconds();
    for (int i = 0; i < 300; i++) {
        say(busy, GET("/hello") "\r\n");
        free(hear(busy, "\r\nhello"));
    }
    check(cpu_seconds() - before_s < 0.5);
    check_int(n_filled, n_filled_before);
    close(busy);
    for (int i = 0; i < N_IDLE; i++)
        close(fd[i]);
    comes_to(&n_gone, N_IDLE);
    connections_come_to(0);
    end();
}

int main(void)
{
    test_streams();
    test_slow_reader();
    test_half_closed_reader();
    test_leaving();
    test_many_idle();
    return check_done();
}
