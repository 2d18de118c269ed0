/* launch_impl.h: what the files of the launcher share.
 *
 *   launch.c           the fork of the guard, and what comes before and after it
 *   launch_parent.c    the parent: signals and standard input
 *   launch_guard.c     the guard: it watches the job and ends it
 *   launch_mpirun.c    mpirun: its environment and its arguments
 *   launch_job.c       programs, folders and FIFOs of a job
 *   launch_rank.c      in a rank: the other end of the FIFOs */
#ifndef STOA_CLI_LAUNCH_IMPL_H
#define STOA_CLI_LAUNCH_IMPL_H

#include "cli/launch.h"

#include <limits.h>
#include <signal.h>
#include <sys/types.h>

#define LAUNCH_INPUT_FIFO "input"
#define LAUNCH_OUTPUT_FIFO "output"
#define LAUNCH_RANK_FOLDER "STOA_JOB"   /* in a rank's environment: the folder of the FIFOs */

enum {
    LAUNCH_PATH_MAX = PATH_MAX + 32,    /* of a FIFO in that folder */
    LAUNCH_LAST_WORDS = 0x40,           /* what a rank writes to its FIFO when it ends on purpose, with its exit code added */
    LAUNCH_EXPLAINED = 0x05,            /* and when it has said why it fails */
};

struct job {
    const struct launch_options *options;
    char launcher[PATH_MAX], program[PATH_MAX];
    char folder[PATH_MAX];              /* mpirun's session folder and the ranks' FIFOs */
    char segments[64];                  /* the folder of the shared-memory segments; "" where there is no /dev/shm */
    sigset_t signals, old_signals;      /* what is read with signalfd() instead of handled; the mask before */
    int leash[2], input[2];             /* pipes, -1 when closed: the parent holds [1], the guard [0] */
};

static inline bool job_is_local(const struct job *job)
{
    return !job->options->hosts_file;
}

/* ---- launch_job.c ---- */
/* Finds the programs and makes the folders.  ERR_USAGE for a hosts file that cannot be read, else ERR_FAILED. */
int job_prepare(struct job *job);
void job_remove_folders(const struct job *job);
/* Both ends of a new FIFO in the job's folder, the reading one nonblocking.  -1 and errno. */
int job_open_fifo(const struct job *job, const char *name, int ends[2]);
/* The name of a rank's FIFO, LAUNCH_PATH_MAX bytes; -1 when it does not fit. */
int job_rank_path(char *path, const char *folder, const char *rank);
/* Closes an end of a pipe unless it is -1, which it is afterwards. */
void job_close_end(int *fd);

/* ---- the processes ---- */
/* The parent: until the guard is gone, and with it the job.  The exit code of the command. */
int launch_attend(struct job *job, pid_t guard);
/* The guard, in the fork that it is: runs the job to its end. */
_Noreturn void launch_guard(struct job *job, int argc, char **argv);
/* Forks mpirun, whose standard output is `output`; -1 and errno. */
pid_t launch_mpirun(const struct job *job, int output, int argc, char **argv);

#endif
