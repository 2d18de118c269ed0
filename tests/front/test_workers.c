/* test_workers.c: jobs are worked on by other threads, first come, first served but for long ones, and come back to the loop's thread, each
 * once. */
#include "front/workers.h"
#include "tests/check.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { N_JOBS = 5000 };

static struct loop *loop;
static struct workers *workers;
static pthread_t loops_thread;
static atomic_int n_begun, n_wrong;
static int n_done, n_wanted;

struct job {
    struct worker_job job;      /* the first */
    int number, n_worked, n_done;
    bool in_order;
};

static void work(struct worker_job *job)
{
    struct job *j = (struct job *)job;
    sigset_t blocked;
    int turn = atomic_fetch_add(&n_begun, 1);
    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    j->n_worked++;              /* plain: a thread sanitizer sees it if done() did not come after */
    if (pthread_equal(pthread_self(), loops_thread) || (j->in_order && turn != j->number) || !sigismember(&blocked, SIGTERM))
        atomic_fetch_add(&n_wrong, 1);
}

static void done(struct worker_job *job)
{
    struct job *j = (struct job *)job;
    j->n_done++;
    if (!pthread_equal(pthread_self(), loops_thread) || j->n_worked != 1 || j->n_done != 1)
        atomic_fetch_add(&n_wrong, 1);
    if (++n_done == n_wanted)
        loop_stop(loop);
}

static void begin(int n_threads)
{
    loops_thread = pthread_self();
    n_begun = n_wrong = n_done = 0;
    n_wanted = N_JOBS;
    check_int(loop_open(&loop), 0);
    check_int(workers_open(&workers, loop, n_threads), 0);
}

static struct job *add_all(bool in_order)
{
    struct job *jobs = calloc(N_JOBS, sizeof *jobs);
    for (int i = 0; i < N_JOBS; i++) {
        jobs[i] = (struct job){ .job = { .work = work, .done = done }, .number = i, .in_order = in_order };
        workers_add(workers, &jobs[i].job, 0);
    }
    return jobs;
}

static void end(struct job *jobs)
{
    check_int(n_begun, N_JOBS);
    check_int(n_done, N_JOBS);
    check_int(n_wrong, 0);
    loop_close(loop);
    free(jobs);
}

static void test_jobs(int n_threads)
{
    check_begin("%d jobs on %d threads", N_JOBS, n_threads);
    begin(n_threads);
    struct job *jobs = add_all(n_threads == 1);
    check_int(workers_n_jobs(workers), N_JOBS);
    check_int(loop_run(loop), 0);
    check_int(workers_n_jobs(workers), 0);
    workers_close(workers);
    end(jobs);
}

static void test_close(int n_threads)
{
    check_begin("closing with jobs left on %d threads does them all", n_threads);
    begin(n_threads);
    struct job *jobs = add_all(false);
    workers_close(workers);
    end(jobs);
}

/* One job after the other, each from the done() of the one before. */
static struct job chained;

static void next(struct worker_job *job)
{
    chained.n_worked = 0;
    if (++n_done == n_wanted)
        loop_stop(loop);
    else
        workers_add(workers, job, 0);
}

static void test_chain(void)
{
    check_begin("a job is added again from its done()");
    begin(2);
    n_wanted = 500;
    chained = (struct job){ .job = { .work = work, .done = next } };
    workers_add(workers, &chained.job, 0);
    check_int(loop_run(loop), 0);
    check_int(n_begun, 500);
    check_int(n_wrong, 0);
    workers_close(workers);
    loop_close(loop);
}

/* ---- long jobs ---- */
enum { N_LONG = 4, N_SHORT = 100 };

static sem_t may_go_on, has_begun;
static atomic_int n_keys, n_at_once, most_at_once;

static void work_long(struct worker_job *job)
{
    int n = atomic_fetch_add(&n_at_once, 1) + 1, most = atomic_load(&most_at_once);
    while (n > most && !atomic_compare_exchange_weak(&most_at_once, &most, n))
        ;
    sem_post(&has_begun);
    sem_wait(&may_go_on);
    work(job);
    atomic_fetch_sub(&n_at_once, 1);
}

/* The long ones go on when all short ones are done, and the test has looked at what waits. */
static void turn_key(void)
{
    if (atomic_fetch_add(&n_keys, 1) == N_SHORT)
        for (int i = 0; i < N_LONG; i++)
            sem_post(&may_go_on);
}

static void work_short(struct worker_job *job)
{
    work(job);
    turn_key();
}

static void test_long(int n_threads)
{
    struct job jobs[N_LONG + N_SHORT], *unwanted = &jobs[N_LONG - 1];
    check_begin("long jobs leave a thread of %d to the others", n_threads);
    begin(n_threads);
    n_keys = n_at_once = most_at_once = 0;
    n_wanted = N_LONG + N_SHORT - 1;
    sem_init(&may_go_on, 0, 0);
    sem_init(&has_begun, 0, 0);
    for (int i = 0; i < N_LONG + N_SHORT; i++) {
        jobs[i] = (struct job){ .job = { .work = i < N_LONG ? work_long : work_short, .done = done }, .number = i };
        workers_add(workers, &jobs[i].job, i < N_LONG ? 24 << 20 : 1000);
    }
    for (int i = 0; i < n_threads - 1; i++)
        sem_wait(&has_begun);
    check(!workers_take_back(workers, &jobs[0].job));
    check(workers_take_back(workers, &unwanted->job));
    check(!workers_take_back(workers, &unwanted->job));
    check_int(workers_n_jobs(workers), n_wanted);
    turn_key();
    check_int(loop_run(loop), 0);
    check_int(most_at_once, n_threads - 1);
    check_int(unwanted->n_worked, 0);
    check_int(n_wrong, 0);
    workers_close(workers);
    loop_close(loop);
    sem_destroy(&may_go_on);
    sem_destroy(&has_begun);
}

int main(void)
{
    for (int n = 1; n <= 4; n++) {
        test_jobs(n);
        test_close(n);
    }
    test_chain();
    test_long(2);
    test_long(3);
    workers_close(NULL);
    return check_done();
}
