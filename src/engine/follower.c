/* follower.c: the loop of a rank that is not the leader: wait for a plan, run it, send what was asked for. */
#include "engine/engine_impl.h"

#include "base/base.h"
#include "base/error.h"
#include "base/threads.h"

#include <time.h>

/* After so long without a token the replica is idle: from then on a rank looks seldom, and costs next to nothing.  What comes next
 * waits for a nap at most. */
#define QUIET_S 0.05
#define NAP_NS 2000000
#define LONG_QUIET_S 1.0
#define LONG_NAP_NS 10000000

static int wait_for_plan(struct engine *e, size_t *n_bytes)
{
    double idle_s = seconds_now() - e->last_work_s;
    int err = comm_probe(e->control, 0, TAG_PLAN, false, MAX(QUIET_S - idle_s, 0), n_bytes, NULL);
    while (err >= 0 && *n_bytes == SIZE_MAX) {
        idle_s = seconds_now() - e->last_work_s;
        nanosleep(&(struct timespec){ .tv_nsec = idle_s < LONG_QUIET_S ? NAP_NS : LONG_NAP_NS }, NULL);
        err = comm_probe(e->control, 0, TAG_PLAN, false, 0, n_bytes, NULL);
    }
    return err;
}

static int receive_plan(struct engine *e)
{
    size_t n_bytes;
    int err = wait_for_plan(e, &n_bytes);
    if (err < 0)
        return err;
    if (n_bytes > plan_max_bytes(e->plan))
        return error_set(ERR_PEER, "a step plan of %zu bytes is too long", n_bytes);
    if ((err = comm_receive(e->control, e->plan_bytes, n_bytes, 0, TAG_PLAN)) < 0)
        return err;
    return plan_decode(e->plan, e->plan_bytes, n_bytes);
}

static int send_to_leader(struct engine *e, const void *bytes, size_t n_bytes, int tag)
{
    struct comm_request request = { 0 };
    int err = comm_send_start(e->control, &request, bytes, n_bytes, 0, tag);
    return err < 0 ? err : comm_wait(e->control, &request);
}

static int answer(struct engine *e)
{
    unsigned flags = e->plan->header.flags;
    int err = 0;
    if (engine_owes_result(e, e->plan))
        err = send_to_leader(e, e->result.bytes, e->result.size, TAG_RESULT);
    if (!err && flags & PLAN_BEAT) {
        struct rank_time time = engine_own_time(e);
        err = send_to_leader(e, &time, sizeof time, TAG_BEAT);
    }
    if (!err && flags & PLAN_PROBE)
        err = engine_own_probe(e);
    if (!err && flags & PLAN_COUNTERS) {
        struct rank_counters counters;
        engine_own_counters(e, &counters, flags & PLAN_RESET_COUNTERS);
        err = send_to_leader(e, &counters, sizeof counters, TAG_COUNTERS);
    }
    return err;
}

int engine_follow(struct engine *e)
{
    for (uint32_t number = 0;; number++) {
        int err = receive_plan(e);
        if (err < 0)
            return err;
        if (e->plan->header.number != number)
            return error_set(ERR_PEER, "step plan %u came where %u was due", e->plan->header.number, number);
        if (e->plan->header.epoch != e->options.epoch)
            return error_set(ERR_PEER, "step plan %u is of another start of the replica", number);
        if (e->plan->header.flags & PLAN_STOP)
            return 0;
        e->result.size = 0;
        if ((err = engine_run_plan(e, e->plan, NULL, &e->result)) < 0 || (err = answer(e)) < 0)
            return err;
        if (e->plan->header.n_all_tokens)
            e->last_work_s = seconds_now();
    }
}
