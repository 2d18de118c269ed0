/* workers.h: threads that do what would hold up the event loop: parsing, templates, tokenizing. */
#ifndef STOA_FRONT_WORKERS_H
#define STOA_FRONT_WORKERS_H

#include "front/loop.h"

struct workers;

struct worker_job {
    void (*work)(struct worker_job *job);       /* on a worker */
    void (*done)(struct worker_job *job);       /* then on the loop's thread; the job is the caller's again */
    struct loop_job back;                       /* the workers' */
    struct worker_job *next;
};

int workers_open(struct workers **out, struct loop *loop, int n_threads);
/* Waits for what runs; done() of a job that has been started is still called, by the loop. */
void workers_close(struct workers *workers);
/* First come, first served. */
void workers_add(struct workers *workers, struct worker_job *job);

#endif
