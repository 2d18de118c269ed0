/* launch_mpirun.c: mpirun's environment and arguments. */
#include "cli/launch_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

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
    setenv(LAUNCH_RANK_FOLDER, job->folder, 1);
    set_parameter("rmaps_base_oversubscribe", "1");
    set_parameter("hwloc_base_binding_policy", "none");     /* else every job's first rank sits on core 0 */
    set_parameter("odls_base_sigkill_timeout", "0");        /* when one rank is dead the others have nothing to tidy up */
    set_parameter("opal_signal", "6,8,11");                 /* SIGBUS is main()'s */
    set_parameter("odls_base_cutoff", "1000000");           /* forks from its main thread: see launch_tie_rank() */
    if (!job_is_local(job))
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

static _Noreturn void exec_mpirun(const struct job *job, int argc, char **argv)
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
    if (!job_is_local(job)) {
        args[n++] = "--hostfile";
        args[n++] = job->options->hosts_file;
        args[n++] = "-x";
        args[n++] = LAUNCH_RANK_FOLDER;
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

pid_t launch_mpirun(const struct job *job, int output, int argc, char **argv)
{
    pid_t guard = getpid(), child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != guard)
            _exit(127);
        dup2(job_is_local(job) ? open("/dev/null", O_RDONLY) : job->input[0], STDIN_FILENO);
        dup2(output, STDOUT_FILENO);
        sigprocmask(SIG_SETMASK, &job->old_signals, NULL);
        set_environment(job);
        exec_mpirun(job, argc, argv);
    }
    return child;
}
