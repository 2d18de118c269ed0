/* launch_job.c: what a job consists of before and after its processes: programs, folders, FIFOs. */
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

/* ---- what it needs before it can start -------------------------------------------------------------------------------- */
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

int job_prepare(struct job *job)
{
    int err;
    if ((err = find_launcher(job)) < 0 || (err = find_program(job)) < 0 || (err = check_hosts_file(job)) < 0)
        return err;
    return make_folders(job);
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
