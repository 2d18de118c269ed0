/* The life of a replica, with this program as the replica: it does what its first word says.  A timer ends a life that goes wrong. */
#include "tests/check.h"

#include "base/error.h"
#include "base/life.h"
#include "front/supervisor.h"
#include "wire/server.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- the clock: what is seen of it can be put forward, and pauses are noted and not waited for ---------------------------- */
static int64_t skipped_ms, pauses_s[16];
static size_t n_pauses;

int64_t __real_loop_now_ms(const struct loop *loop);
int64_t __wrap_loop_now_ms(const struct loop *loop);
void __real_timer_set(struct loop *loop, struct timer *timer, int64_t at_ms);
void __wrap_timer_set(struct loop *loop, struct timer *timer, int64_t at_ms);

int64_t __wrap_loop_now_ms(const struct loop *loop)
{
    return __real_loop_now_ms(loop) + skipped_ms;
}

/* The supervisor's; it looks at what it watches more often than once a second.  is_fast: much more passes between two looks. */
static bool is_fast;
void __wrap_timer_set(struct loop *loop, struct timer *timer, int64_t at_ms)
{
    int64_t wait_ms = at_ms - loop_now_ms(loop);
    skipped_ms += is_fast ? 600 : 0;
    if (wait_ms >= 1000) {
        check(n_pauses < COUNT_OF(pauses_s));
        pauses_s[n_pauses++ % COUNT_OF(pauses_s)] = wait_ms / 1000;
        wait_ms = 0;
    }
    __real_timer_set(loop, timer, __real_loop_now_ms(loop) + wait_ms);
}

static void set_timer(struct loop *loop, struct timer *timer, int64_t wait_ms)
{
    __real_timer_set(loop, timer, __real_loop_now_ms(loop) + wait_ms);
}

/* ---- the replica -------------------------------------------------------------------------------------------------------- */
static const char *value_of(int argc, char **argv, const char *flag)
{
    for (int i = 2; i + 1 < argc; i++)
        if (!strcmp(argv[i], flag))
            return argv[i + 1];
    return "";
}

static void progress(struct wire_server *server, uint32_t predicted_us)
{
    Stoa__Wire__Progress body = STOA__WIRE__PROGRESS__INIT;
    Stoa__Wire__Frame frame = STOA__WIRE__FRAME__INIT;
    body.predicted_us = predicted_us;
    frame.body_case = STOA__WIRE__FRAME__BODY_PROGRESS;
    frame.progress = &body;
    wire_server_send(server, WIRE_ALL, &frame);
}

/* A process that lives on when its parent dies, as a rank whose guard was killed. */
static pid_t leave_orphan(void)
{
    pid_t child = fork();
    if (child == 0) {
        setsid();
        pause();
        _exit(0);
    }
    return child;
}

static uint64_t start_time(pid_t pid)
{
    char path[32], line[1024] = "";
    unsigned long long time = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    if (file && fgets(line, sizeof line, file)) {
        char *field = strrchr(line, ')');
        for (int i = 2; field && i < 22; i++)
            field = strchr(field + 1, ' ');
        time = field ? strtoull(field, NULL, 10) : 0;
    }
    if (file)
        fclose(file);
    return time;
}

static int replica(int argc, char **argv)
{
    const char *does = argv[2];
    uint64_t epoch = strtoull(value_of(argc, argv, "--epoch"), NULL, 10);
    bool is_first = epoch == 1;
    struct wire_server *server;
    char host[256];
    Stoa__Wire__Hello hello = STOA__WIRE__HELLO__INIT;
    Stoa__Wire__Process process = STOA__WIRE__PROCESS__INIT, none = STOA__WIRE__PROCESS__INIT, *processes[] = { &none, &process };
    if (!strncmp(does, "exit ", 5))
        return atoi(does + 5);
    if (!strcmp(does, "fails at first") && is_first)
        return 1;
    if (!strcmp(does, "leaves an orphan") && is_first) {
        gethostname(host, sizeof host);
        process.host = none.host = host;        /* the other's pid 0 would be everybody in the front's group */
        process.pid = (uint32_t)leave_orphan();
        process.start_time = start_time((pid_t)process.pid);
        hello.processes = processes;
        hello.n_processes = 2;
    }
    hello.numerics = (char *)(strcmp(does, "another mode") || !is_first ? "n" : "o");
    hello.model = (char *)(strcmp(does, "another model") || epoch != 2 ? "m" : "o");
    if (!strcmp(does, "stops loading") && is_first)
        pause();
    for (int i = 0; i < 110 && !strcmp(does, "loads for long"); i++) {
        check_int(life_show_beside(value_of(argc, argv, "--listen") + strlen("unix:")), 0);
        life_sign();
        usleep(50000);
    }
    struct wire_server_options options = { value_of(argc, argv, "--listen"), epoch, &hello };
    if (wire_server_open(&server, &options) < 0)
        return 9;
    if (!strcmp(does, "dies when it is told")) {
        wire_event_free(wire_server_take(server, 30000));
        return 7;
    }
    for (int turn = 0; turn < 600; turn++) {
        bool is_stuck = !strcmp(does, "is stuck") && is_first && turn > 3;
        if (strcmp(does, "has measured nothing") && !is_stuck)
            progress(server, 1000);
        if (is_first && turn == 4 && (!strcmp(does, "dies") || !strcmp(does, "leaves an orphan") || !strcmp(does, "another model")))
            return 7;
        if (is_first && turn == 4 && !strcmp(does, "hangs up")) {
            wire_server_close(server);
            pause();
        }
        usleep(100000);
    }
    return 8;
}

/* ---- the front ---------------------------------------------------------------------------------------------------------- */
enum { N_TOLD = 11 };
static const struct life { const char *does; uint64_t last_epoch; int n_ups, n_downs, code, rest_ms; } lives[] = {
    { "goes on",              1, 1, 0, 0, 3000 },
    { "has measured nothing", 1, 1, 0, 0, 3000 },
    { "dies",                 2, 2, 1, 0, 0 },
    { "hangs up",             2, 2, 1, 0, 0 },
    { "is stuck",             2, 2, 1, 0, 0 },
    { "leaves an orphan",     2, 2, 1, 0, 0 },
    { "fails at first",       2, 1, 0, 0, 0 },
    { "another model",        3, 2, 2, 0, 0 },
    { "another mode",         2, 1, 0, 0, 0 },
    { "stops loading",        2, 1, 0, 0, 0 },
    { "loads for long",       1, 1, 0, 0, 0 },
    { "dies when it is told", N_TOLD + 1, N_TOLD + 1, N_TOLD, 0, 0 },
    { "goes on beside a front that is stopped", 1, 1, 0, 0, 1000 },
    { "exit 3",               1, 0, 0, 3, 0 },
    { "exit 2",               1, 0, 0, 2, 0 },
};
/* After each death but the first and the ninth, before which it was well for a minute; before the eleventh it was not quite. */
static const int64_t wanted_pauses_s[] = { 1, 2, 4, 8, 16, 30, 30, 1, 2 };
enum { MINUTE_MS = 60000, LESS_MS = 45000, STOPPED_MS = 15000 };

struct front {
    const struct life *life;
    struct loop *loop;
    struct supervisor *supervisor;
    struct watch signals;
    struct timer rest, limit;
    int n_ups, n_downs, code;
    bool is_over, was_late;
};

static void tell_to_die(struct front *f)
{
    Stoa__Wire__Cancel body = STOA__WIRE__CANCEL__INIT;
    Stoa__Wire__Frame frame = STOA__WIRE__FRAME__INIT;
    frame.body_case = STOA__WIRE__FRAME__BODY_CANCEL;
    frame.cancel = &body;
    skipped_ms += f->n_ups == 9 ? MINUTE_MS : f->n_ups == 11 ? LESS_MS : 0;
    check_int(supervisor_send(f->supervisor, &frame), 0);
}

static void on_up(void *user, const Stoa__Wire__Hello *hello)
{
    struct front *f = user;
    check_text(hello->numerics, "n");
    check(supervisor_is_up(f->supervisor));
    is_fast = false;
    if (++f->n_ups == f->life->n_ups)
        set_timer(f->loop, &f->rest, f->life->rest_ms);
    else if (!strcmp(f->life->does, "dies when it is told"))
        tell_to_die(f);
}

static void on_down(void *user, const char *why)
{
    struct front *f = user;
    f->n_downs++;
    check(!supervisor_is_up(f->supervisor) && why[0]);
}

static void on_frame(void *user, const Stoa__Wire__Frame *frame)
{
    struct front *f = user;
    check_int(frame->body_case, STOA__WIRE__FRAME__BODY_PROGRESS);
    if (!strcmp(f->life->does, "goes on beside a front that is stopped"))
        skipped_ms += STOPPED_MS;
}

static void on_over(void *user, int code)
{
    struct front *f = user;
    f->is_over = true;
    f->code = code;
    loop_stop(f->loop);
}

static void on_signal(struct watch *watch, uint32_t events)
{
    struct front *f = (struct front *)((char *)watch - offsetof(struct front, signals));
    struct signalfd_siginfo info;
    (void)events;
    while (read(watch->fd, &info, sizeof info) == sizeof info)
        supervisor_child(f->supervisor);
}

static void on_rest(struct timer *timer)
{
    supervisor_stop(((struct front *)((char *)timer - offsetof(struct front, rest)))->supervisor);
}

static void on_limit(struct timer *timer)
{
    struct front *f = (struct front *)((char *)timer - offsetof(struct front, limit));
    f->was_late = true;
    loop_stop(f->loop);
}

static void test_life(const struct life *life)
{
    const char *words[] = { life->does, NULL };
    struct front f = { .life = life, .rest.due = on_rest, .limit.due = on_limit };
    sigset_t signals, old;
    check_begin("a replica that %s", life->does);
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    sigprocmask(SIG_BLOCK, &signals, &old);
    if (!check_int(loop_open(&f.loop), 0))
        return;
    n_pauses = 0;
    f.signals = (struct watch){ .ready = on_signal, .fd = signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC), .events = EPOLLIN };
    check_int(watch_start(f.loop, &f.signals), 0);
    set_timer(f.loop, &f.limit, 30000);
    is_fast = strstr(life->does, "load");
    struct supervisor_options options = { .loop = f.loop, .words = words, .signals = &old, .numerics = "n", .model = "m", .on_up = on_up,
                                          .on_down = on_down, .on_frame = on_frame, .on_over = on_over, .user = &f };
    if (check_int(supervisor_open(&f.supervisor, &options), 0)) {
        check_int(loop_run(f.loop), 0);
        check(f.is_over && !f.was_late);
        check_int(f.code, life->code);
        check_int(f.n_ups, life->n_ups);
        check_int(f.n_downs, life->n_downs);
        check_int(supervisor_epoch(f.supervisor), life->last_epoch);
        check(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD);
        supervisor_close(f.supervisor);
    }
    if (!strcmp(life->does, "dies when it is told") && check_int(n_pauses, COUNT_OF(wanted_pauses_s)))
        check_bytes("pauses", pauses_s, wanted_pauses_s, sizeof wanted_pauses_s);
    watch_stop(f.loop, &f.signals);
    close(f.signals.fd);
    loop_close(f.loop);
}

int main(int argc, char **argv)
{
    if (argc > 2 && !strcmp(argv[1], "replica"))
        return replica(argc, argv);
    for (size_t i = 0; i < COUNT_OF(lives); i++)
        test_life(&lives[i]);
    return check_done();
}
