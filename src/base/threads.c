#include "base/threads.h"

#include "base/base.h"
#include "base/cores.h"
#include "base/error.h"
#include "base/work.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#define WORKER_STACK_BYTES (4ul << 20)  /* kernels use up to 2 MB; a limit (ulimit -s), also none, may give threads less */
#define OFFER_SPIN_US 200       /* longer than the pause between two steps of a decode */

/* pool_give_way(): */
#define HELD_UP_S 1e-3          /* longer than most jobs of a decode, shorter than a neighbour's turn */
#define GIVE_WAY_S 5e-4         /* shorter than a turn of our own */
#define TURN_S 1e-4             /* to give way took longer: somebody had a turn */
#define REMEMBER_S 2e-2
#define N_SHORT 8               /* a prefill has fewer short jobs in a row, and would lose more turns than it saves waiting */

struct worker {
    _Alignas(CACHE_LINE) struct pool *pool;
    pthread_t thread;
    int index;
    double looked_s, gave_way_s, neighbour_until_s;     /* pool_give_way() */
    unsigned n_short;           /* jobs in a row */
    atomic_uint rests_at;       /* the turn that it waits to see the end of; it is inside the function while it is not `turn` */
};

struct pool {
    int n_threads, n_started;
    bool spin, is_pinned;
    cpu_set_t callers_cores;    /* before it was pinned */
    struct worker *worker;      /* [n_threads]; 0 is the caller */
    pool_fn *fn;                /* these two change only while every worker rests */
    void *user;
    atomic_bool stop;
    _Alignas(CACHE_LINE) atomic_uint turn;
    atomic_uint n_turn_sleepers;
    _Alignas(CACHE_LINE) atomic_uint n_rests, n_rest_sleepers;
};

static int spin_us(const struct pool *pool)
{
    return pool->spin ? OFFER_SPIN_US : 0;
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct pool *pool = w->pool;
    for (unsigned seen = 0;;) {
        atomic_store(&w->rests_at, seen);
        atomic_fetch_add(&pool->n_rests, 1);
        word_wake(&pool->n_rests, &pool->n_rest_sleepers);
        word_wait(&pool->turn, seen, &pool->n_turn_sleepers, spin_us(pool));
        seen = atomic_load(&pool->turn);
        if (atomic_load(&pool->stop))
            return NULL;
        pool->fn(pool->user, w->index);
    }
}

int thread_start(pthread_t *out, const pthread_attr_t *attr, void *(*run)(void *), void *user)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int err = pthread_create(out, attr, run, user);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return err;
}

static int start_worker(struct worker *worker)
{
    pthread_attr_t attr;
    size_t n_bytes;
    int err = pthread_attr_init(&attr);
    if (err)
        return err;
    if ((err = pthread_attr_getstacksize(&attr, &n_bytes)) == 0 &&
        (err = pthread_attr_setstacksize(&attr, MAX(n_bytes, WORKER_STACK_BYTES))) == 0)
        err = pthread_create(&worker->thread, &attr, worker_main, worker);
    pthread_attr_destroy(&attr);
    return err;
}

int pool_open(struct pool **out, int n_threads, bool spin)
{
    struct pool *pool = aligned_alloc(CACHE_LINE, sizeof *pool);
    struct worker *worker = aligned_alloc(CACHE_LINE, (size_t)n_threads * sizeof *worker);
    if (!pool || !worker) {
        free(pool);
        free(worker);
        return error_set(ERR_NO_MEMORY, "out of memory for %d threads", n_threads);
    }
    *pool = (struct pool){ .n_threads = n_threads, .spin = spin, .worker = worker };
    worker[0] = (struct worker){ .pool = pool };
    for (int i = 1; i < n_threads; i++, pool->n_started++) {
        worker[i] = (struct worker){ .pool = pool, .index = i, .rests_at = 1 };     /* no turn yet: it does not rest before it runs */
        if (start_worker(&worker[i])) {
            pool_close(pool);
            return error_set(ERR_NO_MEMORY, "cannot start %d threads", n_threads);
        }
    }
    *out = pool;
    return 0;
}

void pool_pin(struct pool *pool, const cpu_set_t *cores)
{
    pool->is_pinned = sched_getaffinity(0, sizeof pool->callers_cores, &pool->callers_cores) == 0 &&
                      sched_setaffinity(0, sizeof *cores, cores) == 0;
    for (int i = 1; pool->is_pinned && i <= pool->n_started; i++)
        pthread_setaffinity_np(pool->worker[i].thread, sizeof *cores, cores);
}

void pool_close(struct pool *pool)
{
    if (!pool)
        return;
    atomic_store(&pool->stop, true);
    pool_offer(pool);
    for (int i = 1; i <= pool->n_started; i++)
        pthread_join(pool->worker[i].thread, NULL);
    if (pool->is_pinned)
        sched_setaffinity(0, sizeof pool->callers_cores, &pool->callers_cores);
    free(pool->worker);
    free(pool);
}

int pool_n_threads(const struct pool *pool)
{
    return pool->n_threads;
}

bool pool_spins(const struct pool *pool)
{
    return pool->spin;
}

void pool_rest(struct pool *pool)
{
    unsigned turn = atomic_load(&pool->turn);
    for (int i = 1; i <= pool->n_started; i++)
        for (;;) {
            unsigned n_rests = atomic_load(&pool->n_rests);
            if (atomic_load(&pool->worker[i].rests_at) == turn)
                break;
            word_wait(&pool->n_rests, n_rests, &pool->n_rest_sleepers, spin_us(pool));
        }
}

void pool_offer(struct pool *pool)
{
    atomic_fetch_add(&pool->turn, 1);
    word_wake(&pool->turn, &pool->n_turn_sleepers);
}

void pool_serve(struct pool *pool, pool_fn *fn, void *user)
{
    pool_rest(pool);
    pool->fn = fn;
    pool->user = user;
}

void pool_run(struct pool *pool, pool_fn *fn, void *user)
{
    pool_serve(pool, fn, user);
    pool_offer(pool);
    fn(user, 0);
    pool_rest(pool);
}

/* A neighbour is suspected when a job took long, and known when it takes the turn that it is given. */
void pool_give_way(struct pool *pool, int thread)
{
    struct worker *w = &pool->worker[thread];
    if (pool->n_threads == 1 || !pool->spin)
        return;
    double now_s = seconds_now(), took_s = now_s - w->looked_s;
    w->looked_s = now_s;
    if (took_s > HELD_UP_S) {
        w->neighbour_until_s = now_s + REMEMBER_S;
        w->gave_way_s = now_s;
        w->n_short = 0;
    } else if (++w->n_short > N_SHORT && now_s < w->neighbour_until_s && now_s > w->gave_way_s + GIVE_WAY_S) {
        sched_yield();
        w->looked_s = w->gave_way_s = seconds_now();
        if (w->gave_way_s > now_s + TURN_S)
            w->neighbour_until_s = w->gave_way_s + REMEMBER_S;
    }
}

int cpu_cores(void)
{
    return MAX(cores_allowed()->n, 1);
}

double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
