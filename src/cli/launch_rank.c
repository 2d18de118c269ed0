/* launch_rank.c: a rank's ties to the launcher that started it; launch.c draws them. */
#include "cli/launch_impl.h"

#include "comm/comm.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static int last_words_fd = -1;

static void say_last_words(int status, void *user)
{
    const char words = (char)(LAUNCH_LAST_WORDS | (status & 0x3f));
    (void)user;
    if (write(last_words_fd, &words, 1) < 0)
        return;                         /* nobody listens: nothing to tell */
}

void launch_explained(void)
{
    const char words = LAUNCH_EXPLAINED;
    if (last_words_fd >= 0 && write(last_words_fd, &words, 1) < 0)
        return;                         /* nobody listens: nothing to tell */
}

/* Tells the guard that this rank has started; the FIFO stays open for the guard to see it close. */
static void show_life(const char *folder, const char *rank)
{
    char path[LAUNCH_PATH_MAX];
    if (!rank || job_rank_path(path, folder, rank) < 0)
        return;
    last_words_fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (last_words_fd < 0)
        return;                         /* a rank on another host than the guard's */
    if (write(last_words_fd, "", 1) == 1)
        on_exit(say_last_words, NULL);
}

static void take_stream(const char *folder, const char *name, int flags, int as)
{
    char path[LAUNCH_PATH_MAX];
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
    take_stream(folder, LAUNCH_INPUT_FIFO, O_RDONLY, STDIN_FILENO);
    take_stream(folder, LAUNCH_OUTPUT_FIFO, O_WRONLY, STDOUT_FILENO);
}

/* The kernel's "parent" in PR_SET_PDEATHSIG is the thread that forked this rank, and a launcher that ends that thread would end
 * its rank.  Of a foreign launcher nothing is known; Open MPI's has a pool of threads for 32 ranks of a host and more, which
 * launch_mpirun() switches off.  So only ranks of launch_ranks() are tied. */
void launch_tie_rank(void)
{
    const char *folder = getenv(LAUNCH_RANK_FOLDER);
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
