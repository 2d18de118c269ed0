/* leader.c: the leader's steps, and what else it asks of all ranks. */
#include "engine/engine_impl.h"

#include "base/base.h"
#include "base/error.h"
#include "base/threads.h"

#include <stdlib.h>

#define ASK_S 1.0               /* between two steps that ask how the ranks are */

/* ---- open and close ---- */
/* Every node of the prefix cache has a block or is before one that has, but for what sequences have begun on. */
static int open_group(struct engine *e, struct group *group)
{
    uint32_t n_nodes = e->limits.n_sequences * (1 + DIV_UP(e->options.context, BLOCK_TOKENS));
    int err = 0;
    for (uint32_t g = 0; !err && g < e->limits.n_cache_groups; g++) {
        err = block_pool_init(&group->pool[g], e->limits.cache[g].n_all);
        n_nodes += e->limits.cache[g].n_all;
    }
    return err < 0 ? err : prefix_init(&group->prefix, n_nodes, e->limits.n_cache_groups, e->digest);
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
    e->candidates = calloc((size_t)e->mesh.size[AXIS_TP] * SAMPLE_MAX_LIST, sizeof *e->candidates);
    e->largest = calloc((size_t)e->mesh.size[AXIS_TP] * SAMPLE_MAX_TOP, sizeof *e->largest);
    e->time = calloc(e->n_ranks, sizeof *e->time);
    if (!e->time || !e->group || !e->flight || !e->full_row || !e->incoming || !e->taken || !e->candidates || !e->largest)
        return error_set(ERR_NO_MEMORY, "no memory for the leader");
    int err = 0;
    for (uint32_t i = 0; i < e->mesh.size[AXIS_TP]; i++) {
        buffer_reserve(&e->incoming[i], result_max_bytes(e));
        err = e->incoming[i].failed ? error_set(ERR_NO_MEMORY, "no memory for results") : err;
    }
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
    prefix_release(&group->prefix);
    for (uint32_t g = 0; g < e->limits.n_cache_groups; g++)
        block_pool_release(&group->pool[g]);
}

void leader_close(struct engine *e)
{
    if (e->flight && e->n_ranks > 1 && !e->has_failed)
        flight_send_empty(e, PLAN_STOP);
    while (e->queue.first)
        engine_remove(e, e->queue.first);
    for (uint32_t i = 0; e->group && i < e->n_groups; i++)
        close_group(e, &e->group[i]);
    while (e->done)
        engine_remove(e, e->done);
    queue_release(&e->queue);
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
    free(e->largest);
    free(e->time);
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

/* An idle rank takes its time, so this one naps. */
int leader_take_beats(struct engine *e)
{
    size_t n_bytes;
    int err = 0;
    e->time[0] = engine_own_time(e);
    for (uint32_t r = 1; !err && r < e->n_ranks; r++)
        if ((err = comm_probe(e->control, (int)r, TAG_BEAT, true, -1, &n_bytes, NULL)) >= 0)
            err = comm_receive(e->control, &e->time[r], sizeof *e->time, (int)r, TAG_BEAT);
    return err;
}

int engine_beat(struct engine *e)
{
    int err = flight_send_empty(e, PLAN_BEAT);
    return err < 0 ? err : leader_take_beats(e);
}

/* ---- steps ---- */
/* While there are steps, one a second asks how the ranks are. */
static void ask_for_beat(struct engine *e, struct flight *f)
{
    if (f->start_s < e->next_beat_s)
        return;
    for (uint32_t g = 0; g < e->n_groups; g++)
        f->group[g].plan->header.flags |= PLAN_BEAT;
    e->next_beat_s = f->start_s + ASK_S;
}

static int launch(struct engine *e, struct flight *f)
{
    f->start_s = seconds_now();
    ask_for_beat(e, f);
    int err = flight_send(e, f);
    if (!err)
        err = flight_send_late(e, f);
    e->n_in_flight++;
    return err < 0 ? err : engine_run_plan(e, f->group[0].plan, &f->group[0].late, &f->own_result);
}

static void count_step(struct engine_load *counted, uint32_t n_tokens)
{
    unsigned size = 0;
    while (size + 1 < STEP_SIZES && n_tokens > 1u << size)
        size++;
    counted->steps++;
    counted->steps_of_size[size]++;
    counted->step_tokens += n_tokens;
}

int engine_step(struct engine *e)
{
    if (e->has_failed)
        return error_set(ERR_PEER, "the replica has failed before");
    while (e->n_in_flight < e->n_flights) {
        struct flight *f = flight_next(e);
        if (!schedule_step(e, f))
            break;
        count_step(&e->counted, f->group[0].plan->header.n_all_tokens);
        int err = launch(e, f);
        if (err < 0)
            return flight_fail(e, err);
    }
    if (!e->n_in_flight)
        return 0;
    int err = flight_collect_oldest(e);
    return err < 0 ? err : 1;
}

void engine_load(const struct engine *e, struct engine_load *load)
{
    *load = e->counted;
    load->waiting = e->queue.n;
    for (uint32_t i = 0; i < e->n_groups; i++) {
        load->running += e->group[i].n_sequences;
        for (uint32_t g = 0; g < e->limits.n_cache_groups; g++) {
            const struct block_pool *pool = &e->group[i].pool[g];
            uint64_t n_free = block_pool_available(pool);
            if (!load->n_blocks || n_free * load->n_blocks < (uint64_t)load->free_blocks * pool->n_blocks) {
                load->free_blocks = (uint32_t)n_free;
                load->n_blocks = pool->n_blocks;
            }
        }
    }
}

uint32_t engine_predicted_us(const struct engine *e)
{
    double most_s = 0, limit_s = schedule_limit_s(e);
    for (uint32_t i = 0; i < e->n_groups && e->pace.n_steps; i++) {
        uint32_t n_decode = pace_decode(&e->pace, e->group[i].n_sequences, limit_s);
        uint32_t n_prefill = pace_prefill(&e->pace, e->limits.n_tokens - n_decode, n_decode, limit_s);
        most_s = MAX(most_s, pace_predict(&e->pace, n_prefill, n_decode));
    }
    return (uint32_t)MIN(most_s * 1e6, 3e9);
}

void engine_check(const struct engine *e)
{
    queue_check(&e->queue);
    for (uint32_t i = 0; i < e->n_groups; i++) {
        uint32_t n = 0;
        for (const struct sequence *s = e->group[i].sequences; s; s = s->next, n++)
            assert(s->state == SEQUENCE_RUNNING && s->group == i);
        assert(n == e->group[i].n_sequences && n <= e->limits.n_sequences);
        tables_check(e, &e->group[i]);
    }
    for (const struct sequence *s = e->done; s; s = s->next)
        assert(s->state == SEQUENCE_DONE && !s->client);
}
