/* test_http_large.c: long bodies and long answers hold up nobody else.  Giving back their memory at once takes 25 ms and more. */
#include "tests/front/http_world.h"

enum { ROUNDS = 3, N_MB = RUNS_SANITIZED ? 8 : 256, MB = 1 << 20, WORST_MS = 12 };        /* 5 ms are wanted, on a quiet machine */

static char *megabyte;

/* Each millisecond the loop's thread notes what it has computed since: a crowded machine, which holds up threads, is no fault of ours. */
static struct timer pulse;
static double last_s, worst_s;

static double thread_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void beat(struct timer *timer)
{
    double now_s = thread_seconds();
    worst_s = MAX(worst_s, now_s - last_s);
    last_s = now_s;
    timer_set(loop, timer, loop_now_ms(loop) + 1);
}

static void begin_pulse(void)
{
    worst_s = 0;
    last_s = thread_seconds();
    pulse.due = beat;
    timer_set(loop, &pulse, loop_now_ms(loop));
}

static void end_pulse(void)
{
    beat(&pulse);
    timer_clear(loop, &pulse);
}

static void send_length(int fd)
{
    char head[200];
    snprintf(head, sizeof head, POST("/show") CLOSE "Content-Length: %zu\r\n\r\n", (size_t)N_MB * MB);
    say(fd, head);
    for (int i = 0; i < N_MB; i++)
        say(fd, megabyte);
    char *got = hear(fd, NULL);
    has(got, "body=");
    free(got);
}

static void send_chunks(int fd)
{
    say(fd, POST("/show") CLOSE "Transfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < N_MB; i++) {
        say(fd, "100000\r\n");
        say(fd, megabyte);
        say(fd, "\r\n");
    }
    say(fd, "0\r\n\r\n");
    char *got = hear(fd, NULL);
    has(got, "body=");
    free(got);
}

static void send_and_leave(int fd)
{
    say(fd, POST("/show") "Content-Length: 500000000\r\n\r\n");
    for (int i = 0; i < N_MB; i++)
        say(fd, megabyte);
}

/* All of it, and then its memory is given back. */
static void read_answer(int fd)
{
    static char piece[MB];
    size_t n_heard = 0;
    for (int i = 0; i < N_MB; i++)
        buffer_add(&prepared, megabyte, MB);
    say(fd, GET("/whole") CLOSE "\r\n");
    for (ssize_t n; (n = recv(fd, piece, sizeof piece, 0)) > 0;)
        n_heard += (size_t)n;
    check(n_heard > (size_t)N_MB * MB && n_heard < (size_t)N_MB * MB + 1000);
    check(!prepared.bytes);
}

static void nothing(void)
{
}

static const struct { const char *name; void (*ask)(int fd); } rows[] = {
    { "a body", send_length },
    { "a body of chunks", send_chunks },
    { "a client that leaves within its body", send_and_leave },
    { "an answer", read_answer },
};

static void test_held_up(void)
{
    struct http_options options = usual();
    options.limits.body_bytes = 500000000;
    begin(&options);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        check_begin("%s of %d MB", rows[i].name, N_MB);
        double best_s = 1;
        long before_kb = resident_kb();
        for (int round = 0; round < ROUNDS && 1000 * best_s > WORST_MS; round++) {
            on_loop(begin_pulse);
            int fd = dial();
            rows[i].ask(fd);
            close(fd);
            connections_come_to(0);
            for (int turn = 0; turn < 2 * N_MB; turn++)         /* until all of it has been given back */
                on_loop(nothing);
            on_loop(end_pulse);
            best_s = MIN(best_s, worst_s);
        }
        if (!RUNS_SANITIZED && !check(1000 * best_s < WORST_MS))
            printf("  held up for %.1f ms\n", 1000 * best_s);
        check(RUNS_SANITIZED || resident_kb() - before_kb < 4096);
    }
    end();
}

int main(void)
{
    megabyte = malloc(MB + 1);
    memset(megabyte, 'a', MB);
    megabyte[MB] = 0;
    test_held_up();
    free(megabyte);
    return check_done();
}
