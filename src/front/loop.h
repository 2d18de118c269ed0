/* loop.h: the event loop of the front: descriptors, timers, and work that comes back from other threads.
 *
 * One thread, the one that calls loop_run(), owns all that the front knows of connections and requests; every callback runs on
 * it, and none takes more than 5 ms: what takes longer goes to workers.h.  Only loop_post() and loop_stop() may be called
 * from elsewhere.
 *
 * A turn: descriptors that are ready, jobs that were posted, timers that are due.  What a callback posts or sets anew waits for the
 * next turn at the earliest, so nobody starves the others.  Linux only: epoll, eventfd. */
#ifndef STOA_FRONT_LOOP_H
#define STOA_FRONT_LOOP_H

#include <stdint.h>

struct loop;

int loop_open(struct loop **out);
void loop_close(struct loop *loop);
/* Until loop_stop(): 0, or ERR_FAILED.  It can be run again. */
int loop_run(struct loop *loop);
/* Also from a signal handler. */
void loop_stop(struct loop *loop);
/* Monotonic, in milliseconds, as of this turn of the loop. */
int64_t loop_now_ms(const struct loop *loop);

/* A watched descriptor; the caller's storage, zeroed, and not moved while it is watched.  events: EPOLLIN, EPOLLOUT, EPOLLRDHUP.
 * EPOLLHUP and EPOLLERR are always told. */
struct watch {
    void (*ready)(struct watch *watch, uint32_t events);
    int fd;
    uint32_t events;
};
int watch_start(struct loop *loop, struct watch *watch);
int watch_change(struct loop *loop, struct watch *watch, uint32_t events);
/* Before its descriptor is closed.  ready() is not called any more, not even in this turn. */
void watch_stop(struct loop *loop, struct watch *watch);

/* A timer; the caller's storage, zeroed, and not moved while it is set.  Setting one takes no memory, so it cannot fail. */
struct timer {
    void (*due)(struct timer *timer);
    int64_t at_ms;                                  /* loop_now_ms(); what is past is due in this turn or the next */
    struct timer *child, *sibling, **link;          /* the loop's; link is NULL while it is not set */
};
/* Also changes one that is set. */
void timer_set(struct loop *loop, struct timer *timer, int64_t at_ms);
void timer_clear(struct loop *loop, struct timer *timer);

/* Work for the loop's thread: run(job) is called on it, soon, in the order of posting.  The caller's storage until then. */
struct loop_job {
    void (*run)(struct loop_job *job);
    struct loop_job *next;      /* the loop's */
};
void loop_post(struct loop *loop, struct loop_job *job);
/* On the loop's thread: runs what has been posted, and what that posts. */
void loop_run_posted(struct loop *loop);

/* The longest callback since the last call. */
double loop_worst_ms(struct loop *loop);

#endif
