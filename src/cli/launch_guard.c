/* launch_guard.c: the guard of a job; launch.c draws where it stands. */
#include "cli/launch_impl.h"

#include "base/base.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/log.h"
#include "base/threads.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    RELAY_PIECE = 65536,                /* bytes of output taken at a time */
    RELAY_MOST = 64 << 20,              /* and waiting for a slow reader */
    DEAD_GRACE_MS = 1500,               /* mpirun's time to see that a rank is dead */
    REMOTE_GRACE_MS = 1500,             /* mpirun's time to end its ranks on other hosts before it is killed */
    GIVE_UP_MS = 10000,                 /* on processes that a SIGKILL does not end */
};

enum { WATCH_SIGNALS, WATCH_LEASH, WATCH_RELAY, WATCH_OUTPUT, N_WATCHED };

struct guard {
    const struct job *job;
    pid_t mpirun;                       /* 0 when it has ended */
    int status;                         /* of mpirun then */
    bool output_lost;                   /* nobody reads standard output any more */
    int output_error;                   /* errno of a write to it that failed otherwise */
    struct buffer relay;                /* of mpirun's output, since it swallows such errors */
    size_t relayed;                     /* of that, written already */
    bool stuck;                         /* a rank is dead, and mpirun does not see it */
    bool started;                       /* a rank has come as far as launch_tie_rank() */
    bool explained;                     /* a rank has said why it fails */
    int n_ended_well;                   /* ranks that ended on purpose with exit code 0 */
    int first_dead;                     /* the rank that went first without last words; -1: none, or not known */
    bool any_dead;
    long long dead_ms;                  /* when that was seen */
    struct pollfd *watched;             /* [N_WATCHED + n_ranks] */
};

static long long now_ms(void)
{
    return (long long)(1e3 * seconds_now());
}

static void nap_ms(long ms)
{
    nanosleep(&(struct timespec){ .tv_nsec = ms * 1000000 }, NULL);
}

static int watch_ranks(struct guard *g)
{
    for (int r = 0; r < g->job->options->n_ranks; r++) {
        char path[LAUNCH_PATH_MAX], rank[16];
        struct pollfd *fifo = &g->watched[N_WATCHED + r];
        snprintf(rank, sizeof rank, "%d", r);
        job_rank_path(path, g->job->folder, rank);
        fifo->events = POLLIN;
        if (mkfifo(path, 0600) < 0 || (fifo->fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)) < 0)
            return error_set(ERR_FAILED, "%s: %s", path, strerror(errno));
    }
    return 0;
}

static int guard_open(struct guard *g)
{
    int n = g->job->options->n_ranks;
    g->watched = calloc((size_t)(N_WATCHED + n), sizeof *g->watched);
    if (!g->watched)
        return error_set(ERR_NO_MEMORY, "no memory to watch %d ranks", n);
    int signals = signalfd(-1, &g->job->signals, SFD_CLOEXEC);
    if (signals < 0)
        return error_set(ERR_FAILED, "signals cannot be watched: %s", strerror(errno));
    g->watched[WATCH_SIGNALS] = (struct pollfd){ .fd = signals, .events = POLLIN };
    g->watched[WATCH_LEASH] = (struct pollfd){ .fd = g->job->leash[0] };
    g->watched[WATCH_OUTPUT] = (struct pollfd){ .fd = STDOUT_FILENO };
    return watch_ranks(g);
}

/* Ranks whose FIFO has hung up.  When two go between two looks, which one was first is not known. */
static void look_at_ranks(struct guard *g)
{
    int n_dead = 0, dead = -1;
    for (int r = 0; r < g->job->options->n_ranks; r++) {
        struct pollfd *fifo = &g->watched[N_WATCHED + r];
        char words[16];
        ssize_t n = fifo->fd >= 0 && fifo->revents ? read(fifo->fd, words, sizeof words) : -1;
        if (n > 0) {
            g->started = true;
            g->explained = g->explained || memchr(words, LAUNCH_EXPLAINED, (size_t)n);
            g->n_ended_well += words[n - 1] == LAUNCH_LAST_WORDS;
            if (words[n - 1] & LAUNCH_LAST_WORDS)
                job_close_end(&fifo->fd);
        } else if (n == 0) {
            job_close_end(&fifo->fd);
            n_dead++;
            dead = r;
        }
    }
    if (n_dead > 0 && !g->any_dead) {
        g->first_dead = n_dead == 1 ? dead : -1;
        g->dead_ms = now_ms();
    }
    g->any_dead = g->any_dead || n_dead > 0;
}

/* False when no process of the job is left. */
static bool reap(struct guard *g)
{
    pid_t pid;
    int status;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        if (pid == g->mpirun) {
            g->mpirun = 0;
            g->status = status;
        }
    return pid == 0;
}

/* Passes on what mpirun has written.  It is taken as soon as it comes, since mpirun drops at its end what a full pipe has not
 * taken; it is given on as the reader of standard output takes it, and never waited for. */
static void relay_output(struct guard *g)
{
    struct pollfd *from = &g->watched[WATCH_RELAY], *to = &g->watched[WATCH_OUTPUT];
    if (from->revents) {
        buffer_reserve(&g->relay, RELAY_PIECE);
        ssize_t n = g->relay.failed ? -1 : read(from->fd, g->relay.bytes + g->relay.size, RELAY_PIECE);
        g->relay.size += n > 0 ? (size_t)n : 0;
        if (n == 0)
            job_close_end(&from->fd);
    }
    if (to->revents & POLLOUT) {            /* a pipe that is ready takes as much without a wait */
        ssize_t n = write(STDOUT_FILENO, g->relay.bytes + g->relayed, MIN(g->relay.size - g->relayed, PIPE_BUF));
        if (n < 0 && errno != EAGAIN && errno != EINTR) {
            g->output_error = errno;
            g->output_lost = true;
        }
        g->relayed += n > 0 ? (size_t)n : 0;
    }
    if (g->relayed == g->relay.size)
        g->relayed = g->relay.size = 0;
    from->events = g->relay.size < RELAY_MOST ? POLLIN : 0;
    to->events = g->relayed < g->relay.size ? POLLOUT : 0;
}

/* How long to wait for news; 0 when there is nothing to wait for any more. */
static int patience_ms(struct guard *g)
{
    if (g->mpirun == 0)
        return g->relay.size || g->watched[WATCH_RELAY].fd >= 0 ? 100 : 0;        /* its last output */
    if (!g->any_dead)
        return -1;
    g->stuck = now_ms() - g->dead_ms >= DEAD_GRACE_MS;
    return g->stuck ? 0 : DEAD_GRACE_MS;
}

/* Until mpirun has ended and its output is passed on, or the job should end. */
static void watch(struct guard *g)
{
    for (int wait_ms; !g->output_lost && (wait_ms = patience_ms(g)) != 0;) {
        struct signalfd_siginfo signal;
        int n = poll(g->watched, (nfds_t)(N_WATCHED + g->job->options->n_ranks), wait_ms);
        if (n == 0 && g->mpirun == 0 && !g->relay.size)
            return;                     /* somebody else holds its output open, and is silent */
        look_at_ranks(g);
        g->output_lost = g->watched[WATCH_OUTPUT].revents & (POLLERR | POLLHUP);
        relay_output(g);
        if (g->watched[WATCH_LEASH].revents)
            return;
        if (g->watched[WATCH_SIGNALS].revents && read(g->watched[WATCH_SIGNALS].fd, &signal, sizeof signal) > 0) {
            if (signal.ssi_signo != SIGCHLD)
                return;
            reap(g);
        }
    }
}

/* Every process of the guard's session but itself: mpirun and the ranks, which have process groups of their own. */
static void kill_session(void)
{
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    while (proc && (entry = readdir(proc))) {
        pid_t pid = (pid_t)atoi(entry->d_name);
        if (pid > 0 && pid != getpid() && getsid(pid) == getpid())
            kill(pid, SIGKILL);
    }
    if (proc)
        closedir(proc);
}

/* Returns when no process of the job is left on this host. */
static void end_processes(struct guard *g)
{
    long long start = now_ms();
    if (!job_is_local(g->job) && g->mpirun > 0) {
        kill(g->mpirun, SIGTERM);
        while (reap(g) && g->mpirun > 0 && now_ms() - start < REMOTE_GRACE_MS)
            nap_ms(10);
    }
    while (reap(g) && now_ms() - start < GIVE_UP_MS) {
        kill_session();
        nap_ms(2);
    }
}

/* The exit code of the command, once mpirun has ended by itself; says what the ranks could not say. */
static int verdict(const struct guard *g)
{
    int code = WIFEXITED(g->status) ? WEXITSTATUS(g->status) : -1, killed_by = code - 128;

    if (g->output_error && g->output_error != EPIPE) {
        log_own("standard output cannot be written: %s", strerror(g->output_error));
        return 1;
    }
    if (g->output_lost)
        return 128 + SIGPIPE;
    if (g->n_ended_well == g->job->options->n_ranks)
        return 0;                       /* whatever mpirun makes of it: on a crowded machine it has been seen to say 1 */
    if (g->stuck && g->first_dead >= 0) {
        log_own("rank %d died; the job has been ended", g->first_dead);
        return 1;
    }
    if (g->stuck) {
        log_own("a rank died; the job has been ended");
        return 1;
    }
    if (code < 0) {
        log_own("mpirun died (signal %d); the job has been ended", WTERMSIG(g->status));
        return 1;
    }
    if (code == 0 || (code <= 3 && g->explained))
        return code;
    if (g->started && killed_by > 0 && killed_by < NSIG && g->first_dead >= 0)
        log_own("rank %d died (signal %d)", g->first_dead, killed_by);
    else if (g->started && killed_by > 0 && killed_by < NSIG)
        log_own("a rank died (signal %d); the job has been ended", killed_by);
    else if (g->started)
        log_own("the job has ended with exit code %d", code);
    else if (job_is_local(g->job))
        log_own("%s could not start the ranks (exit code %d)", g->job->launcher, code);
    else
        log_own("the job has ended with exit code %d; to see whether %s can reach the hosts at all: "
                "mpirun --hostfile %s hostname", code, g->job->launcher, g->job->options->hosts_file);
    return 1;
}

static int guard_run(struct guard *g, int argc, char **argv)
{
    int err = guard_open(g), output[2] = { -1, -1 };
    if (err == 0 && job_open_fifo(g->job, LAUNCH_OUTPUT_FIFO, output) < 0)
        err = error_set(ERR_FAILED, "no way for the output: %s", strerror(errno));
    if (err < 0) {
        log_own("%s", error_text());
        return error_exit_code(err);
    }
    g->mpirun = launch_mpirun(g->job, output[1], argc, argv);
    close(output[1]);
    fcntl(output[0], F_SETPIPE_SZ, 1 << 20);
    g->watched[WATCH_RELAY] = (struct pollfd){ .fd = output[0], .events = POLLIN };
    if (g->mpirun < 0) {
        log_own("fork: %s", strerror(errno));
        return 1;
    }
    signal(SIGPIPE, SIG_IGN);           /* standard error may have lost its reader as well */
    watch(g);
    bool ended_by_itself = g->mpirun == 0 || g->output_lost || g->stuck;
    poll(g->watched, (nfds_t)(N_WATCHED + g->job->options->n_ranks), 0);
    look_at_ranks(g);                   /* what was said last may still lie there */
    end_processes(g);
    return ended_by_itself ? verdict(g) : 1;
}

_Noreturn void launch_guard(struct job *job, int argc, char **argv)
{
    struct guard g = { .job = job, .first_dead = -1 };
    int null = open("/dev/null", O_RDONLY);
    close(job->leash[1]);
    close(job->input[1]);
    if (null >= 0)
        dup2(null, STDIN_FILENO), close(null);      /* the parent's input is not held open here */
    setsid();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_NAME, "stoa-guard");
    int code = guard_run(&g, argc, argv);
    job_remove_folders(job);
    _exit(code);
}
