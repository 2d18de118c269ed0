/* test_schedule.c: who is let in, in which order; who is pushed out where there is too little room; what a step takes in. */
#include "tests/cluster/schedule.h"

#include <unistd.h>

/* ---- too little room ---- */
/* The cache group that keeps all positions. */
static uint32_t full_group(const struct engine *e)
{
    uint32_t g = 0;
    while (e->limits.cache[g].window)
        g++;
    return g;
}

static void test_never_fits(struct engine *e)
{
    struct sequence *s;
    struct sequence_request request = { .tokens = prompt[4], .n_tokens = 100, .n_new = 50, .params = { .top_p = 1 } };
    uint32_t full = full_group(e), n_all = e->limits.cache[full].n_all, n;
    check_begin("KV-06: a prompt that never fits is refused with both sizes, an answer that does not is cut");
    e->limits.cache[full].n_all = 6;
    check_int(engine_add(e, &s, &request), ERR_USAGE);
    check(strstr(error_text(), "100") && strstr(error_text(), "96"));
    e->limits.cache[full].n_all = n_all;

    /* A neighbour's long prompt is pushed out on the way, and comes back. */
    int32_t want[50], first[50];
    answer_alone(&request, want);
    request.tokens = prompt[5];
    request.n_tokens = 60;
    answer_alone(&request, first);
    struct sequence *a = world_add(e, &request);
    request.tokens = prompt[4];
    request.n_tokens = 100;
    struct sequence *b = world_add(e, &request);
    world_finish(e, a);
    world_finish(e, b);
    check_answer(a, first, 50);
    check_answer(b, want, 50);
    engine_remove(e, a);
    engine_remove(e, b);

    /* The pools are made smaller than what one sequence comes to. */
    uint32_t taken[2][N_BLOCKS], n_taken[2] = { 0 };
    for (uint32_t g = 0; g < e->n_groups; g++) {
        forget_all(e, g);
        while (block_pool_available(&e->group[g].pool[full]) > 8)
            taken[g][n_taken[g]++] = block_pool_take(&e->group[g].pool[full], &n);
    }
    s = world_add(e, &request);
    for (uint32_t steps = 0; !sequence_is_done(s) && steps < 200; steps++)
        check(engine_step(e) >= 0);
    sequence_new_tokens(s, &n);
    check_int(sequence_end(s), SEQUENCE_END_FULL);
    check_int(n, 8 * 16 - 100 + 1);
    check_answer(s, want, 50);
    engine_remove(e, s);
    for (uint32_t g = 0; g < e->n_groups; g++)
        while (n_taken[g])
            block_pool_let_go(&e->group[g].pool[full], taken[g][--n_taken[g]]);
    check_idle(e);
}

/* Two that each come to more than half of the pool: the first ends before the second goes on. */
static void test_thrash(struct engine *e)
{
    struct sequence *s[2];
    struct engine_load before, after;
    uint64_t steps_alone = 0;
    if (e->n_groups > 1)
        return;
    check_begin("KV-07: two that do not fit together: bounded steps, one after the other");
    empty_caches(e);
    struct sequence_request request = { .n_tokens = 90, .n_new = 70, .params = { .top_p = 1 } };
    for (uint32_t i = 0; i < 2; i++) {
        request.tokens = prompt[6 + i];
        engine_load(e, &before);
        s[i] = world_add(e, &request);
        world_finish(e, s[i]);
        engine_load(e, &after);
        steps_alone += after.steps - before.steps;
        engine_remove(e, s[i]);
    }
    empty_caches(e);
    engine_load(e, &before);
    for (uint32_t i = 0; i < 2; i++) {
        request.tokens = prompt[6 + i];
        s[i] = world_add(e, &request);
    }
    while (!sequence_is_done(s[0])) {
        world_step(e);
        check(sequence_n_preemptions(s[1]) <= 1);
    }
    check_int(sequence_n_preemptions(s[0]), 0);
    check(!sequence_is_done(s[1]));
    world_finish(e, s[1]);
    engine_load(e, &after);
    check_int(sequence_n_preemptions(s[1]), 1);
    check_int(after.preemptions - before.preemptions, 1);
    check(after.steps - before.steps <= 2 * steps_alone);
    for (uint32_t i = 0; i < 2; i++)
        engine_remove(e, s[i]);
    check_idle(e);
}

/* Also where it would fit again at once. */
static void test_pushed_out(struct engine *e)
{
    struct sequence *s[3];
    if (e->n_groups > 1)
        return;
    check_begin("who was pushed out comes back when another has ended, and before all others");
    for (uint32_t i = 0; i < 3; i++) {
        struct sequence_request request = { .tokens = prompt[6 + i], .n_tokens = 20, .n_new = 30, .params = { .top_p = 1 } };
        s[i] = world_add(e, &request);
        if (i == 1) {
            world_step(e);
            sequence_preempt(e, s[1]);
        }
    }
    for (uint32_t i = 0; i < 5; i++)
        world_step(e);
    check(s[0]->state == SEQUENCE_RUNNING && s[1]->state == SEQUENCE_WAITING && s[2]->state == SEQUENCE_WAITING);
    sequence_stop(s[0]);
    world_step(e);
    check(s[1]->state == SEQUENCE_RUNNING && s[2]->state == SEQUENCE_RUNNING);
    check(s[1]->next == s[2]);
    for (uint32_t i = 0; i < 3; i++)
        engine_remove(e, s[i]);
    check_idle(e);
}

/* ---- whose turn it is ---- */
/* Long ones take all places; of those that wait, in which order are they let in?  A letter is a client; by letter and number. */
static void check_order(struct engine *e, const char *name, const struct sequence_request *requests, uint32_t n, const uint32_t *want)
{
    struct sequence *busy[16], *s[16];
    uint32_t n_busy = e->limits.n_sequences * e->n_groups, n_in = 0, order[16] = { 0 };
    bool was_in[16] = { false };
    check_begin("%s", name);
    for (uint32_t i = 0; i < n_busy; i++) {
        struct sequence_request request = { .tokens = prompt[8], .n_tokens = 3, .n_new = 30, .params = { .top_p = 1 }, .client = 99 };
        busy[i] = world_add(e, &request);
    }
    world_step(e);
    for (uint32_t i = 0; i < n; i++)
        s[i] = world_add(e, &requests[i]);
    for (uint32_t steps = 0; n_in < n && steps < 1000; steps++) {
        if (steps < n_busy * 3 && steps % 3 == 0)               /* one place after the other */
            sequence_stop(busy[steps / 3]);
        world_step(e);
        for (uint32_t i = 0; i < n; i++)
            if (!was_in[i] && s[i]->state != SEQUENCE_WAITING) {
                order[n_in++] = i;
                was_in[i] = true;
            }
    }
    check_int(n_in, n);
    for (uint32_t i = 0; i < n; i++)
        check_int(order[i], want[i]);
    for (uint32_t i = 0; i < n_busy; i++)
        engine_remove(e, busy[i]);
    for (uint32_t i = 0; i < n; i++)
        engine_remove(e, s[i]);
    check_idle(e);
}

static void test_order(struct engine *e)
{
    struct sequence_request r[4];
    if (e->n_groups > 1 || e->n_flights > 1)
        return;
    for (uint32_t i = 0; i < 4; i++)
        r[i] = (struct sequence_request){ .tokens = prompt[10 + i], .n_tokens = 20, .n_new = 20, .params = { .top_p = 1 }, .client = 1 };
    check_order(e, "by arrival", r, 4, (const uint32_t[]){ 0, 1, 2, 3 });
    r[2].client = 2;
    check_order(e, "a client's first goes before another's second", r, 4, (const uint32_t[]){ 0, 2, 1, 3 });
    r[0].priority = r[2].priority = 5;
    r[3].priority = -1;
    check_order(e, "priority counts within a client", r, 4, (const uint32_t[]){ 3, 2, 1, 0 });
    e->counted.steps += QUEUE_AGED;             /* all that come now have waited for long when they are looked at */
    for (uint32_t i = 0; i < 4; i++)
        r[i].priority = (int32_t)(4 - i);
    check_order(e, "the lowest of one client first", r, 2, (const uint32_t[]){ 1, 0 });
}

/* ---- a pipeline ---- */
/* While one stage computes a part of the sequences the others have parts of their own. */
static void test_flights(struct engine *e)
{
    struct sequence *s[8];
    int32_t want[8][MOST_NEW];
    uint32_t most = 0, n_stages = e->mesh.size[AXIS_PP];
    if (n_stages == 1)
        return;
    check_begin("a pipeline is kept full");
    for (uint32_t i = 0; i < 8; i++) {
        struct sequence_request request = request_of(30 + i);
        answer_alone(&request, want[i]);
        s[i] = world_add(e, &request);
    }
    while (world_step(e))               /* has taken one of the ring back */
        most = MAX(most, e->n_in_flight);
    check_int(most, n_stages);
    for (uint32_t i = 0; i < 8; i++) {
        check_answer(s[i], want[i], n_new[30 + i]);
        engine_remove(e, s[i]);
    }
    check_idle(e);
}

/* ---- what a step takes in ---- */
/* A limit that no step keeps: each has as little in it as may be. */
static void test_short_steps(struct engine *e)
{
    struct sequence *s[4];
    int32_t want[4][MOST_NEW];
    check_begin("steps that may take no time have one token of a prompt, and everybody gets on");
    empty_caches(e);
    e->options.step_ms = 1;
    e->pace = (struct pace){ .per_s = { 0, 1, 1 }, .n_steps = 10 };
    for (uint32_t i = 0; i < 4; i++) {
        struct sequence_request request = request_of(20 + i);
        answer_alone(&request, want[i]);
        s[i] = world_add(e, &request);
    }
    while (world_step(e)) {
        const struct flight *f = &e->flight[(e->first_flight + e->n_flights - 1) % e->n_flights];
        check(f->n_prefill <= 1 && f->n_decode <= 1);
        e->pace = (struct pace){ .per_s = { 0, 1, 1 }, .n_steps = 10 };
    }
    check_int(engine_predicted_us(e), 1e6 / 32);
    for (uint32_t i = 0; i < 4; i++) {
        check_answer(s[i], want[i], n_new[20 + i]);
        engine_remove(e, s[i]);
    }
    e->options.step_ms = 0;
    e->pace = (struct pace){ 0 };
    check_idle(e);
}

/* One token a step: everybody gets on, not only who stands first. */
static void test_turns(struct engine *e)
{
    struct sequence *s[4];
    if (e->n_ranks > 1)
        return;
    check_begin("where a step has no room for all, tokens go round");
    e->options.step_ms = 1;
    for (uint32_t i = 0; i < 4; i++) {
        struct sequence_request request = { .tokens = prompt[30 + i], .n_tokens = 3, .n_new = 40, .params = { .top_p = 1 } };
        s[i] = world_add(e, &request);
    }
    for (uint32_t steps = 0; steps < 60; steps++) {
        e->pace = (struct pace){ .per_s = { 0, 1, 1 }, .n_steps = 10 };
        world_step(e);
    }
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t n;
        sequence_new_tokens(s[i], &n);
        check(n >= 8 && n < 30);
        engine_remove(e, s[i]);
    }
    e->options.step_ms = 0;
    e->pace = (struct pace){ 0 };
    check_idle(e);
}

/* ---- nothing to do ---- */
/* Of all threads of a process, in ticks of the system. */
static long cpu_ticks(int pid)
{
    char path[64], text[1024];
    unsigned long user = 0, system = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (!check(file && fgets(text, sizeof text, file) && strrchr(text, ')')))
        return 0;
    fclose(file);
    check_int(sscanf(strrchr(text, ')') + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system), 2);
    return (long)(user + system);
}

/* ---- what is cancelled ---- */
static bool holds_blocks(const struct engine *e, const struct sequence *s)
{
    for (uint32_t g = 0; g < e->limits.n_cache_groups; g++)
        for (uint32_t i = 0; i < e->limits.cache[g].n_sequence; i++)
            if (s->table[g][i] != NO_BLOCK)
                return true;
    return false;
}

/* From its first chunk on, to the middle of its answer.  A block's id is the same on all ranks, which keep no tables: what no table of the
 * leader names, as world_step() checks, is free everywhere. */
static void test_cancelled(struct engine *e)
{
    struct sequence_request request = { .tokens = prompt[6], .n_tokens = 90, .n_new = 60, .params = { .top_p = 1 } };
    check_begin("who is cancelled has given its blocks back within two steps, beside one that goes on");
    empty_caches(e);
    for (uint32_t n_steps = 1; n_steps < 40; n_steps += n_steps < 8 ? 1 : 9) {
        struct sequence_request beside = { .tokens = prompt[7], .n_tokens = 20, .n_new = 60, .params = { .top_p = 1 } };
        struct sequence *s = world_add(e, &request), *other = world_add(e, &beside);
        for (uint32_t i = 0; i < n_steps; i++)
            world_step(e);
        check(holds_blocks(e, s));
        sequence_stop(s);
        for (uint32_t i = 0; i < 2 && holds_blocks(e, s); i++)
            world_step(e);
        check(!holds_blocks(e, s) && sequence_end(s) == SEQUENCE_END_CANCELLED);
        engine_remove(e, s);
        engine_remove(e, other);
        engine_check(e);
    }
    check_idle(e);
}

/* A core in a hundred is wanted; ticks are coarse and the machine is shared. */
static void test_idle(struct engine *e)
{
    enum { N_BEATS = 6 };
    int pid = engine_processes(e)[e->n_ranks - 1].pid;
    check_begin("between beats a rank costs next to nothing");
    usleep(200000);
    long before = cpu_ticks(pid);
    for (int i = 0; i < N_BEATS; i++) {
        check_int(engine_beat(e), 0);
        usleep(500000);
    }
    long ticks = cpu_ticks(pid) - before;
    check(ticks * 100 <= 3 * (N_BEATS / 2) * sysconf(_SC_CLK_TCK));
}

static void lead(struct engine *e)
{
    test_never_fits(e);
    test_thrash(e);
    test_pushed_out(e);
    test_order(e);
    test_flights(e);
    test_short_steps(e);
    test_turns(e);
    test_cancelled(e);
    if (e->n_ranks > 1)
        test_idle(e);
    close_lone();
}

int main(int argc, char **argv)
{
    static const struct world_test test = { schedule_rows, COUNT_OF(schedule_rows), N_ALONE, engine_options, open_lone, lead };
    (void)argc;
    return world_main(&test, argv[0]);
}
