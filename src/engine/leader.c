/* leader.c: what each step computes.
 *
 * A step has one plan for each group along dp, made of the sequences that are at home there.  Groups do not wait for each other's
 * sequences, only for the step: one that has nothing to do joins it with an empty plan. */
#include "engine/engine_impl.h"

#include "base/base.h"
#include "base/error.h"

#include <stdlib.h>

/* ---- open and close ---- */
static int open_group(struct engine *e, struct group *group)
{
    int err = 0;
    for (uint32_t g = 0; !err && g < e->limits.n_cache_groups; g++)
        err = block_pool_init(&group->pool[g], e->limits.cache[g].n_all);
    return err;
}

int leader_open(struct engine *e)
{
    e->n_groups = e->mesh.size[AXIS_DP];
    e->n_flights = e->mesh.size[AXIS_PP] == 1 ? 1 : e->mesh.size[AXIS_PP] + 1;
    e->group = calloc(e->n_groups, sizeof *e->group);
    e->flight = calloc(e->n_flights, sizeof *e->flight);
    e->full_row = calloc(e->model.n_vocab, sizeof *e->full_row);
    e->incoming = calloc(e->mesh.size[AXIS_TP], sizeof *e->incoming);
    e->taken = calloc(e->mesh.size[AXIS_TP], sizeof *e->taken);
    if (!e->group || !e->flight || !e->full_row || !e->incoming || !e->taken)
        return error_set(ERR_NO_MEMORY, "no memory for the leader");
    int err = 0;
    for (uint32_t i = 0; !err && i < e->n_groups; i++)
        err = open_group(e, &e->group[i]);
    for (uint32_t i = 0; !err && i < e->n_flights; i++)
        err = flight_open(e, &e->flight[i]);
    return err;
}

static void close_group(struct engine *e, struct group *group)
{
    while (group->sequences)
        engine_remove(e, group->sequences);
    for (uint32_t g = 0; g < e->limits.n_cache_groups; g++)
        block_pool_release(&group->pool[g]);
}

void leader_close(struct engine *e)
{
    if (e->flight && e->n_ranks > 1 && !e->has_failed)
        flight_send_empty(e, PLAN_STOP);
    for (uint32_t i = 0; e->group && i < e->n_groups; i++)
        close_group(e, &e->group[i]);
    for (uint32_t i = 0; e->flight && i < e->n_flights; i++)
        flight_release(e, &e->flight[i]);
    for (uint32_t i = 0; e->incoming && i < e->mesh.size[AXIS_TP]; i++)
        buffer_release(&e->incoming[i]);
    free(e->incoming);
    free(e->taken);
    free(e->flight);
    free(e->group);
    free(e->full_row);
    free(e->candidates);
}

int engine_counters(struct engine *e, struct rank_counters *counters, bool reset)
{
    int err = flight_send_empty(e, PLAN_COUNTERS | (reset ? PLAN_RESET_COUNTERS : 0));
    if (err < 0)
        return err;
    engine_own_counters(e, &counters[0], reset);
    for (uint32_t r = 1; !err && r < e->n_ranks; r++)
        err = comm_receive(e->control, &counters[r], sizeof *counters, (int)r, TAG_COUNTERS);
    return err;
}

int engine_probe(struct engine *e)
{
    int err = flight_send_empty(e, PLAN_PROBE);
    return err < 0 ? err : engine_own_probe(e);
}

/* ---- planning ---- */
static void add_row(struct group_plan *to, struct sequence *s, uint32_t token, uint32_t position)
{
    struct plan *p = to->plan;
    to->row_sequence[p->header.n_rows] = s;
    p->rows[p->header.n_rows] = (int32_t)token;
    p->row[p->header.n_rows++] = (struct plan_row){ .params = s->request.params, .position = position + 1 };
}

/* Puts the next n tokens of s into the plan. */
static void add_tokens(const struct engine *e, struct group_plan *to, struct sequence *s, uint32_t n)
{
    struct plan *p = to->plan;
    struct plan_header *h = &p->header;
    to->sequence[h->n_sequences] = s;
    struct step_sequence *q = &p->sequences[h->n_sequences++];
    *q = (struct step_sequence){ .first_token = h->n_tokens, .n_tokens = n, .position = s->n_planned };
    for (uint32_t g = 0; g < e->limits.n_cache_groups; g++)
        q->table[g] = (struct step_table){ cache_blocks_table(&e->limits.cache[g], s->n_planned + n), s->table[g] };
    for (uint32_t i = 0; i < n; i++) {
        uint32_t position = s->n_planned + i;
        p->tokens[h->n_tokens] = s->tokens[position];
        p->positions[h->n_tokens] = (int32_t)position;
        if (s->request.all_rows || position + 1 >= s->request.n_tokens)
            add_row(to, s, h->n_tokens, position);
        h->n_tokens++;
    }
    s->n_planned += n;
    s->n_stored = MAX(s->n_stored, s->n_planned);
    s->n_in_flight++;
}

/* Decode tokens first, an even part of the running sequences in each plan of a pipeline; then chunks of prompts, dealt evenly
 * among the sequences that wait. */
static void make_plan(const struct engine *e, const struct group *group, struct group_plan *to)
{
    uint32_t budget = e->limits.n_tokens, n_running = 0, n_waiting = 0, n_stages = e->mesh.size[AXIS_PP];
    plan_clear(to->plan);
    to->plan->header.flags = e->options.full_logits ? PLAN_FULL_LOGITS : 0;
    for (struct sequence *s = group->sequences; s; s = s->next) {
        n_running += sequence_is_running(s);
        n_waiting += sequence_wants_prefill(s);
    }
    uint32_t share = DIV_UP(n_running, n_stages);
    for (struct sequence *s = group->sequences; s && share; s = s->next)
        if (sequence_wants_decode(s)) {
            add_tokens(e, to, s, 1);
            budget--;
            share--;
        }
    for (struct sequence *s = group->sequences; s && budget; s = s->next)
        if (sequence_wants_prefill(s)) {
            uint32_t n = MIN(MIN(DIV_UP(budget, n_waiting), e->options.chunk), s->request.n_tokens - s->n_planned);
            add_tokens(e, to, s, n);
            budget -= n;
            n_waiting--;
        }
}

/* False when no group has a token to compute. */
static bool make_plans(struct engine *e, struct flight *f)
{
    uint32_t n_all_tokens = 0;
    for (uint32_t g = 0; g < e->n_groups; g++) {
        make_plan(e, &e->group[g], &f->group[g]);
        n_all_tokens += f->group[g].plan->header.n_tokens;
    }
    for (uint32_t g = 0; g < e->n_groups; g++)
        f->group[g].plan->header.n_all_tokens = n_all_tokens;
    f->own_result.size = 0;
    return n_all_tokens > 0;
}

static int launch(struct engine *e, struct flight *f)
{
    int err = flight_send(e, f);
    e->n_in_flight++;
    return err < 0 ? err : engine_run_plan(e, f->group[0].plan, &f->own_result);
}

int engine_step(struct engine *e)
{
    if (e->has_failed)
        return error_set(ERR_PEER, "the replica has failed before");
    while (e->n_in_flight < e->n_flights) {
        struct flight *f = flight_next(e);
        if (!make_plans(e, f))
            break;
        int err = launch(e, f);
        if (err < 0)
            return flight_fail(e, err);
    }
    if (!e->n_in_flight)
        return 0;
    int err = flight_collect_oldest(e);
    return err < 0 ? err : 1;
}
