/* test_http_limits.c: too slow, too long, too many; draining and closing; memory and descriptors stay flat. */
#include "tests/front/http_world.h"

/* ---- limits ---- */
static void test_deadlines(void)
{
    static const struct { const char *name, *say, *dribble, *want; double least_s; } rows[] = {
        { "no byte", "", "", "", 0.2 },
        { "half a head", "GET / HT", "", "HTTP/1.1 408 Request Timeout", 0.2 },
        { "a head, byte by byte", "GET /", "a", "HTTP/1.1 408", 0.2 },
        { "half a body", POST("/echo") JSON "Content-Length: 1000\r\n\r\n", "", "HTTP/1.1 408", 0.55 },
        { "a body, byte by byte", POST("/echo") JSON "Content-Length: 1000\r\n\r\n", "a", "HTTP/1.1 408", 0.55 },
        { "chunks, one by one", POST("/echo") JSON "Transfer-Encoding: chunked\r\n\r\n", "1\r\na\r\n", "HTTP/1.1 408", 0.55 },
        { "nothing after an answer", GET("/hello") "\r\n", "", "HTTP/1.1 200", 0.4 },
        { "half a head after an answer", GET("/hello") "\r\n" "GET /he", "", "HTTP/1.1 200", 0.2 },
    };
    struct http_options options = usual();
    options.limits.head_ms = 300;
    options.limits.body_ms = 600;
    options.limits.idle_ms = 450;
    begin(&options);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        check_begin("slow: %s", rows[i].name);
        double begun_s = seconds_now();
        int fd = dial();
        say(fd, rows[i].say);
        for (int k = 0; k < 200 && *rows[i].dribble && seconds_now() - begun_s < rows[i].least_s; k++) {
            nap_ms(20);
            if (!say(fd, rows[i].dribble))
                break;
        }
        char *got = hear(fd, NULL);
        check(!strncmp(got, rows[i].want, strlen(rows[i].want)));
        check(seconds_now() - begun_s > rows[i].least_s && seconds_now() - begun_s < 5);
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
    connections_come_to(MOST - 1);
    got = ask(GET("/hello") CLOSE "\r\n");
    has(got, "\r\n\r\nhello");
    free(got);
    for (int i = 1; i < MOST; i++)
        close(fd[i]);
    comes_to(&n_gone, MOST);
    end();
}

/* Long bodies of many clients together have a limit too; whoever is beyond it is told, and the others go on. */
static void test_bodies(void)
{
    enum { LONG = 60000 };
    static char body[LONG / 2 + 1];
    struct http_options options = usual();
    options.limits.bodies_bytes = LONG;
    memset(body, 'a', LONG / 2);
    begin(&options);
    check_begin("bodies that are too long together");
    for (int i = 0; i < 5; i++) {
        int first = dial(), second = dial();
        say(first, POST("/show") "Content-Length: 60000\r\n\r\n");
        say(first, body);
        connections_come_to(2);
        nap_ms(20);
        say(second, POST("/show") "Content-Length: 60000\r\n\r\n");
        say(second, body);
        say(second, "b");
        char *got = hear(second, NULL);
        check(!strncmp(got, "HTTP/1.1 503 ", 13));
        has(got, "\r\nRetry-After: ");
        free(got);
        say(first, body);
        got = hear(first, "id=");
        has(got, " body=60000 ");
        free(got);
        close(first);
        close(second);
        connections_come_to(0);
    }
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

/* A client that is refused before its body is read may go on to send it: a reset would take the answer from it. */
static void test_refused_body(void)
{
    struct http_options options = usual();
    begin(&options);
    check_begin("a body that is refused can still be sent");
    int fd = dial();
    say(fd, POST("/nothing") "Content-Length: 1000\r\n\r\n");
    free(hear(fd, "}"));
    for (int i = 0; i < 5; i++) {
        check(say(fd, "a"));
        nap_ms(20);
    }
    close(fd);
    end();
}

/* ---- the server's end ---- */
static void drain(void)
{
    http_server_drain(server);
}

static bool can_dial(uint16_t port)
{
    struct sockaddr_in at = loopback(port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), err = connect(fd, (struct sockaddr *)&at, sizeof at);
    close(fd);
    return !err;
}

static void test_drain(void)
{
    struct http_options options = usual();
    begin(&options);
    check_begin("draining: the idle are closed, the others after their answer, nobody new comes in");
    int idler = dial(), stays = dial(), streams = dial(), speaks = dial();
    say(idler, GET("/hello") "\r\n");
    free(hear(idler, "\r\nhello"));
    say(speaks, "GET /hello HT");
    say(stays, GET("/later") "\r\n" GET("/later") "\r\n");
    say(streams, GET("/stream") "\r\n");
    free(hear(streams, "piece"));
    on_loop(drain);
    char *got = hear(idler, NULL);
    check_text(got, "");
    free(got);
    got = hear(stays, NULL);
    check_int(count(got, "\r\nlater"), 1);
    has(got, "\r\nConnection: close\r\n");
    free(got);
    got = hear(streams, NULL);
    has(got, "piece 1\n\r\n0\r\n\r\n");
    free(got);
    say(speaks, "TP/1.1\r\nHost: h\r\n\r\n");
    got = hear(speaks, NULL);
    has(got, "\r\nConnection: close\r\n");
    has(got, "\r\n\r\nhello");
    free(got);
    check(!can_dial(http_server_port(server)));
    close(idler);
    close(stays);
    close(streams);
    close(speaks);
    connections_come_to(0);
    check_int(n_gone, 0);
    end();
}

static void test_close(void)
{
    struct http_options options = usual();
    begin(&options);
    check_begin("closing tells those who hold an exchange");
    int fd[4];
    for (int i = 0; i < 4; i++) {
        fd[i] = dial();
        say(fd[i], i == 0 ? GET("/never") "\r\n" : i == 1 ? GET("/idle") "\r\n" : i == 2 ? GET("/flood") "\r\n" : "GET");
    }
    comes_to(&n_open, 3);
    end();
    check_int(n_gone, 3);
    for (int i = 0; i < 4; i++)
        close(fd[i]);
}

/* ---- memory and descriptors ---- */
static int n_open_files(void)
{
    int n = 0;
    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* Requests of all kinds, also such that are broken off: memory and descriptors stay as they were. */
static void churn(int n)
{
    for (int i = 0; i < n; i++) {
        static const char *const says[] = { GET("/hello") "\r\n", GET("/stream") "\r\n", GET("/idle") "\r\n", "GET /he", POST("/echo") JSON
                                            "Content-Length: 100000\r\n\r\n{", "nonsense\r\n", GET("/never") "\r\n", GET("/later") "\r\n" };
        int fd = dial();
        say(fd, says[i % 8]);
        if (i % 3)
            shutdown(fd, SHUT_WR);
        close(fd);
    }
    connections_come_to(0);
}

static void test_flat(void)
{
    struct http_options options = usual();
    begin(&options);
    check_begin("memory and descriptors after thousands of clients that leave");
    churn(500);
    long before_kb = resident_kb();
    int n_before = n_open_files();
    churn(3000);
    check_int(n_open_files(), n_before);
    check(resident_kb() - before_kb < (RUNS_SANITIZED ? 65536 : 512));
    end();
}

static void test_small_chunks(void)
{
    enum { N_CHUNKS = 200000 };
    struct http_options options = usual();
    struct buffer text = { 0 };
    begin(&options);
    check_begin("a body of %d chunks of a byte", N_CHUNKS);
    buffer_add_text(&text, POST("/show") CLOSE "Transfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < N_CHUNKS; i++)
        buffer_add_text(&text, "1\r\na\r\n");
    buffer_add_text(&text, "0\r\n\r\n");
    char *got = ask(text.bytes);
    has(got, " body=200000 ");
    free(got);
    buffer_release(&text);
    end();
}

static void test_room(void)
{
    struct http_options options = usual();
    struct rlimit before, few, now;
    check_begin("the limit of open files is raised for the connections that are wanted");
    check_int(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = (struct rlimit){ 128, before.rlim_max };
    check_int(setrlimit(RLIMIT_NOFILE, &few), 0);
    begin(&options);
    check_int(getrlimit(RLIMIT_NOFILE, &now), 0);
    check(now.rlim_cur >= MIN(before.rlim_max, options.limits.connections));
    end();
    setrlimit(RLIMIT_NOFILE, &before);
}

/* Without descriptors the listener is left alone for a moment, and then it goes on. */
static void test_no_files(void)
{
    struct http_options options = usual();
    struct rlimit before, few;
    begin(&options);
    check_begin("without descriptors the loop does not spin, and goes on when there are some");
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in at = loopback(http_server_port(server));
    check_int(getrlimit(RLIMIT_NOFILE, &before), 0);
    int next = dup(fd);                 /* the next free one */
    close(next);
    few = (struct rlimit){ (rlim_t)next, before.rlim_max };
    check_int(setrlimit(RLIMIT_NOFILE, &few), 0);
    check_int(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    say(fd, GET("/hello") CLOSE "\r\n");
    double before_s = cpu_seconds();
    nap_ms(500);
    check(cpu_seconds() - before_s < 0.05);
    check_int(n_answered, 0);
    setrlimit(RLIMIT_NOFILE, &before);
    char *got = hear(fd, NULL);
    has(got, "\r\n\r\nhello");
    free(got);
    close(fd);
    end();
}

int main(void)
{
    test_deadlines();
    test_too_many();
    test_bodies();
    test_long_lines();
    test_refused_body();
    test_drain();
    test_close();
    test_flat();
    test_small_chunks();
    test_room();
    test_no_files();
    return check_done();
}
