#include "front/loop.h"

#include "base/base.h"
#include "base/error.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum { MOST_EVENTS = 128, LONGEST_WAIT_MS = 60000 };

struct loop {
    int epoll_fd;
    struct watch bell;                  /* an eventfd that loop_post() and loop_stop() ring */
    struct epoll_event event[MOST_EVENTS];
    int n_events;                       /* of this turn; one whose watch was stopped has no pointer any more */
    int64_t now_ms;
    struct timer *timers;               /* a pairing heap: the root is the first that is due */
    struct timer *due;                  /* of this turn, in order; linked by sibling */
    _Atomic(struct loop_job *) posted;  /* the newest first */
    atomic_bool must_stop;
    int64_t measured_us, worst_us;
};

static int64_t clock_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* ---- how long callbacks take: called after each ---- */
static void measure(struct loop *loop)
{
    int64_t now_us = clock_us(), took_us = now_us - loop->measured_us;
    loop->measured_us = now_us;
    loop->worst_us = MAX(loop->worst_us, took_us);
}

double loop_worst_ms(struct loop *loop)
{
    double worst_ms = 1e-3 * (double)loop->worst_us;
    loop->worst_us = 0;
    return worst_ms;
}

/* ---- watches ---- */
static int control(struct loop *loop, int operation, struct watch *watch)
{
    struct epoll_event event = { .events = watch->events, .data.ptr = watch };
    if (epoll_ctl(loop->epoll_fd, operation, watch->fd, &event))
        return error_set(ERR_FAILED, "cannot watch a descriptor: %s", strerror(errno));
    return 0;
}

int watch_start(struct loop *loop, struct watch *watch)
{
    return control(loop, EPOLL_CTL_ADD, watch);
}

int watch_change(struct loop *loop, struct watch *watch, uint32_t events)
{
    if (watch->events == events)
        return 0;
    watch->events = events;
    return control(loop, EPOLL_CTL_MOD, watch);
}

void watch_stop(struct loop *loop, struct watch *watch)
{
    epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
    for (int i = 0; i < loop->n_events; i++)
        if (loop->event[i].data.ptr == watch)
            loop->event[i].data.ptr = NULL;
}

/* ---- timers ---- */
static void put(struct timer **link, struct timer *timer)
{
    *link = timer;
    if (timer)
        timer->link = link;
}

/* Two heaps become one; either may be empty.  The links of its root are the caller's to set. */
static struct timer *join(struct timer *a, struct timer *b)
{
    if (!a || !b)
        return a ? a : b;
    struct timer *first = b->at_ms < a->at_ms ? b : a, *second = first == a ? b : a;
    put(&second->sibling, first->child);
    put(&first->child, second);
    return first;
}

/* A heap of brothers: joined in pairs from the left, then the pairs from the right, which is what keeps a removal at log n. */
static struct timer *join_brothers(struct timer *timer)
{
    struct timer *pairs = NULL, *heap = NULL;
    while (timer) {
        struct timer *a = timer, *b = a->sibling, *rest = b ? b->sibling : NULL;
        a->sibling = NULL;
        if (b)
            b->sibling = NULL;
        a = join(a, b);
        a->sibling = pairs;
        pairs = a;
        timer = rest;
    }
    while (pairs) {
        struct timer *next = pairs->sibling;
        pairs->sibling = NULL;
        heap = join(heap, pairs);
        pairs = next;
    }
    return heap;
}

void timer_clear(struct loop *loop, struct timer *timer)
{
    if (!timer->link)
        return;
    put(timer->link, timer->sibling);
    struct timer *children = join_brothers(timer->child);
    timer->child = timer->sibling = NULL;
    timer->link = NULL;
    put(&loop->timers, join(loop->timers, children));
}

void timer_set(struct loop *loop, struct timer *timer, int64_t at_ms)
{
    timer_clear(loop, timer);
    timer->at_ms = at_ms;
    put(&loop->timers, join(loop->timers, timer));
}

static void run_timers(struct loop *loop)
{
    struct timer **end = &loop->due;
    while (loop->timers && loop->timers->at_ms <= loop->now_ms) {
        struct timer *timer = loop->timers;
        timer_clear(loop, timer);
        put(end, timer);
        end = &timer->sibling;
    }
    while (loop->due) {
        struct timer *timer = loop->due;
        timer_clear(loop, timer);
        timer->due(timer);
        measure(loop);
    }
}

/* ---- jobs ---- */
static void ring(struct loop *loop)
{
    uint64_t one = 1;
    while (write(loop->bell.fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

void loop_post(struct loop *loop, struct loop_job *job)
{
    struct loop_job *older = atomic_load(&loop->posted);
    do
        job->next = older;
    while (!atomic_compare_exchange_weak(&loop->posted, &older, job));
    if (!older)                 /* else whoever was first has rung.  The job may be run and gone by now */
        ring(loop);
}

static bool run_jobs(struct loop *loop)
{
    struct loop_job *newest = atomic_exchange(&loop->posted, NULL), *first = NULL;
    bool any = newest;
    loop->measured_us = clock_us();
    while (newest) {
        struct loop_job *older = newest->next;
        newest->next = first;
        first = newest;
        newest = older;
    }
    while (first) {
        struct loop_job *job = first;
        first = job->next;      /* run() may free it */
        job->run(job);
        measure(loop);
    }
    return any;
}

void loop_run_posted(struct loop *loop)
{
    while (run_jobs(loop))
        ;
}

/* Jobs are run after the descriptors, whatever rang. */
static void hear(struct watch *bell, uint32_t events)
{
    uint64_t n;
    (void)events;
    while (read(bell->fd, &n, sizeof n) < 0 && errno == EINTR)
        ;
}

/* ---- the loop ---- */
int64_t loop_now_ms(const struct loop *loop)
{
    return loop->now_ms;
}

int loop_open(struct loop **out)
{
    struct loop *loop = calloc(1, sizeof *loop);
    int err = 0;
    if (!loop)
        return error_set(ERR_NO_MEMORY, "no memory for an event loop");
    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    loop->bell = (struct watch){ .ready = hear, .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .events = EPOLLIN };
    loop->now_ms = clock_us() / 1000;
    if (loop->epoll_fd < 0 || loop->bell.fd < 0)
        err = error_set(ERR_FAILED, "cannot make an event loop: %s", strerror(errno));
    if (err < 0 || (err = watch_start(loop, &loop->bell)) < 0) {
        loop_close(loop);
        return err;
    }
    *out = loop;
    return 0;
}

void loop_close(struct loop *loop)
{
    if (!loop)
        return;
    if (loop->bell.fd >= 0)
        close(loop->bell.fd);
    if (loop->epoll_fd >= 0)
        close(loop->epoll_fd);
    free(loop);
}

static int wait_ms(const struct loop *loop)
{
    if (!loop->timers)
        return -1;
    int64_t left_ms = loop->timers->at_ms - clock_us() / 1000;      /* once: the macros look twice, and what is negative waits for ever */
    return (int)MIN(MAX(left_ms, 0), LONGEST_WAIT_MS);
}

static int turn(struct loop *loop)
{
    int n = epoll_wait(loop->epoll_fd, loop->event, MOST_EVENTS, wait_ms(loop));
    if (n < 0 && errno != EINTR)
        return error_set(ERR_FAILED, "the event loop cannot wait: %s", strerror(errno));
    loop->n_events = MAX(n, 0);
    loop->measured_us = clock_us();
    loop->now_ms = loop->measured_us / 1000;
    for (int i = 0; i < loop->n_events; i++) {
        struct watch *watch = loop->event[i].data.ptr;
        if (!watch)
            continue;
        watch->ready(watch, loop->event[i].events);
        measure(loop);
    }
    loop->n_events = 0;
    run_jobs(loop);
    run_timers(loop);
    return 0;
}

int loop_run(struct loop *loop)
{
    int err = 0;
    while (err == 0 && !atomic_load(&loop->must_stop))
        err = turn(loop);
    atomic_store(&loop->must_stop, false);
    return err;
}

void loop_stop(struct loop *loop)
{
    atomic_store(&loop->must_stop, true);
    ring(loop);
}
