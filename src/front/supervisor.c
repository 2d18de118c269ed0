#include "front/supervisor.h"

#include "base/base.h"
#include "base/error.h"
#include "base/log.h"
#include "base/process.h"
#include "front/socket_folder.h"
#include "wire/client.h"
#include "wire/frame.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    CONNECT_MS = 50,                /* between two tries to connect */
    LOOK_MS = 250,                  /* between two looks at the clock of an idle connection */
    LOADING_MS = 60000,             /* most time without a sign that it gets on loading */
    LATE_MS = 1000,                 /* a look that comes so late means that this process was stopped itself */
    UNMEASURED_MS = 30000,          /* most time without progress before steps have been measured */
    LEAST_MS = 2000,                /* and after */
    LAST_WORDS_MS = 1000,           /* for a replica that has hung up to say why, and to end */
    ORPHANS_MS = 3000,              /* before ranks that a killed child has left behind are killed by their ids */
    GIVE_UP_MS = 10000,             /* on processes that a SIGKILL does not end */
    HEALTHY_MS = 60000,
    LONGEST_PAUSE_S = 30,
    MAX_WORDS = 256,
};

enum state { STARTING, UP, ENDING, RESTING, OVER };

struct supervisor {
    struct supervisor_options options;
    enum state state;
    bool is_stopping, has_been_up;
    pid_t child;                    /* 0: it has been reaped */
    int status;                     /* of the child then */
    uint64_t epoch;
    struct socket_folder folder;    /* there while a replica starts and no longer: a connection needs no name */
    struct wire_client *client;
    struct watch watch;             /* of the client's descriptor */
    struct timer timer;             /* one at a time: what the state waits for */
    int64_t since_ms;               /* the state has begun */
    int64_t due_ms;                 /* when the timer ought to come */
    int64_t progress_ms;            /* the last sign of life */
    struct timespec sign;           /* while it loads: the folder's mtime then */
    uint32_t predicted_us;
    int n_failures;                 /* in a row */
    int first_code;                 /* the exit code that ends the front; 0: none */
    bool tried_orphans;
    bool may_end_itself;            /* it has hung up: who watches its ranks is about to say which of them died */
    struct rank { pid_t pid; uint64_t start_time; bool is_here; } *ranks;       /* of the present Hello */
    size_t n_ranks;
    char why[256], says[384];
};

static void die(struct supervisor *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void wait_ms(struct supervisor *s, int64_t ms)
{
    s->due_ms = loop_now_ms(s->options.loop) + ms;
    timer_set(s->options.loop, &s->timer, s->due_ms);
}

static void enter(struct supervisor *s, enum state state, int64_t first_look_ms)
{
    s->state = state;
    s->since_ms = loop_now_ms(s->options.loop);
    wait_ms(s, first_look_ms);
}

/* ---- the child ---------------------------------------------------------------------------------------------------------- */
static int spawn(struct supervisor *s, const char **argv)
{
    posix_spawnattr_t how;
    posix_spawn_file_actions_t files;
    sigset_t usual;
    sigfillset(&usual);
    posix_spawnattr_init(&how);
    posix_spawn_file_actions_init(&files);
    sigdelset(&usual, SIGPIPE);         /* ignored, as by us: who reads the log may leave */
    /* A session of its own: Ctrl-C in a terminal is the front's alone.  Standard output belongs to nobody here; nor may it be the log,
     * for a job without a reader of its output ends. */
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
    posix_spawnattr_setsigmask(&how, s->options.signals);
    posix_spawnattr_setsigdefault(&how, &usual);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addclosefrom_np(&files, 3);
    int failed = posix_spawn(&s->child, "/proc/self/exe", &files, &how, (char **)argv, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&how);
    if (failed) {
        s->child = 0;
        return error_set(ERR_FAILED, "the replica cannot be started: %s", strerror(failed));
    }
    return 0;
}

static int start(struct supervisor *s)
{
    const char *argv[MAX_WORDS + 8], *const *words = s->options.words;
    char listen[PATH_MAX + 8], epoch[24], pid[24];
    size_t n = 0;
    int err = socket_folder_make(&s->folder);
    if (err < 0)
        return err;
    s->epoch++;
    s->may_end_itself = false;
    snprintf(listen, sizeof listen, "unix:%s", s->folder.socket);
    snprintf(epoch, sizeof epoch, "%llu", (unsigned long long)s->epoch);
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    argv[n++] = "stoa";
    argv[n++] = "replica";
    for (size_t i = 0; words[i]; i++)
        argv[n++] = words[i];
    argv[n++] = "--listen";
    argv[n++] = listen;
    argv[n++] = "--epoch";
    argv[n++] = epoch;
    argv[n++] = "--tied";
    argv[n++] = pid;
    argv[n] = NULL;
    if ((err = spawn(s, argv)) < 0) {
        socket_folder_remove(&s->folder);
        return err;
    }
    s->progress_ms = loop_now_ms(s->options.loop);
    enter(s, STARTING, CONNECT_MS);
    return 0;
}

/* A start that fails, for want of memory or descriptors, counts like a replica that dies. */
static void start_again(struct supervisor *s)
{
    if (start(s) < 0)
        die(s, "%s", error_text());
}

/* True while there are children. */
static bool reap(struct supervisor *s)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        if (pid == s->child) {
            s->child = 0;
            s->status = status;
        }
    return pid == 0;
}

/* Whether the process is there, and its state.  A number below 1 would name many processes, and a time of 0 is that of none. */
static bool is_there(const struct rank *rank, char *state)
{
    return rank->is_here && rank->pid > 0 && rank->start_time && process_start_time(rank->pid, state) == rank->start_time;
}

/* Ranks whose guard is gone or stuck. */
static void kill_orphans(struct supervisor *s)
{
    char state;
    for (size_t r = 0; r < s->n_ranks; r++)
        if (is_there(&s->ranks[r], &state))
            kill(s->ranks[r].pid, SIGKILL);
    s->tried_orphans = true;
}

/* ---- the end of a replica ----------------------------------------------------------------------------------------------- */
static void disconnect(struct supervisor *s)
{
    if (!s->client)
        return;
    watch_stop(s->options.loop, &s->watch);
    wire_client_close(s->client);
    s->client = NULL;
}

static void die(struct supervisor *s, const char *format, ...)
{
    bool was_up = s->state == UP;
    int64_t up_ms = loop_now_ms(s->options.loop) - s->since_ms;
    va_list args;
    va_start(args, format);
    vsnprintf(s->why, sizeof s->why, format, args);
    va_end(args);
    if (was_up && up_ms >= HEALTHY_MS)
        s->n_failures = 0;
    if (!s->is_stopping)
        log_warning("replica %llu: %s", (unsigned long long)s->epoch, s->why);
    disconnect(s);
    socket_folder_remove(&s->folder);
    if (s->child > 0 && !s->may_end_itself)
        kill(s->child, SIGKILL);
    s->tried_orphans = false;
    enter(s, ENDING, 0);
    if (s->has_been_up && !s->is_stopping)
        s->options.on_down(s->options.user, s->why);
}

static void over(struct supervisor *s)
{
    s->state = OVER;
    timer_clear(s->options.loop, &s->timer);
    s->options.on_over(s->options.user, s->first_code);
}

static const char *how_it_ended(const struct supervisor *s, char *room, size_t size)
{
    if (WIFSIGNALED(s->status))
        snprintf(room, size, "it ended by signal %d", WTERMSIG(s->status));
    else
        snprintf(room, size, "it ended with exit code %d", WEXITSTATUS(s->status));
    return room;
}

/* Every process of the old replica is gone, or will never be. */
static void rest(struct supervisor *s)
{
    char how[40];
    if (s->may_end_itself && !s->child)
        log_warning("replica %llu: %s", (unsigned long long)s->epoch, how_it_ended(s, how, sizeof how));
    int pause_s = s->n_failures ? 1 << MIN(s->n_failures - 1, 10) : 0;
    if (s->is_stopping || s->first_code) {
        over(s);
        return;
    }
    s->n_failures++;
    enter(s, RESTING, 1000 * MIN(pause_s, LONGEST_PAUSE_S));
}

static void look_at_end(struct supervisor *s)
{
    int64_t ms = loop_now_ms(s->options.loop) - s->since_ms;
    if (!reap(s)) {
        rest(s);
    } else if (ms >= GIVE_UP_MS) {
        log_warning("replica %llu: processes of it do not end", (unsigned long long)s->epoch);
        rest(s);
    } else {
        if (ms >= LAST_WORDS_MS && s->may_end_itself && s->child > 0) {
            s->may_end_itself = false;
            kill(s->child, SIGKILL);
        }
        if (ms >= ORPHANS_MS && !s->tried_orphans)
            kill_orphans(s);
        wait_ms(s, LOOK_MS);
    }
}

/* ---- the connection ----------------------------------------------------------------------------------------------------- */
static int keep_ranks(struct supervisor *s, const Stoa__Wire__Hello *hello)
{
    char host[HOST_NAME_MAX + 1] = "";
    struct rank *ranks = calloc(hello->n_processes + 1, sizeof *ranks);
    if (!ranks)
        return -1;
    gethostname(host, sizeof host - 1);
    for (size_t i = 0; i < hello->n_processes; i++)
        ranks[i] = (struct rank){ (pid_t)hello->processes[i]->pid, hello->processes[i]->start_time,
                                  !strcmp(hello->processes[i]->host, host) };
    free(s->ranks);
    s->ranks = ranks;
    s->n_ranks = hello->n_processes;
    return 0;
}

static void take_hello(struct supervisor *s, const Stoa__Wire__Hello *hello)
{
    if (hello->protocol != WIRE_PROTOCOL) {
        die(s, "it speaks protocol %u of frames, and the front %u", hello->protocol, WIRE_PROTOCOL);
    } else if (strcmp(hello->numerics, s->options.numerics) || strcmp(hello->model, s->options.model)) {
        die(s, "it has another model than the front: the file has changed; start the server anew");
    } else if (keep_ranks(s, hello) < 0) {
        die(s, "no memory for its ranks");
    } else {
        socket_folder_remove(&s->folder);
        s->has_been_up = true;
        s->predicted_us = 0;
        s->progress_ms = loop_now_ms(s->options.loop);
        enter(s, UP, LOOK_MS);
        s->options.on_up(s->options.user, hello);
    }
}

static void on_frame(void *user, const Stoa__Wire__Frame *frame)
{
    struct supervisor *s = user;
    if (s->state == STARTING && frame->body_case == STOA__WIRE__FRAME__BODY_HELLO) {
        take_hello(s, frame->hello);
    } else if (s->state == UP) {
        if (frame->body_case == STOA__WIRE__FRAME__BODY_PROGRESS) {
            s->progress_ms = loop_now_ms(s->options.loop);
            s->predicted_us = frame->progress->predicted_us;
        }
        s->options.on_frame(s->options.user, frame);
    }
}

/* A replica that starts may have a socket and not listen yet. */
static void on_end(void *user, const char *why)
{
    struct supervisor *s = user;
    s->may_end_itself = s->state == UP;
    if (s->state == STARTING)
        disconnect(s);
    else if (s->state == UP)
        die(s, "the connection is lost: %s", why);
}

static void on_ready(struct watch *watch, uint32_t events)
{
    struct supervisor *s = CONTAINER_OF(watch, struct supervisor, watch);
    wire_client_ready(s->client, events);
    if (s->client)
        watch_change(s->options.loop, &s->watch, wire_client_events(s->client));
}

static void connect_now(struct supervisor *s)
{
    char address[PATH_MAX + 8];
    snprintf(address, sizeof address, "unix:%s", s->folder.socket);
    struct wire_client_options options = { .address = address, .epoch = s->epoch, .on_frame = on_frame, .on_end = on_end, .user = s };
    if (s->client || access(s->folder.socket, F_OK) < 0 || wire_client_open(&s->client, &options) < 0)
        return;
    s->watch = (struct watch){ .ready = on_ready, .fd = wire_client_fd(s->client), .events = wire_client_events(s->client) };
    if (watch_start(s->options.loop, &s->watch) < 0) {
        wire_client_close(s->client);
        s->client = NULL;
    }
}

/* ---- time --------------------------------------------------------------------------------------------------------------- */
/* One that the system holds up, for the line that says why; "" where there is none. */
static const char *stuck_rank(const struct supervisor *s, char *room, size_t size)
{
    char state;
    *room = '\0';
    for (size_t r = 0; r < s->n_ranks && !*room; r++)
        if (is_there(&s->ranks[r], &state) && (state == 'T' || state == 'D'))
            snprintf(room, size, "; rank %zu (process %d) %s", r, (int)s->ranks[r].pid, state == 'T' ? "is stopped" : "waits for a device");
    return room;
}

/* What this process did not see while it was stopped itself is nobody's fault. */
static void look_at_progress(struct supervisor *s, int64_t limit_ms, int64_t next_look_ms)
{
    char stuck[80];
    int64_t now = loop_now_ms(s->options.loop);
    if (now - s->due_ms > LATE_MS)
        s->progress_ms = now;
    if (now - s->progress_ms > limit_ms)
        die(s, "no progress for %.1f s%s%s", (double)(now - s->progress_ms) / 1000, s->state == STARTING ? " while it loads" : "",
            stuck_rank(s, stuck, sizeof stuck));
    else
        wait_ms(s, next_look_ms);
}

static int64_t progress_limit_ms(const struct supervisor *s)
{
    return s->predicted_us ? MAX(LEAST_MS, 8 * (int64_t)s->predicted_us / 1000) : UNMEASURED_MS;
}

static void look_for_sign(struct supervisor *s)
{
    struct stat st;
    if (stat(s->folder.path, &st) < 0 || (st.st_mtim.tv_sec == s->sign.tv_sec && st.st_mtim.tv_nsec == s->sign.tv_nsec))
        return;
    s->sign = st.st_mtim;
    s->progress_ms = loop_now_ms(s->options.loop);
}

static void on_time(struct timer *timer)
{
    struct supervisor *s = CONTAINER_OF(timer, struct supervisor, timer);
    switch (s->state) {
    case STARTING:
        connect_now(s);
        look_for_sign(s);
        look_at_progress(s, LOADING_MS, CONNECT_MS);
        break;
    case UP:
        look_at_progress(s, progress_limit_ms(s), LOOK_MS);
        break;
    case ENDING:
        look_at_end(s);
        break;
    case RESTING:
        start_again(s);
        break;
    case OVER:
        break;
    }
}

/* ---- from outside ------------------------------------------------------------------------------------------------------- */
void supervisor_child(struct supervisor *s)
{
    pid_t was = s->child;
    bool some = reap(s);
    char how[40];
    if (s->state == ENDING && !some)
        rest(s);
    if (!was || s->child || (s->state != STARTING && s->state != UP))
        return;
    if (s->state == STARTING && !s->has_been_up && WIFEXITED(s->status) && (WEXITSTATUS(s->status) == 2 || WEXITSTATUS(s->status) == 3))
        s->first_code = WEXITSTATUS(s->status);
    die(s, "%s", how_it_ended(s, how, sizeof how));
}

void supervisor_stop(struct supervisor *s)
{
    if (s->is_stopping)
        return;
    s->is_stopping = true;
    if (s->state == STARTING || s->state == UP)
        die(s, "the server ends");
    else if (s->state == RESTING)
        enter(s, ENDING, 0);
}

bool supervisor_is_up(const struct supervisor *s)
{
    return s->state == UP;
}

const char *supervisor_says(struct supervisor *s)
{
    if (s->state == UP)
        return "the replica is up";
    if (!s->why[0])
        return "the replica is loading the model";
    snprintf(s->says, sizeof s->says, "%s; the last one died: %s",
             s->state == STARTING ? "the replica is starting again" : "the replica is dead and will be started again", s->why);
    return s->says;
}

uint64_t supervisor_epoch(const struct supervisor *s)
{
    return s->epoch;
}

int supervisor_send(struct supervisor *s, Stoa__Wire__Frame *frame)
{
    if (!s->client)
        return error_set(ERR_PEER, "there is no replica");
    int err = wire_client_send(s->client, frame);
    if (err == 0)
        watch_change(s->options.loop, &s->watch, wire_client_events(s->client));
    return err;
}

size_t supervisor_n_waiting(const struct supervisor *s)
{
    return s->client ? wire_client_n_waiting(s->client) : 0;
}

int supervisor_open(struct supervisor **out, const struct supervisor_options *options)
{
    size_t n_words = 0;
    while (options->words[n_words])
        n_words++;
    if (n_words > MAX_WORDS)
        return error_set(ERR_USAGE, "the command line has more than %d words for the replica", MAX_WORDS);
    struct supervisor *s = calloc(1, sizeof *s);
    if (!s)
        return error_set(ERR_NO_MEMORY, "out of memory for the supervisor");
    s->options = *options;
    s->timer.due = on_time;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    int err = start(s);
    if (err < 0) {
        free(s);
        return err;
    }
    *out = s;
    return 0;
}

void supervisor_close(struct supervisor *s)
{
    if (!s)
        return;
    disconnect(s);
    socket_folder_remove(&s->folder);
    timer_clear(s->options.loop, &s->timer);
    if (s->child > 0)
        kill(s->child, SIGKILL);
    free(s->ranks);
    free(s);
}
