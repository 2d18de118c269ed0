/* workers.h: threads that do what would hold up the event loop: parsing, templates, tokenizing.
 *
 * First come, first served, but of jobs with much to read some thread is always left for the others: a few clients with bodies of
 * megabytes, which take seconds each, hold up nobody but each other. */
#ifndef STOA_FRONT_WORKERS_H
#define STOA_FRONT_WORKERS_H

#include "front/loop.h"

#include <stdbool.h>
#include <stddef.h>

struct workers;

struct worker_job {
    void (*work)(struct worker_job *job);       /* on a worker */
    void (*done)(struct worker_job *job);       /* then on the loop's thread; the job is the caller's again */
    struct loop_job back;                       /* the workers' */
    struct worker_job *next;
    struct workers *workers;
    uint64_t turn;
    bool is_long;
};

/* n_threads >= 1.  ERR_NO_MEMORY, also when the system starts no more threads.  Signals go to other threads. */
int workers_open(struct workers **out, struct loop *loop, int n_threads);
/* On the loop's thread, before loop_close().  Every job that was added is worked on first, and its done() called; done() adds none then. */
void workers_close(struct workers *workers);
/* On the loop's thread.  n_bytes: what it has to read or write, more or less. */
void workers_add(struct workers *workers, struct worker_job *job, size_t n_bytes);
/* On the loop's thread: true when no worker had begun with it; then it is the caller's again, and done() is not called. */
bool workers_take_back(struct workers *workers, struct worker_job *job);
/* Jobs that were added and whose done() has not been called. */
uint32_t workers_n_jobs(const struct workers *workers);

#endif
