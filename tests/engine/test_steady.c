/* test_steady.c: a decode that goes on takes no memory and asks the system for nothing.
 *
 * The program is linked so that the library's allocations come by here.  System calls are forbidden by a filter, in a child that
 * ends at the first; where there are several threads one may sleep, wake others, and give way to a neighbour that has held it up. */
#include "engine/engine.h"

#include "base/error.h"
#include "tests/check.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N_BEFORE = 10, N_STEADY = 40, N_SEQUENCES = 2 };

/* ---- memory ---- */
static atomic_uint n_taken;

#define COUNTED(result, name, parameters, ...) \
    result __real_##name parameters; \
    result __wrap_##name parameters; \
    result __wrap_##name parameters \
    { \
        atomic_fetch_add(&n_taken, 1); \
        return __real_##name(__VA_ARGS__); \
    }
COUNTED(void *, malloc, (size_t n), n)
COUNTED(void *, calloc, (size_t n, size_t size), n, size)
COUNTED(void *, realloc, (void *old, size_t n), old, n)
COUNTED(void *, aligned_alloc, (size_t alignment, size_t n), alignment, n)
COUNTED(void *, mmap, (void *at, size_t n, int protection, int flags, int file, off_t offset), at, n, protection, flags, file, offset)

/* ---- system calls ---- */
/* Not by _exit(): before a function that does not return, a sanitizer asks the system for the stack of signals. */
static void end(int code)
{
    syscall(SYS_exit_group, code);
}

static void report_call(int signal, siginfo_t *info, void *context)
{
    char line[64];
    (void)signal, (void)context;
    int n = snprintf(line, sizeof line, "system call %d in a step\n", info->si_syscall);
    end(write(STDOUT_FILENO, line, (size_t)n) < 0 ? 2 : 1);
}

#define ALLOW(call) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (call), 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

/* What the end needs; the clock, which not every machine can read without a call; and sleep. */
static int forbid_calls(bool may_sleep)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(SYS_write), ALLOW(SYS_exit_group), ALLOW(SYS_rt_sigreturn), ALLOW(SYS_clock_gettime), ALLOW(may_sleep ? SYS_futex : SYS_write),
        ALLOW(may_sleep ? SYS_sched_yield : SYS_write),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
    };
    struct sock_fprog program = { .len = COUNT_OF(filter), .filter = filter };
    struct sigaction action = { .sa_sigaction = report_call, .sa_flags = SA_SIGINFO };
    sigaction(SIGSYS, &action, NULL);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        return -1;
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
}

/* ---- a decode ---- */
struct decode {
    struct model_file *file;
    struct comm *world;
    struct engine *engine;
    struct sequence *sequence[N_SEQUENCES];
};

/* A token's worth of each thing that sampling may do. */
static const int32_t stop_ids[] = { 9, 10 };
static const struct logit_bias bias[] = { { 11, 2 }, { 12, -INFINITY } };
static void forget(void *user, const struct token_event *event)
{
    (void)user, (void)event;
}

static struct sequence_request rich_request(void)
{
    return (struct sequence_request){ .n_new = 100, .min_new = 100, .params = { .temperature = 1.5f, .top_p = 0.95f, .min_p = 0.001f },
                                      .penalties = { 1.1f, 0.2f, 0.1f }, .stop_ids = stop_ids, .n_stop_ids = 2, .bias = bias, .n_bias = 2,
                                      .wants_logprobs = true, .n_top = 20, .on_token = forget };
}

static int open_decode(struct decode *d, const char *path, int n_threads, bool profile)
{
    int32_t tokens[] = { 5, 6, 7 };
    struct engine_options options = { .n_threads = n_threads, .is_pinned = true, .int8_activations = true, .cache_type = DTYPE_F16, .chunk = 16,
                                      .context = 128, .max_sequences = N_SEQUENCES, .profile = profile };
    struct sequence_request request = { .tokens = tokens, .n_tokens = 3, .n_new = 100, .params = { .temperature = 0.7f, .top_k = 20, .top_p = 1 } };
    int err = mesh_parse(&options.mesh, "tp=1");
    if (err < 0 || (err = model_file_open(&d->file, path)) < 0 || (err = comm_open_self(&d->world)) < 0 ||
        (err = engine_open(&d->engine, d->file, &options, d->world)) < 0)
        return err;
    for (int i = 0; err == 0 && i < N_SEQUENCES; i++) {
        err = engine_add(d->engine, &d->sequence[i], &request);
        request = rich_request();
        request.tokens = tokens;
        request.n_tokens = 3;
    }
    return err;
}

static int run_steps(struct decode *d, int n)
{
    int err = 1;
    for (int i = 0; err == 1 && i < n; i++)
        err = engine_step(d->engine);
    return err;
}

static void close_decode(struct decode *d)
{
    engine_close(d->engine);
    comm_close(d->world);
    model_file_close(d->file);
}

static void test_memory(const char *path, int n_threads, bool profile)
{
    struct decode d = { 0 };
    check_begin("%d threads%s take no memory", n_threads, profile ? ", profiled," : "");
    if (check_int(open_decode(&d, path, n_threads, profile), 0) && check_int(run_steps(&d, N_BEFORE), 1)) {
        check(atomic_load(&n_taken) > 0);
        atomic_store(&n_taken, 0);
        check_int(run_steps(&d, N_STEADY), 1);
        check_int(atomic_load(&n_taken), 0);
    }
    close_decode(&d);
}

static void run_filtered(const char *path, int n_threads)
{
    struct decode d = { 0 };
    int err = open_decode(&d, path, n_threads, false);
    if (err < 0 || (err = run_steps(&d, N_BEFORE)) < 0) {
        printf("%s\n", error_text());
        fflush(stdout);
        end(3);
    }
    if (forbid_calls(n_threads > 1) < 0)
        end(4);
    end(run_steps(&d, N_STEADY) == 1 ? 0 : 5);
}

static void test_calls(const char *path, int n_threads)
{
    int status = 0;
    check_begin("%d threads make no system call", n_threads);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        run_filtered(path, n_threads);
    check(waitpid(child, &status, 0) == child && WIFEXITED(status));
    if (WEXITSTATUS(status) == 4)
        check_skip("this system lets nobody filter system calls");
    else
        check_int(WEXITSTATUS(status), 0);
}

int main(void)
{
    const char *folder = getenv("STOA_TINY");
    static const char *const names[] = { "tiny-mixed", "tiny-qwen3moe" };
    if (!folder) {
        check_begin("models");
        check_skip("STOA_TINY names no folder: scripts/tiny-models makes one");
        return check_done();
    }
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s.gguf", folder, names[i]);
        for (int n_threads = 1; n_threads <= 3; n_threads++) {
            test_memory(path, n_threads, n_threads == 2);
            test_calls(path, n_threads);
        }
    }
    return check_done();
}
