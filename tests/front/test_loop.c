/* test_loop.c: watches, timers and posted jobs come in their order, once, and not after they were stopped. */
#include "base/error.h"
#include "base/random.h"
#include "base/threads.h"
#include "front/loop.h"
#include "tests/check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static struct loop *loop;

static void begin(const char *name)
{
    check_begin("%s", name);
    check_int(loop_open(&loop), 0);
}

static void end(void)
{
    loop_close(loop);
    loop = NULL;
}

/* ---- timers ---- */
enum { N_TIMERS = 2000 };
struct alarm {
    struct timer timer;
    bool is_set, rang;
};
static struct alarm alarms[N_TIMERS];
static int n_rang, n_wanted, n_wrong;
static int64_t last_at_ms;

static void ring(struct timer *timer)
{
    struct alarm *alarm = (struct alarm *)timer;
    n_wrong += !alarm->is_set || alarm->rang || timer->at_ms < last_at_ms || timer->at_ms > loop_now_ms(loop);
    last_at_ms = timer->at_ms;
    alarm->rang = true;
    if (++n_rang == n_wanted)
        loop_stop(loop);
}

/* Set, changed and cleared at random; those that are left are due in the order of their times. */
static void test_timers(void)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        begin("timers are due in order, each once");
        int64_t now_ms = loop_now_ms(loop);
        memset(alarms, 0, sizeof alarms);
        n_rang = n_wanted = n_wrong = 0;
        last_at_ms = 0;
        for (uint64_t i = 0; i < 5 * N_TIMERS; i++) {
            struct alarm *alarm = &alarms[random_u64(seed, 3 * i) % N_TIMERS];
            alarm->timer.due = ring;
            alarm->is_set = random_u64(seed, 3 * i + 1) % 3;
            if (alarm->is_set)
                timer_set(loop, &alarm->timer, now_ms + (int64_t)(random_u64(seed, 3 * i + 2) % 40) - 10);
            else
                timer_clear(loop, &alarm->timer);
        }
        for (int i = 0; i < N_TIMERS; i++)
            n_wanted += alarms[i].is_set;
        check_int(loop_run(loop), 0);
        check_int(n_rang, n_wanted);
        check_int(n_wrong, 0);
        for (int i = 0; i < N_TIMERS; i++)
            n_wrong += alarms[i].rang != alarms[i].is_set || alarms[i].timer.link;
        check_int(n_wrong, 0);
        end();
    }
}

/* All are due at once; the first clears the others, and one of them sets itself again and again. */
static struct timer cleared[10], again, stop;
static int n_again;

static void clear_others(struct timer *timer)
{
    (void)timer;
    for (int i = 0; i < 10; i++)
        timer_clear(loop, &cleared[i]);
}

static void never(struct timer *timer)
{
    (void)timer;
    n_wrong++;
}

static void once_more(struct timer *timer)
{
    n_again++;
    timer_set(loop, timer, loop_now_ms(loop) - 5);
}

static void stop_it(struct timer *timer)
{
    (void)timer;
    loop_stop(loop);
}

static void test_clearing(void)
{
    static struct timer first;
    begin("a timer that another clears in the same turn is not due; one that sets itself does not starve the others");
    int64_t now_ms = loop_now_ms(loop);
    n_wrong = n_again = 0;
    first.due = clear_others;
    again.due = once_more;
    stop.due = stop_it;
    timer_set(loop, &first, now_ms - 2);
    for (int i = 0; i < 10; i++) {
        cleared[i].due = never;
        timer_set(loop, &cleared[i], now_ms - 1);
    }
    timer_set(loop, &again, now_ms - 3);
    timer_set(loop, &stop, now_ms + 20);
    check_int(loop_run(loop), 0);
    check_int(n_wrong, 0);
    check(n_again > 1);
    timer_clear(loop, &again);
    end();
}

/* ---- watches ---- */
static struct watch ends[8];
static int n_ready;

static void stop_all(struct watch *watch, uint32_t events)
{
    (void)watch;
    n_ready++;
    check(events & EPOLLIN);
    for (int i = 0; i < 8; i++)
        watch_stop(loop, &ends[i]);
}

static void test_watches(void)
{
    int pair[8][2];
    begin("a watch that another stops in the same turn is not called");
    n_ready = 0;
    for (int i = 0; i < 8; i++) {
        check_int(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair[i]), 0);
        ends[i] = (struct watch){ stop_all, pair[i][0], EPOLLIN };
        check_int(watch_start(loop, &ends[i]), 0);
        check_int(write(pair[i][1], "x", 1), 1);
    }
    stop = (struct timer){ .due = stop_it };
    timer_set(loop, &stop, loop_now_ms(loop) + 30);
    check_int(loop_run(loop), 0);
    check_int(n_ready, 1);
    ends[0].fd = -1;
    check_int(watch_start(loop, &ends[0]), ERR_FAILED);
    for (int i = 0; i < 8; i++) {
        close(pair[i][0]);
        close(pair[i][1]);
    }
    end();
}

static int n_told;
static uint32_t told;

static void tell(struct watch *watch, uint32_t events)
{
    told |= events;
    n_told++;
    watch_change(loop, watch, 0);
}

static void test_changes(void)
{
    int pair[2];
    begin("what is watched for can change; a hang-up is told in any case");
    check_int(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    struct watch watch = { tell, pair[0], 0 };
    told = 0;
    n_told = 0;
    check_int(watch_start(loop, &watch), 0);
    check_int(watch_change(loop, &watch, EPOLLOUT | EPOLLIN), 0);
    stop = (struct timer){ .due = stop_it };
    timer_set(loop, &stop, loop_now_ms(loop) + 20);
    check_int(loop_run(loop), 0);
    check_int(told, EPOLLOUT);
    check_int(n_told, 1);
    close(pair[1]);
    timer_set(loop, &stop, loop_now_ms(loop) + 20);
    check_int(loop_run(loop), 0);
    check(told & EPOLLHUP);
    watch_stop(loop, &watch);
    close(pair[0]);
    end();
}

/* ---- jobs from other threads ---- */
enum { N_POSTERS = 4, N_JOBS = 20000 };
struct numbered {
    struct loop_job job;
    int poster, number;
};
static struct numbered *jobs[N_POSTERS];
static int next_number[N_POSTERS], n_run;

static void run(struct loop_job *job)
{
    struct numbered *numbered = (struct numbered *)job;
    n_wrong += next_number[numbered->poster]++ != numbered->number;
    if (++n_run == N_POSTERS * N_JOBS)
        loop_stop(loop);
}

static void *post_all(void *arg)
{
    struct numbered *mine = arg;
    for (int i = 0; i < N_JOBS; i++)
        loop_post(loop, &mine[i].job);
    return NULL;
}

static void test_posts(void)
{
    pthread_t thread[N_POSTERS];
    begin("jobs of four threads, each thread's in its order");
    n_wrong = n_run = 0;
    for (int p = 0; p < N_POSTERS; p++) {
        jobs[p] = calloc(N_JOBS, sizeof *jobs[p]);
        next_number[p] = 0;
        for (int i = 0; i < N_JOBS; i++)
            jobs[p][i] = (struct numbered){ .job.run = run, .poster = p, .number = i };
        check_int(pthread_create(&thread[p], NULL, post_all, jobs[p]), 0);
    }
    check_int(loop_run(loop), 0);
    check_int(n_run, N_POSTERS * N_JOBS);
    check_int(n_wrong, 0);
    for (int p = 0; p < N_POSTERS; p++) {
        pthread_join(thread[p], NULL);
        free(jobs[p]);
    }
    end();
}

/* A job that posts itself: the loop goes on with the rest. */
static int n_reposts;

static void repost(struct loop_job *job)
{
    n_reposts++;
    loop_post(loop, job);
}

static void *stop_soon(void *user)
{
    (void)user;
    nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
    loop_stop(loop);
    return NULL;
}

static void test_stop(void)
{
    struct loop_job job = { .run = repost };
    pthread_t thread;
    begin("another thread stops the loop, whether it is busy");
    n_reposts = 0;
    loop_post(loop, &job);
    check_int(pthread_create(&thread, NULL, stop_soon, NULL), 0);
    check_int(loop_run(loop), 0);
    pthread_join(thread, NULL);
    check(n_reposts > 1);
    end();
    begin("or asleep, and it can run again");
    for (int i = 0; i < 3; i++) {
        check_int(pthread_create(&thread, NULL, stop_soon, NULL), 0);
        check_int(loop_run(loop), 0);
        pthread_join(thread, NULL);
    }
    loop_stop(loop);
    check_int(loop_run(loop), 0);
    end();
}

/* ---- what it says of itself ---- */
static void dawdle(struct timer *timer)
{
    (void)timer;
    nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
    loop_stop(loop);
}

static void test_measure(void)
{
    struct timer slow = { .due = dawdle };
    begin("the slowest callback is known until it is asked for");
    timer_set(loop, &slow, loop_now_ms(loop));
    check_int(loop_run(loop), 0);
    check(loop_worst_ms(loop) >= 19.9);
    check(loop_worst_ms(loop) == 0);
    end();
}

static void test_idle(void)
{
    begin("an idle loop burns nothing");
    stop = (struct timer){ .due = stop_it };
    timer_set(loop, &stop, loop_now_ms(loop) + 300);
    clock_t before = clock();
    double begun_s = seconds_now();
    check_int(loop_run(loop), 0);
    check(seconds_now() - begun_s > 0.25);
    check(clock() - before < CLOCKS_PER_SEC / 20);
    end();
}

int main(void)
{
    test_timers();
    test_clearing();
    test_watches();
    test_changes();
    test_posts();
    test_stop();
    test_measure();
    test_idle();
    loop_close(NULL);
    return check_done();
}
