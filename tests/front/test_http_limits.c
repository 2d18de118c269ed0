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

/* ---- at the limit of connections: who has no request to answer gives his place ---- */
enum { PLACES = 8 };

static void begin_full(int *fd, const char *const *says, int n)
{
    struct http_options options = usual();
    options.limits.connections = PLACES;
    begin(&options);
    for (int i = 0; i < n; i++) {
        fd[i] = dial();
        say(fd[i], says[i]);
        if (strstr(says[i], "/hello"))
            free(hear(fd[i], "\r\nhello"));
        connections_come_to(i + 1);
    }
}

static bool is_closed(int fd)
{
    char *rest = hear(fd, NULL);
    bool is_empty = !*rest;
    free(rest);
    return is_empty;
}

static bool is_open(int fd)
{
    struct pollfd poll_fd = { fd, POLLIN, 0 };
    return poll(&poll_fd, 1, 0) == 0;
}

static void asks_and_is_answered(void)
{
    char *got = ask(GET("/hello") CLOSE "\r\n");
    has(got, "\r\n\r\nhello");
    free(got);
}

static void test_resting_give_way(void)
{
    static const char *const says[PLACES] = { GET("/idle") "\r\n", "GET /hel", GET("/hello") "\r\n", GET("/never") "\r\n",
                                              "", GET("/hello") "\r\n", GET("/idle") "\r\n", GET("/idle") "\r\n" };
    int fd[PLACES];
    begin_full(fd, says, PLACES);
    check_begin("who has rested longest gives his place to a new client, as long as nobody is slow");
    asks_and_is_answered();
    check(is_closed(fd[2]));
    check(is_open(fd[1]) && is_open(fd[4]) && is_open(fd[5]));
    check_begin("one that goes on with its head in time is answered");
    say(fd[1], "lo HTTP/1.1\r\nHost: h\r\n\r\n");
    char *got = hear(fd[1], "\r\nhello");
    has(got, "200 OK");
    free(got);
    check_begin("half a head, or none, for a second: gone before those that rest");
    connections_come_to(PLACES - 1);
    int last = dial();
    connections_come_to(PLACES);
    nap_ms(1100);
    asks_and_is_answered();
    check(is_closed(fd[4]));
    check(is_open(fd[1]) && is_open(fd[5]) && is_open(last));
    check_begin("requests are never given up");
    for (int i = 0; i < 20; i++)
        asks_and_is_answered();
    check_int(n_gone, 0);
    check_int(n_open, 4);
    for (int i = 0; i < PLACES; i++)
        close(fd[i]);
    close(last);
    comes_to(&n_gone, 4);
    end();
}

/* Slow-loris: more connections than there are places, each with half a head. */
static void test_slow_heads(void)
{
    static const char *const says[PLACES] = { "G", "GET /", "GET / HTTP/1.1\r\n", GET("/") "A: b", "P", "POST /echo", GET("/never"), "" };
    int fd[PLACES + PLACES / 2];
    begin_full(fd, says, PLACES);
    check_begin("who has just come keeps his place, and one more is told");
    char *got = ask(GET("/hello") "\r\n");
    check(!strncmp(got, "HTTP/1.1 503 Service Unavailable", 32));
    has(got, "\r\nRetry-After: ");
    free(got);
    for (int i = 0; i < PLACES - 2; i++)
        check(is_open(fd[i]));
    nap_ms(1100);
    check_begin("half a head for a second: others get the places");
    for (int i = PLACES; i < PLACES + PLACES / 2; i++) {
        fd[i] = dial();
        say(fd[i], "GET /live HT");
        asks_and_is_answered();
    }
    on_loop(count_connections);
    check(n_connections <= PLACES);
    for (int i = 0; i < PLACES + PLACES / 2; i++)
        close(fd[i]);
    connections_come_to(0);
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

static void test_taken_bodies(void)
{
    struct http_options options = usual();
    options.limits.bodies_bytes = 30;
    begin(&options);
    check_begin("a body that a handler has taken counts until it answers");
    int first = dial();
    say(first, POST("/take") "Content-Length: 20\r\n\r\n01234567890123456789");
    comes_to(&n_open, 1);
    char *got = ask(POST("/show") CLOSE "Content-Length: 20\r\n\r\n0123456789012345678");
    check(!strncmp(got, "HTTP/1.1 503 ", 13));
    free(got);
    close(first);
    comes_to(&n_gone, 1);
    got = ask(POST("/show") CLOSE "Content-Length: 20\r\n\r\n01234567890123456789");
    has(got, " body=20 ");
    free(got);
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

/* A client that is refused before its body is read may go on to send it, however slowly: a reset would take the answer from it. */
static void test_refused_body(void)
{
    struct http_options options = usual();
    begin(&options);
    check_begin("a body that is refused can still be sent");
    int fd = dial();
    say(fd, POST("/nothing") "Content-Length: 1000\r\n\r\n");
    for (int i = 0; i < 13; i++) {
        check(say(fd, "a"));
        nap_ms(200);
    }
    char *got = hear(fd, NULL);
    has(got, "HTTP/1.1 404 ");
    free(got);
    close(fd);
    end();
}

/* Clients that send all they have before they read: the answer, which was there long before, reaches them. */
static void test_answer_before_the_body(void)
{
    enum { LONG = 48 << 20 };
    static const struct { const char *name, *head, *want; } rows[] = {
        { "401", POST("/echo") JSON "Authorization: Bearer bad\r\nContent-Length: 50331648\r\n\r\n", "HTTP/1.1 401 " },
        { "404", POST("/nothing") "Content-Length: 50331648\r\n\r\n", "HTTP/1.1 404 " },
        { "413", POST("/echo") JSON "Content-Length: 50331648\r\n\r\n", "HTTP/1.1 413 " },
        { "413, of chunks", POST("/echo") JSON "Transfer-Encoding: chunked\r\n\r\n3000000\r\n", "HTTP/1.1 413 " },
        { "431", "GET / HTTP/1.1\r\nA: ", "HTTP/1.1 431 " },
        { "503", GET("/hello"), "HTTP/1.1 503 " },
    };
    struct http_options options = usual();
    char *body = malloc(LONG + 1);
    memset(body, 'a', LONG);
    body[LONG] = 0;
    options.limits.body_bytes = 16 << 20;
    options.limits.connections = 1;
    begin(&options);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        bool is_full = !strcmp(rows[i].name, "503");
        int busy = is_full ? dial() : -1;
        check_begin("an answer while the client sends 48 MB: %s", rows[i].name);
        if (is_full) {
            say(busy, GET("/idle") "\r\n");
            comes_to(&n_open, 1);
        }
        int fd = dial();
        check(say(fd, rows[i].head) && say(fd, body));
        char *got = hear(fd, NULL);
        check(!strncmp(got, rows[i].want, strlen(rows[i].want)));
        has(got, "\r\nConnection: close\r\n");
        free(got);
        close(fd);
        if (is_full)
            close(busy);
        connections_come_to(0);
    }
    check_begin("but not for ever");
    int fd = dial();
    say(fd, rows[2].head);
    size_t n = 0;
    while (n < 16 * (size_t)LONG && say(fd, body))
        n += LONG;
    check(n < 4 * (size_t)LONG);
    close(fd);
    end();
    free(body);
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
    free(ask(GET("/hello") CLOSE "\r\n")); /* connections are accepted in turn: behind this one none still waits to be counted */
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

/* SE-07: bodies of tiny chunks, endless lines and dribbled heads, all at once: each ends as it should, others are served meanwhile, and no
 * memory is left with them. */
struct attack {
    pthread_t thread;
    const char *begin, *more, *want;
    size_t n_more;
    long pause_ms;                      /* between two pieces */
    bool is_right;
};

static void *attack_main(void *user)
{
    struct attack *a = user;
    struct buffer text = { 0 };
    for (size_t i = 0; i < a->n_more && !a->pause_ms; i++)
        buffer_add_text(&text, a->more);
    int fd = dial();
    bool goes_on = say(fd, a->begin) && say(fd, text.bytes ? text.bytes : "");
    for (size_t i = 0; i < a->n_more && a->pause_ms && goes_on; i++) {
        nap_ms(a->pause_ms);
        goes_on = say(fd, a->more);
    }
    char *got = hear(fd, NULL);
    a->is_right = !strncmp(got, a->want, strlen(a->want));
    free(got);
    close(fd);
    buffer_release(&text);
    return NULL;
}

static void attack_all(void)
{
    struct attack attacks[] = {
        { .begin = POST("/show") CLOSE "Transfer-Encoding: chunked\r\n\r\n", .more = "1\r\na\r\n", .n_more = 200000,
          .want = "HTTP/1.1 413 " },
        { .begin = POST("/show") "Transfer-Encoding: chunked\r\n\r\n", .more = "0", .n_more = 1 << 20, .want = "HTTP/1.1 400 " },
        { .begin = GET("/hello") "A: ", .more = "a", .n_more = 1 << 20, .want = "HTTP/1.1 431 " },
        { .begin = "", .more = "G", .n_more = 100, .pause_ms = 20, .want = "HTTP/1.1 408 " },
    };
    for (size_t i = 0; i < COUNT_OF(attacks); i++)
        check_int(pthread_create(&attacks[i].thread, NULL, attack_main, &attacks[i]), 0);
    for (int i = 0; i < 50; i++)
        asks_and_is_answered();
    for (size_t i = 0; i < COUNT_OF(attacks); i++) {
        pthread_join(attacks[i].thread, NULL);
        if (!check(attacks[i].is_right))
            printf("  no %s\n", attacks[i].want);
    }
    connections_come_to(0);
}

static void test_floods(void)
{
    struct http_options options = usual();
    options.limits.head_ms = 1000;
    options.limits.body_bytes = 100000;
    begin(&options);
    check_begin("SE-07");
    attack_all();
    long before_kb = resident_kb();
    attack_all();
    check(resident_kb() - before_kb < (RUNS_SANITIZED ? 65536 : 512));
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
    test_resting_give_way();
    test_slow_heads();
    test_bodies();
    test_taken_bodies();
    test_long_lines();
    test_refused_body();
    test_answer_before_the_body();
    test_drain();
    test_close();
    test_flat();
    test_small_chunks();
    test_floods();
    test_room();
    test_no_files();
    return check_done();
}
