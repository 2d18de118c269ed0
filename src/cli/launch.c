/* launch.c: the process tree of a job, and its end.
 *
 *     terminal --signals, input--> parent --leash, input--> guard ----> mpirun ----> ranks
 *
 *   parent   is launch_ranks() in the command that the user typed.  It takes signals and feeds standard input, and waits.
 *   guard    a fork of the parent in a session of its own, so that the terminal's Ctrl-C does not reach the job.  It owns the
 *            job: it sees the parent end (the leash is a pipe that breaks), mpirun end, and the reader of standard output
 *            leave; then it kills what is left, waits until each process of the job is gone, and removes the job's folders.
 *            Being a process of its own it does this after a kill -9 of the parent too; orphans of the job become its
 *            children (PR_SET_CHILD_SUBREAPER), so "no child left" means that the job is gone from this host.
 *   ranks    die with mpirun, and mpirun with the guard (PR_SET_PDEATHSIG), should the guard itself be killed.
 *
 * Each rank holds the write end of a FIFO in the job's folder, from launch_tie_rank() to its end: so the guard knows which
 * rank was the first to go. */
#include "cli/launch.h"

#include "base/base.h"
#include "base/buffer.h"
#include "base/error.h"
#include "comm/comm.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define INPUT_FIFO "input"
#define OUTPUT_FIFO "output"
#define RANK_FOLDER "STOA_JOB"          /* in a rank's environment: the folder of the FIFOs */

enum {
    RELAY_PIECE = 65536,                /* bytes of output taken at a time */
    RELAY_MOST = 64 << 20,              /* and waiting for a slow reader */
    DEAD_GRACE_MS = 1500,               /* mpirun's time to see that a rank is dead */
    REMOTE_GRACE_MS = 1500,             /* mpirun's time to end its ranks on other hosts before it is killed */
    GIVE_UP_MS = 10000,                 /* on processes that a SIGKILL does not end */
    LAST_WORDS = 0x40,                  /* what a rank writes to its FIFO when it ends on purpose, with its exit code added */
    EXPLAINED = 0x05,                   /* and when it has said why it fails */
};

struct job {
    const struct launch_options *options;
    char launcher[PATH_MAX], program[PATH_MAX];
    char folder[PATH_MAX];              /* mpirun's session folder and the ranks' FIFOs */
    char segments[64];                  /* the folder of the shared-memory segments; "" where there is no /dev/shm */
    sigset_t signals, old_signals;      /* what is read with signalfd() instead of handled; the mask before */
    int leash[2], input[2];             /* pipes, -1 when closed: the parent holds [1], the guard [0] */
};

static bool local(const struct job *job)
{
    return !job->options->hosts_file;
}

static long long now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

static void nap_ms(long ms)
{
    nanosleep(&(struct timespec){ .tv_nsec = ms * 1000000 }, NULL);
}

static void close_end(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* ---- what a job needs before it can start ------------------------------------------------------------------------------- */
static bool in_path(char *out, size_t size, const char *name)
{
    const char *path = getenv("PATH");
    while (path && *path) {
        size_t n = strcspn(path, ":");
        if (n > 0 && snprintf(out, size, "%.*s/%s", (int)n, path, name) < (int)size && access(out, X_OK) == 0)
            return true;
        path += n + (path[n] == ':');
    }
    return false;
}

static int find_launcher(struct job *job)
{
    static const char *const names[] = { "mpirun.openmpi", "mpirun", "mpiexec" };
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (in_path(job->launcher, sizeof job->launcher, names[i]))
            return 0;
    return error_set(ERR_FAILED, "no MPI launcher found: install openmpi-bin (scripts/deps does)");
}

static int find_program(struct job *job)
{
    ssize_t n = readlink("/proc/self/exe", job->program, sizeof job->program - 1);
    if (n < 0)
        return error_set(ERR_FAILED, "/proc/self/exe: %s", strerror(errno));
    job->program[n] = '\0';
    return 0;
}

static int check_hosts_file(const struct job *job)
{
    if (!local(job) && access(job->options->hosts_file, R_OK) < 0)
        return error_set(ERR_USAGE, "%s: %s", job->options->hosts_file, strerror(errno));
    return 0;
}

static int make_folders(struct job *job)
{
    const char *base = getenv("TMPDIR");
    char whole[PATH_MAX];
    if (!base || !*base)
        base = "/tmp";
    if (realpath(base, whole))
        base = whole;                   /* mpirun takes a relative one amiss */
    if (snprintf(job->folder, sizeof job->folder, "%s/stoa.%d.XXXXXX", base, (int)getpid()) >= (int)sizeof job->folder ||
        !mkdtemp(job->folder)) {
        job->folder[0] = '\0';
        return error_set(ERR_FAILED, "no folder for the job in %s: %s", base, strerror(errno));
    }
    snprintf(job->segments, sizeof job->segments, "/dev/shm/stoa.%d.XXXXXX", (int)getpid());
    if (!local(job) || !mkdtemp(job->segments))
        job->segments[0] = '\0';
    return 0;
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *where)
{
    (void)info, (void)type, (void)where;
    remove(path);
    return 0;
}

static void remove_folders(const struct job *job)
{
    if (job->folder[0])
        nftw(job->folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    if (job->segments[0])
        nftw(job->segments, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* 0, 1 and 2 must be open, or a pipe of ours would become somebody's standard output. */
static void open_standard_files(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) != fd)     /* and writing to it stays an error */
            return;
}

/* What ends a job.  A signal that the caller ignores (nohup, a shell's background job) stays ignored. */
static void choose_signals(struct job *job)
{
    static const int ends[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };
    struct sigaction action;
    sigemptyset(&job->signals);
    sigaddset(&job->signals, SIGCHLD);
    for (size_t i = 0; i < COUNT_OF(ends); i++)
        if (sigaction(ends[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
            sigaddset(&job->signals, ends[i]);
}

/* ---- mpirun ------------------------------------------------------------------------------------------------------------- */
/* Whether ranks may copy from each other's memory (a container or Yama may forbid it): tried in a child, which like a rank is
 * no ancestor of the process that it reads. */
static bool may_read_peers(void)
{
    volatile char there = 1;
    int status = 1;
    pid_t self = getpid(), child = fork();
    if (child == 0) {
        char here = 0;
        struct iovec to = { &here, 1 }, from = { (void *)&there, 1 };
        _exit(process_vm_readv(self, &to, 1, &from, 1, 0) == 1 && here == 1 ? 0 : 1);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

static int n_cores(void)
{
    cpu_set_t mine;
    return sched_getaffinity(0, sizeof mine, &mine) == 0 ? CPU_COUNT(&mine) : 1;
}

/* Open MPI reads its parameters from the environment.  One that the user has set is left alone. */
static void set_parameter(const char *name, const char *value)
{
    char variable[128];
    snprintf(variable, sizeof variable, "OMPI_MCA_%s", name);
    setenv(variable, value, 0);
}

static void set_environment(const struct job *job)
{
    setenv(RANK_FOLDER, job->folder, 1);
    set_parameter("rmaps_base_oversubscribe", "1");
    set_parameter("hwloc_base_binding_policy", "none");     /* else every job's first rank sits on core 0 */
    set_parameter("odls_base_sigkill_timeout", "0");        /* when one rank is dead the others have nothing to tidy up */
    set_parameter("opal_signal", "6,8,11");                 /* SIGBUS is main()'s */
    set_parameter("odls_base_cutoff", "1000000");           /* forks from its main thread: see launch_tie_rank() */
    if (!local(job))
        return;
    set_parameter("orte_tmpdir_base", job->folder);
    set_parameter("pml", "ob1");
    set_parameter("btl", "vader,self");
    set_parameter("oob_tcp_if_include", "lo");              /* else its daemon listens on every interface */
    set_parameter("btl_tcp_if_include", "lo");
    set_parameter("plm", "isolated");                       /* this machine, also inside a batch job that has others */
    set_parameter("ras", "^slurm,gridengine");
    if (job->segments[0])
        set_parameter("btl_vader_backing_directory", job->segments);
    if (!may_read_peers())
        set_parameter("btl_vader_single_copy_mechanism", "none");
    if (job->options->n_ranks > n_cores())
        set_parameter("mpi_yield_when_idle", "1");
}

static void exec_mpirun(const struct job *job, int argc, char **argv)
{
    char n_ranks[16];
    const char **args = calloc((size_t)argc + 14, sizeof *args);
    size_t n = 0;
    if (!args)
        _exit(127);
    snprintf(n_ranks, sizeof n_ranks, "%d", job->options->n_ranks);
    args[n++] = job->launcher;
    args[n++] = "--quiet";
    if (geteuid() == 0)
        args[n++] = "--allow-run-as-root";
    if (!local(job)) {
        args[n++] = "--hostfile";
        args[n++] = job->options->hosts_file;
        args[n++] = "-x";
        args[n++] = RANK_FOLDER;
        if (job->options->chat) {
            args[n++] = "-x";
            args[n++] = LAUNCH_CHAT;
        }
    }
    args[n++] = "-n";
    args[n++] = n_ranks;
    args[n++] = job->program;
    for (int i = 1; i < argc; i++)
        args[n++] = argv[i];
    execv(job->launcher, (char **)args);
    fprintf(stderr, "stoa: %s: %s\n", job->launcher, strerror(errno));
    _exit(127);
}

static pid_t start_mpirun(const struct job *job, int output, int argc, char **argv)
{
    pid_t guard = getpid(), child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != guard)
            _exit(127);
        dup2(local(job) ? open("/dev/null", O_RDONLY) : job->input[0], STDIN_FILENO);
        dup2(output, STDOUT_FILENO);
        sigprocmask(SIG_SETMASK, &job->old_signals, NULL);
        exec_mpirun(job, argc, argv);
    }
    return child;
}

/* Both ends of a FIFO in the job's folder, the reading one nonblocking. */
static int open_fifo(const struct job *job, const char *name, int ends[2])
{
    char path[PATH_MAX + 32];
    if (snprintf(path, sizeof path, "%s/%s", job->folder, name) >= (int)sizeof path || mkfifo(path, 0600) < 0 ||
        (ends[0] = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)) < 0)
        return -1;
    return (ends[1] = open(path, O_WRONLY | O_CLOEXEC)) < 0 ? -1 : 0;
}

/* ---- the guard ---------------------------------------------------------------------------------------------------------- */
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

static int rank_path(char *path, size_t size, const char *folder, const char *rank)
{
    return snprintf(path, size, "%s/rank.%s", folder, rank) < (int)size ? 0 : -1;
}

static int watch_ranks(struct guard *g)
{
    for (int r = 0; r < g->job->options->n_ranks; r++) {
        char path[PATH_MAX + 32], rank[16];
        struct pollfd *fifo = &g->watched[N_WATCHED + r];
        snprintf(rank, sizeof rank, "%d", r);
        rank_path(path, sizeof path, g->job->folder, rank);
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
    g->watched[WATCH_SIGNALS] = (struct pollfd){ .fd = signalfd(-1, &g->job->signals, SFD_CLOEXEC), .events = POLLIN };
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
            g->explained = g->explained || memchr(words, EXPLAINED, (size_t)n);
            g->n_ended_well += words[n - 1] == LAST_WORDS;
            if (words[n - 1] & LAST_WORDS)
                close_end(&fifo->fd);
        } else if (n == 0) {
            close_end(&fifo->fd);
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
            close_end(&from->fd);
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
    if (!local(g->job) && g->mpirun > 0) {
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
        fprintf(stderr, "stoa: standard output cannot be written: %s\n", strerror(g->output_error));
        return 1;
    }
    if (g->output_lost)
        return 128 + SIGPIPE;
    if (g->n_ended_well == g->job->options->n_ranks)
        return 0;                       /* whatever mpirun makes of it: on a crowded machine it has been seen to say 1 */
    if (g->stuck && g->first_dead >= 0) {
        fprintf(stderr, "stoa: rank %d died; the job has been ended\n", g->first_dead);
        return 1;
    }
    if (g->stuck) {
        fprintf(stderr, "stoa: a rank died; the job has been ended\n");
        return 1;
    }
    if (code < 0) {
        fprintf(stderr, "stoa: mpirun died (signal %d); the job has been ended\n", WTERMSIG(g->status));
        return 1;
    }
    if (code == 0 || (code <= 3 && g->explained))
        return code;
    if (g->started && killed_by > 0 && killed_by < NSIG && g->first_dead >= 0)
        fprintf(stderr, "stoa: rank %d died (signal %d)\n", g->first_dead, killed_by);
    else if (g->started && killed_by > 0 && killed_by < NSIG)
        fprintf(stderr, "stoa: a rank died (signal %d); the job has been ended\n", killed_by);
    else if (g->started)
        fprintf(stderr, "stoa: the job has ended with exit code %d\n", code);
    else if (local(g->job))
        fprintf(stderr, "stoa: %s could not start the ranks (exit code %d)\n", g->job->launcher, code);
    else
        fprintf(stderr, "stoa: the job has ended with exit code %d; to see whether %s can reach the hosts at all: "
                "mpirun --hostfile %s hostname\n", code, g->job->launcher, g->job->options->hosts_file);
    return 1;
}

static int guard_run(struct guard *g, int argc, char **argv)
{
    int err = guard_open(g), output[2] = { -1, -1 };
    if (err == 0 && open_fifo(g->job, OUTPUT_FIFO, output) < 0)
        err = error_set(ERR_FAILED, "no way for the output: %s", strerror(errno));
    if (err < 0) {
        fprintf(stderr, "stoa: %s\n", error_text());
        return error_exit_code(err);
    }
    set_environment(g->job);
    g->mpirun = start_mpirun(g->job, output[1], argc, argv);
    close(output[1]);
    fcntl(output[0], F_SETPIPE_SZ, 1 << 20);
    g->watched[WATCH_RELAY] = (struct pollfd){ .fd = output[0], .events = POLLIN };
    if (g->mpirun < 0) {
        fprintf(stderr, "stoa: fork: %s\n", strerror(errno));
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

static _Noreturn void guard_main(struct job *job, int argc, char **argv)
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
    remove_folders(job);
    _exit(code);
}

/* ---- the parent --------------------------------------------------------------------------------------------------------- */
struct feed {
    char bytes[65536];                  /* read and not yet passed on: [begin, end) */
    size_t begin, end;
    bool ended;                         /* standard input has */
    bool interrupt;                     /* a Ctrl-C is to be passed on behind it */
    bool is_draining;                   /* the signal for it has come */
};

/* Takes what there is to take and passes on what can be passed on, without ever waiting. */
static void feed_input(struct job *job, struct feed *feed, short in_events, short out_events)
{
    static const char ctrl_c[] = "\x03\n";
    if (feed->begin == feed->end && feed->interrupt) {
        memcpy(feed->bytes, ctrl_c, sizeof ctrl_c);
        feed->begin = 0;
        feed->end = sizeof ctrl_c - 1;
        feed->interrupt = false;
    } else if (in_events && feed->begin == feed->end && !feed->ended) {
        ssize_t n = read(STDIN_FILENO, feed->bytes, sizeof feed->bytes);
        feed->begin = 0;
        feed->end = n > 0 ? (size_t)n : 0;
        feed->ended = n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN);
    }
    if (feed->begin < feed->end) {
        ssize_t n = write(job->input[1], feed->bytes + feed->begin, feed->end - feed->begin);
        feed->begin += n > 0 ? (size_t)n : 0;
    }
    bool reader_gone = out_events & POLLERR;
    if (reader_gone || (feed->ended && feed->begin == feed->end && !feed->interrupt && !job->options->drains))
        close_end(&job->input[1]);
}

/* A signal came: 0 when it is passed on or means nothing, else the exit code with which the job is to end. */
static int take_signal(const struct job *job, struct feed *feed, int signal_number)
{
    if (signal_number == SIGCHLD)
        return 0;
    if (signal_number == SIGINT && job->options->chat && job->input[1] >= 0) {
        feed->interrupt = true;
        return 0;
    }
    if ((signal_number == SIGINT || signal_number == SIGTERM) && job->options->drains && !feed->is_draining) {
        feed->interrupt = feed->is_draining = true;
        return 0;
    }
    return 128 + signal_number;
}

/* Until the guard is gone, and with it the job.  The exit code of the command. */
static int attend(struct job *job, pid_t guard)
{
    struct feed feed = { .ended = job->options->no_input || job->options->drains };
    int signals = signalfd(-1, &job->signals, SFD_CLOEXEC | SFD_NONBLOCK), code = 0, status = 0;

    while (waitpid(guard, &status, WNOHANG) == 0) {
        bool full = feed.begin < feed.end || feed.interrupt;
        struct pollfd fds[] = {
            { .fd = signals, .events = POLLIN },
            { .fd = job->input[1] < 0 || full || feed.ended ? -1 : STDIN_FILENO, .events = POLLIN },
            { .fd = job->input[1], .events = full ? POLLOUT : 0 },
        };
        struct signalfd_siginfo signal;
        if (job->input[1] >= 0 && feed.ended && !full && !job->options->drains)
            close_end(&job->input[1]), fds[2].fd = -1;
        poll(fds, COUNT_OF(fds), -1);
        while (read(signals, &signal, sizeof signal) > 0) {
            int end = take_signal(job, &feed, (int)signal.ssi_signo);
            if (end > 0 && code == 0) {
                code = end;
                close_end(&job->input[1]);
                close_end(&job->leash[1]);          /* the guard does the rest */
            }
        }
        if (job->input[1] >= 0)
            feed_input(job, &feed, fds[1].revents, fds[2].revents);
    }
    close(signals);
    if (WIFSIGNALED(status))
        fprintf(stderr, "stoa: the guard of the job died (signal %d)\n", WTERMSIG(status));
    return code ? code : WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* The way of standard input to rank 0: a FIFO in the job's folder, or with hosts a pipe to mpirun.  Its reading end stays open
 * here, so that what is written before rank 0 comes is not lost. */
static int open_input(struct job *job)
{
    return local(job) ? open_fifo(job, INPUT_FIFO, job->input) : pipe2(job->input, O_CLOEXEC);
}

static int open_pipes(struct job *job)
{
    if (pipe2(job->leash, O_CLOEXEC) < 0 || open_input(job) < 0 || fcntl(job->input[1], F_SETFL, O_NONBLOCK) < 0)
        return error_set(ERR_FAILED, "pipe: %s", strerror(errno));
    return 0;
}

/* Forks the guard and attends to it.  Signals are as the caller had them again when this returns. */
static int run(struct job *job, int argc, char **argv)
{
    int code;
    struct sigaction ignore = { .sa_handler = SIG_IGN }, old_pipe;

    choose_signals(job);
    sigprocmask(SIG_BLOCK, &job->signals, &job->old_signals);
    fflush(NULL);
    pid_t guard = fork();
    if (guard == 0)
        guard_main(job, argc, argv);
    close_end(&job->leash[0]);
    close_end(&job->input[0]);
    sigaction(SIGPIPE, &ignore, &old_pipe);
    code = guard < 0 ? error_set(ERR_FAILED, "fork: %s", strerror(errno)) : attend(job, guard);
    sigaction(SIGPIPE, &old_pipe, NULL);
    sigprocmask(SIG_SETMASK, &job->old_signals, NULL);
    return code;
}

int launch_ranks(const struct launch_options *options, int argc, char **argv)
{
    struct job job = { .options = options, .leash = { -1, -1 }, .input = { -1, -1 } };
    int code;

    assert(options->n_ranks > 0);
    open_standard_files();
    if ((code = find_launcher(&job)) < 0 || (code = find_program(&job)) < 0 || (code = check_hosts_file(&job)) < 0 ||
        (code = make_folders(&job)) < 0 || (code = open_pipes(&job)) < 0)
        goto done;
    code = run(&job, argc, argv);
done:
    for (int i = 0; i < 2; i++) {
        close_end(&job.leash[i]);
        close_end(&job.input[i]);
    }
    remove_folders(&job);               /* the guard has done so, unless it was killed or never was */
    return code;
}

/* ---- in a rank ---------------------------------------------------------------------------------------------------------- */
static int last_words_fd = -1;

static void say_last_words(int status, void *user)
{
    const char words = (char)(LAST_WORDS | (status & 0x3f));
    (void)user;
    if (write(last_words_fd, &words, 1) < 0)
        return;                         /* nobody listens: nothing to tell */
}

void launch_explained(void)
{
    const char words = EXPLAINED;
    if (last_words_fd >= 0 && write(last_words_fd, &words, 1) < 0)
        return;                         /* nobody listens: nothing to tell */
}

/* Tells the guard that this rank has started; the FIFO stays open for the guard to see it close. */
static void show_life(const char *folder, const char *rank)
{
    char path[PATH_MAX + 32];
    if (!rank || rank_path(path, sizeof path, folder, rank) < 0)
        return;
    last_words_fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (last_words_fd < 0)
        return;                         /* a rank on another host than the guard's */
    if (write(last_words_fd, "", 1) == 1)
        on_exit(say_last_words, NULL);
}

static void take_stream(const char *folder, const char *name, int flags, int as)
{
    char path[PATH_MAX + 32];
    int fd = snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path ? open(path, flags | O_NONBLOCK | O_CLOEXEC) : -1;
    if (fd < 0)
        return;                         /* a rank on another host than the guard's: mpirun passes it on */
    fcntl(fd, F_SETFL, 0);
    dup2(fd, as);
    close(fd);
}

/* Rank 0 of a local job reads the command's input and writes its output past mpirun 4.1, which crashes now and then when a rank
 * ends at the end of a large input, and lets standard error overtake standard output. */
static void take_streams(const char *folder)
{
    take_stream(folder, INPUT_FIFO, O_RDONLY, STDIN_FILENO);
    take_stream(folder, OUTPUT_FIFO, O_WRONLY, STDOUT_FILENO);
}

/* The kernel's "parent" in PR_SET_PDEATHSIG is the thread that forked this rank, and a launcher that ends that thread would end
 * its rank.  Of a foreign launcher nothing is known; Open MPI's has a pool of threads for 32 ranks of a host and more, which
 * set_environment() switches off.  So only ranks of launch_ranks() are tied. */
void launch_tie_rank(void)
{
    const char *folder = getenv(RANK_FOLDER);
    pid_t launcher = getppid();
    if (!folder || !comm_world_given())
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher)
        raise(SIGKILL);                 /* it ended before the line above */
    const char *rank = getenv("PMIX_RANK");
    show_life(folder, rank);
    if (rank && !strcmp(rank, "0"))
        take_streams(folder);
}
