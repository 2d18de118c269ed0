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
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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
    if ((code = job_prepare(&job)) == 0 && (code = open_pipes(&job)) == 0)
        code = run(&job, argc, argv);
    for (int i = 0; i < 2; i++) {
        job_close_end(&job.leash[i]);
        job_close_end(&job.input[i]);
    }
    job_remove_folders(&job);           /* the guard has done so, unless it was killed or never was */
    sigprocmask(SIG_SETMASK, &job.old_signals, NULL);
    return code;
}
