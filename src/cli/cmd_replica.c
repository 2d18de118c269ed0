/* cmd_replica.c: one replica alone, for fronts that run elsewhere; what `stoa serve` starts. */
#include "cli/commands.h"
#include "cli/session.h"

#include "base/base.h"
#include "base/error.h"
#include "base/life.h"
#include "base/log.h"
#include "base/memory.h"
#include "comm/comm.h"
#include "engine/replica.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define STEP_MS 100             /* so that whoever watches can tell a slow replica from a dead one, and nobody waits long for his turn */

/* A signal becomes a byte in a pipe, the next one ends the process as it would have, also one that was pending beside the first. */
static int signal_pipe[2] = { -1, -1 };
static volatile sig_atomic_t is_signalled;

static void on_signal(int number)
{
    int error = errno;
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    if (is_signalled)
        raise(number);
    is_signalled = true;
    ssize_t n = write(signal_pipe[1], "", 1);   /* a full pipe has told it already */
    (void)n;
    errno = error;
}

static int open_signal_pipe(void)
{
    if (pipe2(signal_pipe, O_CLOEXEC | O_NONBLOCK) < 0)
        return error_set(ERR_FAILED, "pipe: %s", strerror(errno));
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    return 0;
}

/* Of many ranks the launcher has the signals, and says so on rank 0's standard input. */
static int serve(struct session *s, void *user)
{
    const struct options *o = s->options;
    char numerics[NUMERICS_ID], model[NUMERICS_ID];
    bool has_launcher = comm_size(s->world) > 1;
    int err = has_launcher ? 0 : open_signal_pipe();
    (void)user;
    if (err < 0)
        return err;
    session_numerics(numerics, s->file, o);
    numerics_model(model, s->file);
    struct replica_options replica = {
        .address = o->listen, .epoch = o->epoch, .numerics = numerics, .model = model,
        .max_sequences = (uint32_t)o->max_sequences, .max_requests = (uint32_t)o->max_queue,
        .end_fd = has_launcher ? STDIN_FILENO : signal_pipe[0], .drain_ms = (uint32_t)o->drain_timeout * 1000,
    };
    return replica_run(s->engine, &replica);
}

/* The parent may have ended before the kernel knew that this is wanted, also before this program was begun. */
static void tie_to(pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        raise(SIGKILL);
}

/* Enough for some long or many short answers; and, in each group along dp, for one that is as long as can be. */
static uint32_t cache_tokens(const struct options *o)
{
    long longest = o->context ? o->context : 8192, most = 1L << 30;
    return (uint32_t)(o->cache_tokens ? o->cache_tokens : MIN(MAX(longest * o->mesh.size[AXIS_DP], 32768), most));
}

static int run(struct options *o, int argc, char **argv)
{
    struct session_needs needs = { .max_sequences = (uint32_t)o->max_sequences, .cache_tokens = cache_tokens(o), .step_ms = STEP_MS,
                                   .epoch = o->epoch, .drains = true };
    log_tells_time();
    if (!o->listen)
        return report_error(error_set(ERR_USAGE, "where is it to listen?  --listen unix:PATH or HOST:PORT"));
    if (o->tied && !comm_world_given())
        tie_to((pid_t)o->tied);
    int err = o->tied ? life_show_beside(o->listen) : 0;        /* the front's folder, where it looks */
    if (err < 0)
        return report_error(err);
    memory_settle();
    return session_run(o, argc, argv, &needs, serve, NULL);
}

const struct command command_replica = {
    "replica", "MODEL --listen ADDR [FLAGS]", "computes for fronts, over a socket; stoa serve starts it by itself",
    "SIGTERM lets what runs end, for --drain-timeout seconds, and takes nothing new; a second one ends it at once.\n\n"
    "  stoa replica model.gguf --listen unix:/run/stoa/socket --layout tp=2",
    OPTIONS_COMPUTE | OPTIONS_HOSTS | OPTIONS_QUEUE | OPTIONS_REPLICA, 1, 1, run,
};
