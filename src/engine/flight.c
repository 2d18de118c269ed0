/* flight.c: steps on their way: plans go out to the ranks of each group along dp, results come back in the same order. */
#include "engine/engine_impl.h"

#include "base/base.h"
#include "base/error.h"
#include "base/threads.h"

#include <stdlib.h>

/* Until the bytes are not needed any more. */
static int wait_sent(struct engine *e, struct flight *f)
{
    int err = 0;
    for (uint32_t r = 1; !err && r < e->n_ranks; r++)
        if ((err = comm_wait(e->control, &f->request[r])) == 0)
            err = comm_wait(e->control, &f->late_request[r]);
    return err;
}

int flight_open(struct engine *e, struct flight *f)
{
    const struct plan_limits *most = &e->limits;
    f->request = calloc(e->n_ranks, sizeof *f->request);
    f->group = calloc(e->n_groups, sizeof *f->group);
    f->late_request = calloc(e->n_ranks, sizeof *f->late_request);
    buffer_reserve(&f->own_result, result_max_bytes(e));
    bool have_all = f->request && f->late_request && f->group && !f->own_result.failed;
    for (uint32_t g = 0; have_all && g < e->n_groups; g++) {
        struct group_plan *p = &f->group[g];
        int err = plan_open(&p->plan, most);
        if (err < 0)
            return err;
        p->row_sequence = calloc(most->n_rows, sizeof *p->row_sequence);
        p->sequence = calloc(most->n_sequences, sizeof *p->sequence);
        p->bytes = malloc(plan_max_bytes(p->plan));
        have_all = p->row_sequence && p->sequence && p->bytes;
    }
    return have_all ? 0 : error_set(ERR_NO_MEMORY, "no memory for step plans");
}

void flight_release(struct engine *e, struct flight *f)
{
    if (f->request && f->late_request && !e->has_failed)
        wait_sent(e, f);
    for (uint32_t g = 0; f->group && g < e->n_groups; g++) {
        plan_close(f->group[g].plan);
        free(f->group[g].row_sequence);
        free(f->group[g].sequence);
        free(f->group[g].bytes);
        buffer_release(&f->group[g].late);
    }
    free(f->group);
    free(f->request);
    free(f->late_request);
    buffer_release(&f->own_result);
}

struct flight *flight_next(struct engine *e)
{
    return &e->flight[(e->first_flight + e->n_in_flight) % e->n_flights];
}

int flight_send(struct engine *e, struct flight *f)
{
    size_t n_bytes = 0;
    int err = wait_sent(e, f);          /* from the last time */
    for (uint32_t r = 0; !err && r < e->n_ranks; r++) {
        uint32_t group = mesh_coordinate(&e->mesh, r, AXIS_DP);
        struct group_plan *p = &f->group[group];
        if (r == mesh_peer(&e->mesh, 0, AXIS_DP, group)) {  /* the group's first rank */
            p->plan->header.number = e->next_number;
            p->plan->header.epoch = e->options.epoch;
            n_bytes = plan_encode(p->plan, p->bytes);
        }
        if (r > 0)
            err = comm_send_start(e->control, &f->request[r], p->bytes, n_bytes, (int)r, TAG_PLAN);
    }
    e->next_number++;
    /* A large plan moves only while this rank is in the transport, and another group would get it after this rank's own step.
     * When no step is under way all take theirs at once, so there is no wait to speak of. */
    return err || e->n_in_flight ? err : wait_sent(e, f);
}

/* ---- late input ---- */
static void make_late(struct group_plan *p)
{
    const struct plan *plan = p->plan;
    late_begin(&p->late, plan->header.number, plan->header.late_room);
    for (uint32_t r = 0; r < plan->header.n_rows; r++) {
        const struct sequence *s = p->row_sequence[r];
        if (sequence_wants_token(s, plan->row[r].position) && edit_table_room(&s->edits))
            late_add_edits(&p->late, r, &s->edits, sequence_bans_stop_ids(s));
    }
}

int flight_send_late(struct engine *e, struct flight *f)
{
    int err = 0;
    for (uint32_t g = 0; !err && g < e->n_groups; g++) {
        struct group_plan *p = &f->group[g];
        if (!p->plan->header.late_room)
            continue;
        make_late(p);
        if (p->late.failed)
            return error_set(ERR_NO_MEMORY, "no memory for the late input of a plan");
        for (uint32_t i = 0; !err && i < e->mesh.size[AXIS_TP]; i++) {
            uint32_t r = engine_last_stage_rank(e, g, i);
            if (r != e->rank)
                err = comm_send_start(e->control, &f->late_request[r], p->late.bytes, p->late.size, (int)r, TAG_LATE);
        }
    }
    return err;
}

/* What a step that is over says of a sequence's keys and values. */
static void confirm(struct engine *e, struct sequence *s, const struct step_sequence *q, bool worked)
{
    s->n_in_flight--;
    e->counted.generated_tokens += s->n_tokens - s->n_landed;
    s->n_landed = s->n_tokens;
    if (s->n_stale)
        s->n_stale--;
    else if (worked && s->state == SEQUENCE_RUNNING) {
        s->n_confirmed = q->position + q->n_tokens;
        tables_publish(e, s);
    }
    sequence_settle(e, s);
}

static void land(struct engine *e, struct flight *f, bool worked)
{
    e->first_flight = (e->first_flight + 1) % e->n_flights;
    e->n_in_flight--;
    for (uint32_t g = 0; g < e->n_groups; g++)
        for (uint32_t i = 0; i < f->group[g].plan->header.n_sequences; i++)
            if (f->group[g].sequence[i])
                confirm(e, f->group[g].sequence[i], &f->group[g].plan->sequences[i], worked);
}

void flight_forget(struct engine *e, const struct sequence *s)
{
    for (uint32_t i = 0; i < e->n_in_flight; i++) {
        const struct flight *f = &e->flight[(e->first_flight + i) % e->n_flights];
        for (uint32_t g = 0; g < e->n_groups; g++) {
            const struct group_plan *p = &f->group[g];
            for (uint32_t k = 0; k < p->plan->header.n_sequences; k++)
                if (p->sequence[k] == s)
                    p->sequence[k] = NULL;
            for (uint32_t k = 0; k < p->plan->header.n_rows; k++)
                if (p->row_sequence[k] == s)
                    p->row_sequence[k] = NULL;
        }
    }
}

/* Nothing is waited for any more: other ranks may hang in a collective.  No sequence goes on. */
int flight_fail(struct engine *e, int err)
{
    for (uint32_t g = 0; g < e->n_groups; g++)
        for (struct sequence *s = e->group[g].sequences; s; s = s->next)
            sequence_stop(s);
    for (struct sequence *s = e->queue.first; s; s = s->next)
        sequence_stop(s);
    while (e->n_in_flight)
        land(e, &e->flight[e->first_flight], false);
    e->has_failed = e->has_failed || e->n_ranks > 1;
    return err;
}

/* In a pipeline steps overlap: a step took what passed since the one before it was over. */
static void learn(struct engine *e, const struct flight *f)
{
    double now_s = seconds_now();
    pace_learn(&e->pace, f->n_prefill, f->n_decode, now_s - MAX(f->start_s, e->last_end_s));
    e->last_end_s = now_s;
}

int flight_collect_oldest(struct engine *e)
{
    struct flight *f = &e->flight[e->first_flight];
    int err = result_apply(e, f);
    if (!err && f->group[0].plan->header.flags & PLAN_BEAT)
        err = leader_take_beats(e);
    if (err < 0)
        return flight_fail(e, err);
    learn(e, f);
    land(e, f, true);
    return 0;
}

int flight_send_empty(struct engine *e, unsigned flags)
{
    int err = 0;
    while (!err && e->n_in_flight)
        err = flight_collect_oldest(e);
    struct flight *f = flight_next(e);
    if (err < 0)
        return err;
    for (uint32_t g = 0; g < e->n_groups; g++) {
        plan_clear(f->group[g].plan);
        f->group[g].plan->header.flags = flags;
    }
    return flight_send(e, f);
}
