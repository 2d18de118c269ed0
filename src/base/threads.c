#include "base/threads.h"

#include "base/base.h"
#include "base/error.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SPINS 20000             /* about 100 us of pauses: longer than the pause between two steps of a decode */

/* A number that only grows; waiters sleep until it is no longer what they saw. */
struct gate {
    _Alignas(CACHE_LINE) atomic_uint turn;
    atomic_uint n_sleepers;
};

struct pool {
    int n_threads, spins;
    pthread_t *thread;
    int n_started;
    pool_fn *fn;
    void *user;
    bool stop;
    struct gate start, barrier;
    _Alignas(CACHE_LINE) atomic_int n_arrived;
};

struct start {
    struct pool *pool;
    int index;
};

static void cpu_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void gate_wait(struct gate *gate, unsigned seen, int spins)
{
    for (int i = 0; i < spins; i++) {
        if (atomic_load_explicit(&gate->turn, memory_order_acquire) != seen)
            return;
        cpu_pause();
    }
    atomic_fetch_add(&gate->n_sleepers, 1);
    while (atomic_load(&gate->turn) == seen)
        syscall(SYS_futex, &gate->turn, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
    atomic_fetch_sub(&gate->n_sleepers, 1);
}

static void gate_open(struct gate *gate)
{
    atomic_fetch_add(&gate->turn, 1);
    if (atomic_load(&gate->n_sleepers))
        syscall(SYS_futex, &gate->turn, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

void pool_barrier(struct pool *pool)
{
    if (pool->n_threads == 1)
        return;
    unsigned turn = atomic_load_explicit(&pool->barrier.turn, memory_order_acquire);
    if (atomic_fetch_add(&pool->n_arrived, 1) == pool->n_threads - 1) {
        atomic_store(&pool->n_arrived, 0);
        gate_open(&pool->barrier);
    } else {
        gate_wait(&pool->barrier, turn, pool->spins);
    }
}

static void *thread_main(void *arg)
{
    struct start start = *(struct start *)arg;
    struct pool *pool = start.pool;
    free(arg);
    for (unsigned turn = 0;; turn++) {
        gate_wait(&pool->start, turn, pool->spins);
        if (pool->stop)
            return NULL;
        pool->fn(pool->user, start.index);
        pool_barrier(pool);
    }
}

int pool_open(struct pool **out, int n_threads, bool spin)
{
    struct pool *pool = aligned_alloc(CACHE_LINE, ROUND_UP(sizeof *pool, CACHE_LINE));
    if (!pool)
        return error_set(ERR_NO_MEMORY, "out of memory for threads");
    *pool = (struct pool){ .n_threads = n_threads, .spins = spin ? SPINS : 0, .thread = calloc((size_t)n_threads, sizeof(pthread_t)) };
    for (int i = 1; pool->thread && i < n_threads; i++) {
        struct start *start = malloc(sizeof *start);
        if (!start)
            break;
        *start = (struct start){ pool, i };
        if (pthread_create(&pool->thread[i], NULL, thread_main, start)) {
            free(start);
            break;
        }
        pool->n_started++;
    }
    if (!pool->thread || pool->n_started != n_threads - 1) {
        pool_close(pool);
        return error_set(ERR_NO_MEMORY, "cannot start %d threads", n_threads);
    }
    *out = pool;
    return 0;
}

void pool_close(struct pool *pool)
{
    if (!pool)
        return;
    pool->stop = true;
    gate_open(&pool->start);
    for (int i = 1; i <= pool->n_started; i++)
        pthread_join(pool->thread[i], NULL);
    free(pool->thread);
    free(pool);
}

int pool_n_threads(const struct pool *pool)
{
    return pool->n_threads;
}

void pool_run(struct pool *pool, pool_fn *fn, void *user)
{
    pool->fn = fn;
    pool->user = user;
    if (pool->n_threads > 1)
        gate_open(&pool->start);
    fn(user, 0);
    pool_barrier(pool);
}

int cpu_cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
