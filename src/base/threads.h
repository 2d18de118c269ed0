/* threads.h: the compute threads of a rank, all running one function together, with barriers between its parts.
 *
 * The caller of pool_run() is thread 0.  A waiting thread spins for a moment, where each thread has a core of its own, and
 * then sleeps in the kernel, so an idle or a crowded machine burns nothing. */
#ifndef STOA_BASE_THREADS_H
#define STOA_BASE_THREADS_H

#include <stdbool.h>

struct pool;

/* n_threads >= 1.  spin: threads have cores of their own. */
int pool_open(struct pool **out, int n_threads, bool spin);
void pool_close(struct pool *pool);
int pool_n_threads(const struct pool *pool);

typedef void pool_fn(void *user, int thread);
/* Runs fn(user, thread) on every thread and returns when all have. */
void pool_run(struct pool *pool, pool_fn *fn, void *user);
/* Inside a pool_fn: waits until every thread is here.  What one wrote before, all see after. */
void pool_barrier(struct pool *pool);

/* Cores that this process may use. */
int cpu_cores(void);
double seconds_now(void);       /* a steady clock */

#endif
