/* threads.h: the compute threads of a rank.
 *
 * The caller is thread 0.  A waiting thread spins for a moment, where each thread has a core of its own, and then sleeps in
 * the kernel, so an idle or a crowded machine burns nothing. */
#ifndef STOA_BASE_THREADS_H
#define STOA_BASE_THREADS_H

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>

/* pthread_create() with all signals blocked in the new thread: they are for the others.  0 or an errno.  attr may be NULL. */
int thread_start(pthread_t *out, const pthread_attr_t *attr, void *(*run)(void *), void *user);

struct pool;

/* n_threads >= 1.  spin: threads have cores of their own.  ERR_NO_MEMORY, also when the system starts no more threads.  A thread that it
 * starts has a stack of 4 MB or more, whatever the limit; the caller brings its own, of which kernels use up to 2 MB. */
int pool_open(struct pool **out, int n_threads, bool spin);
void pool_close(struct pool *pool);
/* All threads, the caller among them, keep to these cores until the pool is closed, which the same thread must do: it gets back the cores
 * that it had.  Where the system refuses, they stay where they are, and nobody is told: that costs time and no answer. */
void pool_pin(struct pool *pool, const cpu_set_t *cores);
int pool_n_threads(const struct pool *pool);
bool pool_spins(const struct pool *pool);

typedef void pool_fn(void *user, int thread);
/* Runs fn(user, thread) on every thread, once each, and returns when all have. */
void pool_run(struct pool *pool, pool_fn *fn, void *user);

/* For many short jobs in a row: pool_serve() names the function, each pool_offer() invites the other threads to run it and
 * does not wait for them.  A thread that is held up may come late or miss an offer, so the function joins whatever is
 * being done and returns when there is nothing (see work.h); the caller does its part itself.  pool_rest() waits until no
 * thread is inside, before what the function uses goes away; pool_run() does so by itself. */
void pool_serve(struct pool *pool, pool_fn *fn, void *user);
void pool_offer(struct pool *pool);
void pool_rest(struct pool *pool);

/* By a thread that holds no piece of work and is about to take one.  Where a neighbour has been seen on its core, the thread lets it
 * run now and then: else the system takes the core away in the middle of a piece, for which all others wait. */
void pool_give_way(struct pool *pool, int thread);

/* Cores that this process may use (base/cores.h). */
int cpu_cores(void);
double seconds_now(void);       /* a steady clock */

#endif
