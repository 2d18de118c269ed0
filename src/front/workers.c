#include "front/workers.h"

#include "base/base.h"
#include "base/error.h"
#include "base/threads.h"
#include "base/memory.h"

#include <pthread.h>
#include <stdlib.h>

#define STACK_BYTES (8ul << 20)         /* templates and JSON recurse; a limit (ulimit -s), also none, may give threads less */
#define LONG_BYTES (128ul << 10)        /* some 10 ms of work */

struct line {
    struct worker_job *first, **end;
};

struct workers {
    struct loop *loop;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct line short_jobs, long_jobs;  /* this and what follows, up to is_closing, under the lock */
    int n_long, most_long;              /* long jobs that are worked on */
    uint64_t n_added;
    bool is_closing;
    uint32_t n_jobs;                    /* the loop's thread's */
    int n_threads;
    pthread_t thread[];
};

static void give_back(struct loop_job *back)
{
    struct worker_job *job = CONTAINER_OF(back, struct worker_job, back);
    job->workers->n_jobs--;
    job->done(job);
}

/* ---- lines, under the lock ---- */
static void line_add(struct line *line, struct worker_job *job)
{
    job->next = NULL;
    *line->end = job;
    line->end = &job->next;
}

static bool line_remove(struct line *line, struct worker_job *job)
{
    struct worker_job **link = &line->first;
    while (*link && *link != job)
        link = &(*link)->next;
    if (!*link)
        return false;
    *link = job->next;
    if (line->end == &job->next)
        line->end = link;
    return true;
}

static struct line *line_of(struct workers *workers, const struct worker_job *job)
{
    return job->is_long ? &workers->long_jobs : &workers->short_jobs;
}

/* The one that has come first of those that may be begun now. */
static struct worker_job *next_job(const struct workers *workers)
{
    struct worker_job *a = workers->short_jobs.first, *b = workers->n_long < workers->most_long ? workers->long_jobs.first : NULL;
    return !a || (b && b->turn < a->turn) ? b : a;
}

/* ---- threads ---- */
/* NULL: there is none for this thread, and none will come. */
static struct worker_job *take(struct workers *workers)
{
    struct worker_job *job;
    pthread_mutex_lock(&workers->lock);
    while (!(job = next_job(workers)) && !workers->is_closing)
        pthread_cond_wait(&workers->changed, &workers->lock);
    if (job) {
        line_remove(line_of(workers, job), job);
        workers->n_long += job->is_long;
    }
    pthread_mutex_unlock(&workers->lock);
    return job;
}

static void *worker_main(void *arg)
{
    struct workers *workers = arg;
    memory_fill_caches();
    for (struct worker_job *job; (job = take(workers));) {
        job->work(job);
        pthread_mutex_lock(&workers->lock);
        workers->n_long -= job->is_long;        /* this thread may begin the next */
        pthread_mutex_unlock(&workers->lock);
        loop_post(workers->loop, &job->back);
    }
    return NULL;
}

void workers_add(struct workers *workers, struct worker_job *job, size_t n_bytes)
{
    job->workers = workers;
    job->back = (struct loop_job){ .run = give_back };
    job->is_long = n_bytes > LONG_BYTES;
    workers->n_jobs++;
    pthread_mutex_lock(&workers->lock);
    assert(!workers->is_closing);
    job->turn = workers->n_added++;
    line_add(line_of(workers, job), job);
    pthread_mutex_unlock(&workers->lock);
    pthread_cond_signal(&workers->changed);
}

bool workers_take_back(struct workers *workers, struct worker_job *job)
{
    pthread_mutex_lock(&workers->lock);
    bool waited = line_remove(line_of(workers, job), job);
    pthread_mutex_unlock(&workers->lock);
    workers->n_jobs -= waited;
    return waited;
}

uint32_t workers_n_jobs(const struct workers *workers)
{
    return workers->n_jobs;
}

static int start_thread(struct workers *workers)
{
    pthread_attr_t attr;
    int err = pthread_attr_init(&attr);
    if (err)
        return err;
    if ((err = pthread_attr_setstacksize(&attr, STACK_BYTES)) == 0)
        err = thread_start(&workers->thread[workers->n_threads], &attr, worker_main, workers);
    pthread_attr_destroy(&attr);
    workers->n_threads += err == 0;
    return err;
}

int workers_open(struct workers **out, struct loop *loop, int n_threads)
{
    struct workers *workers = calloc(1, sizeof *workers + (size_t)n_threads * sizeof workers->thread[0]);
    if (!workers)
        return error_set(ERR_NO_MEMORY, "no memory for %d workers", n_threads);
    workers->loop = loop;
    workers->short_jobs.end = &workers->short_jobs.first;
    workers->long_jobs.end = &workers->long_jobs.first;
    workers->most_long = MAX(n_threads - 1, 1);
    pthread_mutex_init(&workers->lock, NULL);
    pthread_cond_init(&workers->changed, NULL);
    while (workers->n_threads < n_threads)
        if (start_thread(workers)) {
            workers_close(workers);
            return error_set(ERR_NO_MEMORY, "the system does not start %d threads", n_threads);
        }
    *out = workers;
    return 0;
}

void workers_close(struct workers *workers)
{
    if (!workers)
        return;
    pthread_mutex_lock(&workers->lock);
    workers->is_closing = true;
    pthread_mutex_unlock(&workers->lock);
    pthread_cond_broadcast(&workers->changed);
    for (int i = 0; i < workers->n_threads; i++)
        pthread_join(workers->thread[i], NULL);
    loop_run_posted(workers->loop);
    assert(workers->n_jobs == 0);
    pthread_cond_destroy(&workers->changed);
    pthread_mutex_destroy(&workers->lock);
    free(workers);
}
