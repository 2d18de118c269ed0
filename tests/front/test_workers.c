/* test_workers.c: jobs are worked on by other threads, first come, first served, and come back to the loop's thread, each once. */
#include "front/workers.h"
#include "tests/check.h"

#include <pthread.h>
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
        workers_add(workers, &jobs[i].job);
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
        workers_add(workers, job);
}

static void test_chain(void)
{
    check_begin("a job is added again from its done()");
    begin(2);
    n_wanted = 500;
    chained = (struct job){ .job = { .work = work, .done = next } };
    workers_add(workers, &chained.job);
    check_int(loop_run(loop), 0);
    check_int(n_begun, 500);
    check_int(n_wrong, 0);
    workers_close(workers);
    loop_close(loop);
}

int main(void)
{
    for (int n = 1; n <= 4; n++) {
        test_jobs(n);
        test_close(n);
    }
    test_chain();
    workers_close(NULL);
    return check_done();
}
