/* test_threads.c: every thread runs every function once, every chunk of a region is done once and in its turn: also with more
 * threads than cores. */
#include "base/threads.h"
#include "base/random.h"
#include "base/work.h"
#include "tests/check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_THREADS = 16 };

/* The program is linked so that the library's calls of sched_yield() come by here. */
static atomic_uint n_yields;
int __real_sched_yield(void);
int __wrap_sched_yield(void);
int __wrap_sched_yield(void)
{
    atomic_fetch_add(&n_yields, 1);
    return __real_sched_yield();
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- many short runs ---- */
struct counts {
    unsigned n_calls[MAX_THREADS];      /* each its own thread's: plain, so that a thread sanitizer sees a run that overlaps another */
    atomic_uint n_running, n_strangers;
    int n_threads;
};

static void count(void *user, int thread)
{
    struct counts *c = user;
    if (thread < 0 || thread >= c->n_threads)
        atomic_fetch_add(&c->n_strangers, 1);
    else
        c->n_calls[thread]++;
    atomic_fetch_add(&c->n_running, 1);
}

static void test_runs(int n_threads, bool spin)
{
    struct pool *pool = NULL;
    struct counts c = { .n_threads = n_threads };
    unsigned n_runs = n_threads > cpu_cores() ? 300 : 3000;
    check_begin("%u runs of %d threads that %s", n_runs, n_threads, spin ? "spin" : "sleep");
    if (!check_int(pool_open(&pool, n_threads, spin), 0))
        return;
    check_int(pool_n_threads(pool), n_threads);
    for (unsigned i = 0; i < n_runs; i++) {
        pool_run(pool, count, &c);
        if (atomic_load(&c.n_running) != (i + 1) * (unsigned)n_threads) {      /* pool_run() returns when all have */
            check_int(atomic_load(&c.n_running), (i + 1) * (unsigned)n_threads);
            break;
        }
    }
    for (int i = 0; i < n_threads; i++)
        check_int(c.n_calls[i], n_runs);
    check_int(atomic_load(&c.n_strangers), 0);
    pool_close(pool);
}

/* ---- offers ---- */
/* Work as a step has it: regions one after the other, each of some chunks that threads claim.  A chunk reads what the chunks
 * of the region before wrote, into plain memory: so the test sees a region that begins before another is over. */
enum { N_REGIONS = 12, MAX_CHUNKS = 40 };

struct steps {
    struct work region[N_REGIONS];
    atomic_uint step, n_wrong, n_done, n_sleepers;
    struct pool *pool;
    uint32_t n_chunks[N_REGIONS];
    uint32_t row[N_REGIONS][MAX_CHUNKS];        /* the step that wrote it */
};

static void do_chunk(struct steps *s, uint32_t step, uint32_t region, uint32_t chunk)
{
    bool wrong = chunk >= s->n_chunks[region] || s->row[region][chunk] == step;
    for (uint32_t i = 0; !wrong && region && i < s->n_chunks[region - 1]; i++)
        wrong = s->row[region - 1][i] != step;
    if (chunk < MAX_CHUNKS)
        s->row[region][chunk] = step;
    if (wrong)
        atomic_fetch_add(&s->n_wrong, 1);
    atomic_fetch_add(&s->n_done, 1);
}

static void take_part(void *user, int thread)
{
    struct steps *s = user;
    uint32_t step = atomic_load_explicit(&s->step, memory_order_acquire);
    (void)thread;
    for (uint32_t region = 0; region < N_REGIONS; region++) {
        for (uint32_t chunk; work_claim(&s->region[region], step, &chunk);) {
            do_chunk(s, step, region, chunk);
            work_done(&s->region[region]);
        }
        if (!work_wait(&s->region[region], &s->step, step, pool_spins(s->pool)))
            return;
    }
}

static void test_offers(int n_threads, bool spin)
{
    struct steps *s = aligned_alloc(CACHE_LINE, ROUND_UP(sizeof *s, CACHE_LINE));
    unsigned n_wanted = 0, n_steps = n_threads > cpu_cores() ? 100 : 1000;
    memset(s, 0, sizeof *s);
    check_begin("%u steps of regions on %d threads that %s", n_steps, n_threads, spin ? "spin" : "sleep");
    if (!check_int(pool_open(&s->pool, n_threads, spin), 0))
        return;
    pool_serve(s->pool, take_part, s);
    for (uint32_t step = 1; step <= n_steps; step++) {
        for (uint32_t region = 0; region < N_REGIONS; region++) {
            s->n_chunks[region] = (uint32_t)(random_u64(step, region) % MAX_CHUNKS) / (step % 3 ? 8 : 1);
            n_wanted += s->n_chunks[region];
            work_prepare(&s->region[region], step, s->n_chunks[region]);
        }
        atomic_store_explicit(&s->step, step, memory_order_release);
        pool_offer(s->pool);
        take_part(s, 0);
        if (atomic_load(&s->n_done) != n_wanted) {
            check_int(atomic_load(&s->n_done), n_wanted);
            break;
        }
    }
    pool_rest(s->pool);
    check_int(atomic_load(&s->n_wrong), 0);
    check_int(atomic_load(&s->n_done), n_wanted);
    pool_close(s->pool);
    free(s);
}

/* Threads that look again and again at a region that is over, while the next step of other size is prepared: none may get a
 * chunk that is not there. */
struct late {
    struct work work;
    atomic_uint step, n_claimed, n_wrong;
    atomic_bool stop;
};
enum { FEW = 1, MANY = 64 };

static uint32_t chunks_of(uint32_t step)
{
    return step % 2 ? FEW : MANY;
}

static void look(void *user, int thread)
{
    struct late *l = user;
    if (thread == 0)
        return;
    while (!atomic_load_explicit(&l->stop, memory_order_relaxed)) {
        uint32_t step = atomic_load_explicit(&l->step, memory_order_acquire), chunk;
        for (int i = 0; i < 50; i++)
            while (work_claim(&l->work, step, &chunk)) {
                atomic_fetch_add(&l->n_claimed, 1);
                if (chunk >= chunks_of(step))
                    atomic_fetch_add(&l->n_wrong, 1);
                work_done(&l->work);
            }
    }
}

static void test_late(int n_threads)
{
    struct late *l = aligned_alloc(CACHE_LINE, ROUND_UP(sizeof *l, CACHE_LINE));
    struct pool *pool = NULL;
    unsigned n_wanted = 0;
    memset(l, 0, sizeof *l);
    check_begin("%d threads that are late claim nothing", n_threads - 1);
    if (!check_int(pool_open(&pool, n_threads, true), 0))
        return;
    pool_serve(pool, look, l);
    pool_offer(pool);
    double end_s = seconds_now() + 1;
    for (uint32_t step = 1; seconds_now() < end_s; step++) {
        uint32_t chunk;
        work_prepare(&l->work, step, chunks_of(step));
        n_wanted += chunks_of(step);
        atomic_store_explicit(&l->step, step, memory_order_release);
        while (work_claim(&l->work, step, &chunk)) {
            atomic_fetch_add(&l->n_claimed, 1);
            work_done(&l->work);
        }
        work_wait(&l->work, &l->step, step, true);
    }
    atomic_store(&l->stop, true);
    pool_rest(pool);
    check_int(atomic_load(&l->n_wrong), 0);
    check_int(atomic_load(&l->n_claimed), n_wanted);
    pool_close(pool);
    free(l);
}

/* ---- rest ---- */
static void test_idle(void)
{
    struct pool *pool = NULL;
    struct counts c = { .n_threads = 4 };
    check_begin("threads that wait burn nothing");
    check_int(pool_open(&pool, 4, true), 0);
    pool_run(pool, count, &c);
    nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);       /* the moment in which they spin */
    double before = cpu_seconds();
    nanosleep(&(struct timespec){ .tv_nsec = 300000000 }, NULL);
    check(cpu_seconds() - before < 0.03);
    pool_run(pool, count, &c);                                          /* and they wake up */
    check_int(atomic_load(&c.n_running), 8);
    pool_close(pool);
}

static void test_open_close(void)
{
    check_begin("pools open and close, used or not");
    for (int i = 0; i < 200; i++) {
        struct pool *pool = NULL;
        struct counts c = { .n_threads = 1 + i % 5 };
        if (!check_int(pool_open(&pool, 1 + i % 5, i % 2), 0))
            break;
        if (i % 3)
            pool_run(pool, count, &c);
        pool_close(pool);
    }
    pool_close(NULL);
    check(cpu_cores() >= 1);
    double a = seconds_now(), b = seconds_now();
    check(b >= a && a > 0);
}

static void look_at_stack(void *user, int thread)
{
    pthread_attr_t attr;
    if (pthread_getattr_np(pthread_self(), &attr))
        return;
    pthread_attr_getstacksize(&attr, (size_t *)user + thread);
    pthread_attr_destroy(&attr);
}

static void test_stack(size_t usual, size_t wanted)
{
    struct pool *pool;
    pthread_attr_t before, attr;
    size_t n_bytes[2] = { 0 };
    check_begin("threads usually get %zu bytes of stack: a pool's get %zu or more", usual, wanted);
    pthread_getattr_default_np(&before);
    pthread_attr_init(&attr);
    check_int(pthread_attr_setstacksize(&attr, usual), 0);
    check_int(pthread_setattr_default_np(&attr), 0);
    if (check_int(pool_open(&pool, 2, false), 0)) {
        pool_run(pool, look_at_stack, n_bytes);
        check(n_bytes[1] >= wanted);
        pool_close(pool);
    }
    pthread_setattr_default_np(&before);
    pthread_attr_destroy(&attr);
    pthread_attr_destroy(&before);
}

/* Whoever was held up gives way when it has done some short jobs since; not where nobody waits for it, or cores are shared anyway. */
static void test_give_way(int n_threads, bool spin, bool gives)
{
    struct pool *pool;
    check_begin("%d threads, spin %d: a thread that was held up gives way", n_threads, spin);
    if (!check_int(pool_open(&pool, n_threads, spin), 0))
        return;
    atomic_store(&n_yields, 0);
    double end_s = seconds_now() + (gives ? 20 : 0.01);
    while (seconds_now() < end_s && !atomic_load(&n_yields)) {
        double until_s = seconds_now() + 0.005;
        nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
        while (seconds_now() < until_s)
            pool_give_way(pool, 0);
    }
    check_int(atomic_load(&n_yields) > 0, gives);
    pool_close(pool);
}

int main(void)
{
    test_give_way(2, true, true);
    test_give_way(2, false, false);
    test_give_way(1, true, false);
    static const int sizes[] = { 1, 2, 3, 4, 8, MAX_THREADS };
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        for (int spin = 0; spin < 2; spin++) {
            if (spin && sizes[i] > cpu_cores() + 1)
                continue;       /* no caller spins with more threads than cores; one more is tried all the same */
            test_runs(sizes[i], spin);
            test_offers(sizes[i], spin);
        }
    test_late(2);
    test_late(4);
    test_idle();
    test_open_close();
    test_stack(1 << 18, 4 << 20);
    test_stack(16 << 20, 16 << 20);
    return check_done();
}
