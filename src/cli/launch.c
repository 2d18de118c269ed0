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
#include "cli/launch_impl.h"

#include "base/base.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void job_close_end(int *fd)
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
    if (!job_is_local(job) && access(job->options->hosts_file, R_OK) < 0)
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
    if (!job_is_local(job) || !mkdtemp(job->segments))
        job->segments[0] = '\0';
    return 0;
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *where)
{
    (void)info, (void)type, (void)where;
    remove(path);
    return 0;
}

void job_remove_folders(const struct job *job)
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

/* ---- its FIFOs --------------------------------------------------------------------------------------------------------- */
int job_open_fifo(const struct job *job, const char *name, int ends[2])
{
    char path[LAUNCH_PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", job->folder, name) >= (int)sizeof path || mkfifo(path, 0600) < 0 ||
        (ends[0] = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)) < 0)
        return -1;
    return (ends[1] = open(path, O_WRONLY | O_CLOEXEC)) < 0 ? -1 : 0;
}

int job_rank_path(char *path, const char *folder, const char *rank)
{
    return snprintf(path, LAUNCH_PATH_MAX, "%s/rank.%s", folder, rank) < LAUNCH_PATH_MAX ? 0 : -1;
}

/* ---- its life ---------------------------------------------------------------------------------------------------------- */
/* The way of standard input to rank 0: a FIFO in the job's folder, or with hosts a pipe to mpirun.  Its reading end stays open
 * here, so that what is written before rank 0 comes is not lost. */
static int open_input(struct job *job)
{
    return job_is_local(job) ? job_open_fifo(job, LAUNCH_INPUT_FIFO, job->input) : pipe2(job->input, O_CLOEXEC);
}

static int open_pipes(struct job *job)
{
    if (pipe2(job->leash, O_CLOEXEC) < 0 || open_input(job) < 0 || fcntl(job->input[1], F_SETFL, O_NONBLOCK) < 0)
        return error_set(ERR_FAILED, "pipe: %s", strerror(errno));
    return 0;
}

/* Forks the guard and attends to it. */
static int run(struct job *job, int argc, char **argv)
{
    int code;
    struct sigaction ignore = { .sa_handler = SIG_IGN }, old_pipe;

    fflush(NULL);
    pid_t guard = fork();
    if (guard == 0)
        launch_guard(job, argc, argv);
    job_close_end(&job->leash[0]);
    job_close_end(&job->input[0]);
    sigaction(SIGPIPE, &ignore, &old_pipe);
    code = guard < 0 ? error_set(ERR_FAILED, "fork: %s", strerror(errno)) : launch_attend(job, guard);
    sigaction(SIGPIPE, &old_pipe, NULL);
    return code;
}

int launch_ranks(const struct launch_options *options, int argc, char **argv)
{
    struct job job = { .options = options, .leash = { -1, -1 }, .input = { -1, -1 } };
    int code;

    assert(options->n_ranks > 0);
    open_standard_files();
    choose_signals(&job);
    sigprocmask(SIG_BLOCK, &job.signals, &job.old_signals);     /* what comes is seen when the guard is there, or at the end */
    if ((code = find_launcher(&job)) < 0 || (code = find_program(&job)) < 0 || (code = check_hosts_file(&job)) < 0 ||
        (code = make_folders(&job)) < 0 || (code = open_pipes(&job)) < 0)
        goto done;
    code = run(&job, argc, argv);
done:
    for (int i = 0; i < 2; i++) {
        job_close_end(&job.leash[i]);
        job_close_end(&job.input[i]);
    }
    job_remove_folders(&job);           /* the guard has done so, unless it was killed or never was */
    sigprocmask(SIG_SETMASK, &job.old_signals, NULL);
    return code;
}
