/* test_schedule.c: whoever waits, shares blocks, is pushed out or is cancelled: every answer is what the request says alone, on one rank,
 * with a cache that nobody shares.  All that is always true is looked at after every step. */
#include "tests/cluster/world.h"

#include "base/base.h"
#include "base/random.h"

#include <unistd.h>

static const struct world_row rows[] = {
    { "tp=1", "tiny-mixed", false, false },             /* the first N_ALONE without MPI */
    { "tp=1", "tiny-gemma3", false, false },            /* windows */
    { "tp=2", "tiny-mixed", false, false },
    { "pp=2", "tiny-gemma3", false, false },
    { "dp=2,pp=2", "tiny-mixed", false, false },
    { "dp=2,ep=2", "tiny-qwen3moe", false, false },
};

enum { N_ALONE = 2, N_REQUESTS = 200, CONTEXT = 160, N_BLOCKS = 14, MOST_NEW = 40, N_AT_ONCE = 12 };

static int32_t prompt[N_REQUESTS][CONTEXT], answer[N_REQUESTS][MOST_NEW];
static uint32_t n_prompt[N_REQUESTS], n_new[N_REQUESTS];

static struct engine_options engine_options(const struct world_row *row, const char *layout)
{
    struct engine_options o = { .n_threads = 1, .chunk = 24, .context = CONTEXT, .max_sequences = 6, .int8_activations = true,
                                .cache_type = DTYPE_F16, .cache_blocks = N_BLOCKS };
    (void)row;
    check_int(mesh_parse(&o.mesh, layout), 0);
    return o;
}

static struct sequence_request request_of(uint32_t r)
{
    return (struct sequence_request){ .tokens = prompt[r], .n_tokens = n_prompt[r], .n_new = n_new[r], .client = r % 3, .priority = (int32_t)r % 2,
                                      .params = { .temperature = r % 4 ? 0.9f : 0, .top_p = 1, .seed = r } };
}

/* A few texts, of which most prompts share a beginning, and part from it anywhere. */
static void make_requests(void)
{
    for (uint32_t r = 0; r < N_REQUESTS; r++) {
        uint32_t n_shared = (uint32_t)(random_u64(r, 0) % 80);
        n_prompt[r] = 1 + (uint32_t)(random_u64(r, 1) % 100);
        n_new[r] = (uint32_t)(random_u64(r, 2) % (MOST_NEW + 1));
        for (uint32_t i = 0; i < CONTEXT; i++)
            prompt[r][i] = (int32_t)(i < n_shared ? random_u64(1000 + r % 3, i) % 300 : random_u64(r, 10 + i) % 300);
    }
}

static void answer_alone(struct engine *e, const struct sequence_request *request, int32_t *to)
{
    struct sequence *s;
    uint32_t n;
    if (!check_int(engine_add(e, &s, request), 0))
        return;
    while (world_step(e))
        ;
    const int32_t *tokens = sequence_new_tokens(s, &n);
    check_int(sequence_end(s), SEQUENCE_LENGTH);
    if (check_int(n, request->n_new))
        memcpy(to, tokens, n * sizeof *to);
    engine_remove(e, s);
}

/* On this rank alone, and with nothing shared. */
static struct engine *lone;
static struct comm *self_comm;

static void find_answers(const struct model_file *file, const struct world_row *row)
{
    struct engine_options o = engine_options(row, "tp=1");
    o.max_sequences = 1;
    o.cache_blocks = 0;
    o.no_prefix_cache = true;
    make_requests();
    check_begin("answers of one rank");
    check_int(comm_open_self(&self_comm), 0);
    if (!check_int(engine_open(&lone, file, &o, self_comm), 0))
        return;
    for (uint32_t r = 0; r < N_REQUESTS; r++) {
        struct sequence_request request = request_of(r);
        answer_alone(lone, &request, answer[r]);
    }
}

/* ---- helpers of what follows ---- */
/* Nothing runs, nothing waits, no block is lost. */
static void check_idle(struct engine *e)
{
    struct engine_load load;
    check_int(engine_beat(e), 0);
    check(!world_step(e));
    engine_load(e, &load);
    check_int(load.running + load.waiting, 0);
    for (uint32_t g = 0; g < e->n_groups; g++)
        for (uint32_t c = 0; c < e->limits.n_cache_groups; c++)
            check_int(block_pool_available(&e->group[g].pool[c]), e->limits.cache[c].n_all);
}

/* Nothing runs: nothing is cached any more. */
static void forget_all(struct engine *e, uint32_t g)
{
    for (uint32_t c = 0; c < e->limits.n_cache_groups; c++) {
        struct block_pool *pool = &e->group[g].pool[c];
        while (pool->oldest != NO_BLOCK) {
            uint32_t block = pool->oldest, node = pool->block[block].node;
            block_pool_forget(pool, block);
            prefix_drop_block(&e->group[g].prefix, node, c);
        }
    }
}

static void empty_caches(struct engine *e)
{
    for (uint32_t g = 0; g < e->n_groups; g++)
        forget_all(e, g);
    engine_check(e);
}

static void check_answer(const struct sequence *s, const int32_t *want, uint32_t n_want)
{
    uint32_t n;
    const int32_t *tokens = sequence_new_tokens(s, &n);
    check(sequence_is_done(s));
    if (sequence_end(s) == SEQUENCE_FULL)
        check(n < n_want);
    else if (!check_int(n, n_want))
        return;
    if (n)
        check_bytes("the answer", tokens, want, n * sizeof *tokens);
}

/* ---- all at once ---- */
struct stress {
    struct sequence *s[N_AT_ONCE];
    uint32_t which[N_AT_ONCE], n_begun, n_full, n_cancelled, n_answered;
};

static void come(struct engine *e, struct stress *t, uint32_t i)
{
    struct sequence_request request = request_of(t->n_begun);
    t->s[i] = world_add(e, &request);
    t->which[i] = t->n_begun++;
}

static void go(struct engine *e, struct stress *t, uint32_t i)
{
    uint32_t r = t->which[i];
    if (sequence_is_done(t->s[i])) {
        check_answer(t->s[i], answer[r], n_new[r]);
        t->n_full += sequence_end(t->s[i]) == SEQUENCE_FULL;
        t->n_answered++;
    } else {
        t->n_cancelled++;
    }
    engine_remove(e, t->s[i]);
    t->s[i] = NULL;
}

/* Anybody that runs, in flight or not. */
static void push_one_out(struct engine *e, uint64_t round)
{
    struct group *group = &e->group[random_u64(round, 7) % e->n_groups];
    uint32_t n = (uint32_t)(random_u64(round, 8) % (group->n_sequences + 1));
    struct sequence *s = group->sequences;
    while (s && n--)
        s = s->next;
    if (s && group->n_sequences > 1)
        sequence_push_out(e, s);
}

static void test_stress(struct engine *e, const char *name, uint32_t push_every)
{
    struct stress t = { .n_begun = 0 };
    struct engine_load load;
    check_begin("%s", name);
    for (uint64_t round = 0; t.n_answered + t.n_cancelled < N_REQUESTS; round++) {
        for (uint32_t i = 0; i < N_AT_ONCE; i++) {
            if (!t.s[i] && t.n_begun < N_REQUESTS && random_u64(round, i) % 3 == 0)
                come(e, &t, i);
            else if (t.s[i] && (sequence_is_done(t.s[i]) || random_u64(round, 100 + i) % 400 == 0))
                go(e, &t, i);
        }
        if (push_every && round % push_every == 0)
            push_one_out(e, round);
        world_step(e);
    }
    engine_load(e, &load);
    check(t.n_cancelled > 5 && t.n_answered > 60);
    check(load.prefix_hits > 0 && load.preemptions > 0);
    check_idle(e);
}

static void test_collisions(struct engine *e)
{
    empty_caches(e);
    for (uint32_t g = 0; g < e->n_groups; g++)
        e->group[g].prefix.hash_mask = 0;
    test_stress(e, "KV-03: all hashes are one", 0);
}

/* ---- what is shared ---- */
/* Text A with ten tokens behind it, then A alone; then lengths around a block. */
static void test_prefixes(struct engine *e)
{
    static const uint32_t lengths[] = { 50, 40, 48, 48, 48, 32, 33, 1, 1, 1, 17, 16, 16, 64, 64 };
    int32_t want[8];
    check_begin("KV-01, KV-02: beginnings of one text, whole blocks and not, again and again");
    empty_caches(e);
    for (uint32_t i = 0; i < COUNT_OF(lengths); i++) {
        struct sequence_request request = { .tokens = prompt[0], .n_tokens = lengths[i], .n_new = 8, .params = { .top_p = 1 } };
        answer_alone(lone, &request, want);
        struct sequence *s = world_add(e, &request);
        world_finish(e, s);
        check_answer(s, want, 8);
        check(sequence_n_cached(s) < lengths[i]);
        if (i == 1 && e->n_groups == 1)
            check_int(sequence_n_cached(s), 39);        /* two blocks, and a copy of 7 of the third */
        engine_remove(e, s);
    }
    check_idle(e);
}

static void test_salts(struct engine *e)
{
    static const struct { const char *salt; uint32_t n; bool hits; } salts[] = {
        { NULL, 0, false }, { NULL, 0, true }, { "", 0, false }, { "", 0, true }, { "ab", 2, false }, { "a", 1, false }, { "ab", 2, true },
        { "a\0c", 3, false }, { "a\0d", 3, false }, { "a\0c", 3, true }, { NULL, 0, true },
    };
    check_begin("KV-04: only equal salts share, none is not an empty one");
    empty_caches(e);
    for (uint32_t i = 0; i < COUNT_OF(salts); i++) {
        struct sequence_request request = { .tokens = prompt[1], .n_tokens = 20, .n_new = 1, .params = { .top_p = 1 },
                                            .salt = { salts[i].salt, salts[i].n } };
        struct sequence *s = world_add(e, &request);
        world_finish(e, s);
        if (e->n_groups == 1)
            check_int(sequence_n_cached(s), salts[i].hits ? 16 : 0);
        engine_remove(e, s);
    }
    check_idle(e);
}

/* Choices of one prompt: what the first has computed, in part of a block too, the others begin with. */
static void test_choices(struct engine *e)
{
    struct sequence *s[3];
    int32_t want[3][12];
    check_begin("choices of one prompt go on from one computation of it");
    struct engine_load before, after;
    empty_caches(e);
    engine_load(e, &before);
    for (uint32_t i = 0; i < 3; i++) {
        struct sequence_request request = { .tokens = prompt[2], .n_tokens = 42, .n_new = 12,
                                            .params = { .temperature = 1, .top_p = 1, .seed = 5, .choice = i } };
        answer_alone(lone, &request, want[i]);
        s[i] = world_add(e, &request);
    }
    for (uint32_t i = 0; i < 3; i++) {
        world_finish(e, s[i]);
        check_answer(s[i], want[i], 12);
        if (e->n_groups == 1)
            check_int(sequence_n_cached(s[i]), i ? 41 : 0);
    }
    check(memcmp(want[0], want[1], sizeof want[0]));
    engine_load(e, &after);
    check_int(after.prompt_tokens - before.prompt_tokens, 3 * 42);
    check_int(after.prefix_queries - before.prefix_queries, 3 * 42);
    check_int(after.prefix_hits - before.prefix_hits, sequence_n_cached(s[0]) + sequence_n_cached(s[1]) + sequence_n_cached(s[2]));
    check_int(after.generated_tokens - before.generated_tokens, 3 * 12);
    for (uint32_t i = 0; i < 3; i++)
        engine_remove(e, s[i]);
    check_idle(e);
}

/* One is let in with a copy to come; another, which stands before it, must not take its part from there. */
static void test_copy_to_come(struct engine *e)
{
    static int32_t text[3][90];
    int32_t want[2][12];
    if (e->n_ranks > 1)
        return;
    check_begin("what is to be copied is not there yet");
    empty_caches(e);
    for (uint32_t i = 0; i < 3; i++) {
        memcpy(text[i], prompt[3], 42 * sizeof **text);
        text[i][41] = (int32_t)i;
    }
    struct sequence_request request = { .n_tokens = 42, .n_new = 12, .params = { .top_p = 1 }, .client = 1, .priority = 5 };
    struct sequence *s[3], *busy;
    for (uint32_t i = 1; i < 3; i++) {
        request.tokens = text[i];
        answer_alone(lone, &request, want[i - 1]);
    }
    request.tokens = text[0];
    s[0] = world_add(e, &request);
    for (uint32_t i = 0; i < 3; i++)
        world_step(e);
    struct sequence_request other = { .tokens = prompt[4], .n_tokens = 90, .n_new = 1, .params = { .top_p = 1 }, .client = 2 };
    busy = world_add(e, &other);
    request.tokens = text[1];
    s[1] = world_add(e, &request);
    world_step(e);
    check(s[1]->is_fresh && s[1]->has_copy && s[1]->n_planned == 41);
    engine_remove(e, s[0]);
    request.tokens = text[2];
    request.priority = 0;
    s[2] = world_add(e, &request);
    world_finish(e, s[1]);
    world_finish(e, s[2]);
    world_finish(e, busy);
    for (uint32_t i = 1; i < 3; i++) {
        check_answer(s[i], want[i - 1], 12);
        engine_remove(e, s[i]);
    }
    engine_remove(e, busy);
    check_idle(e);
}

/* In the middle of a block of the prompt, at every step of the way. */
static void test_cancelled_prefill(struct engine *e)
{
    int32_t want[8];
    struct sequence_request request = { .tokens = prompt[3], .n_tokens = 90, .n_new = 8, .params = { .top_p = 1 } };
    answer_alone(lone, &request, want);
    for (uint32_t n_steps = 0; n_steps < 8; n_steps++) {
        check_begin("KV-11: cancelled after %u steps, then asked for again", n_steps);
        empty_caches(e);
        struct sequence *s = world_add(e, &request);
        for (uint32_t i = 0; i < n_steps; i++)
            world_step(e);
        engine_remove(e, s);
        for (uint32_t g = 0; g < e->n_groups; g++)
            for (uint32_t c = 0; c < e->limits.n_cache_groups; c++)
                check_int(block_pool_available(&e->group[g].pool[c]), e->limits.cache[c].n_all);
        s = world_add(e, &request);
        world_finish(e, s);
        check(sequence_n_cached(s) <= n_steps * 24 + 16 * (e->n_groups > 1));
        check_answer(s, want, 8);
        engine_remove(e, s);
        check_idle(e);
    }
}

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
    answer_alone(lone, &request, want);
    request.tokens = prompt[5];
    request.n_tokens = 60;
    answer_alone(lone, &request, first);
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
    check_int(sequence_end(s), SEQUENCE_FULL);
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
            sequence_push_out(e, s[1]);
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

static void test_aged(void)
{
    struct queue q = { 0 };
    struct sequence s[3] = { 0 };
    check_begin("who has waited for long is next, whatever its client had and its priority is");
    for (uint32_t i = 0; i < 3; i++) {
        s[i].client = queue_client(&q, i == 2);
        s[i].arrival = i;
        s[i].since_step = 10 * i;
        queue_add(&q, &s[i]);
    }
    s[0].client->served = 1000;
    s[0].request.priority = 9;
    check(queue_next(&q, 20) == &s[2]);
    check(queue_next(&q, QUEUE_AGED - 1) == &s[2]);
    check(queue_next(&q, QUEUE_AGED) == &s[0]);
    s[1].n_preemptions = 1;
    check(queue_next(&q, QUEUE_AGED) == &s[1]);
    queue_let_in(&q, &s[1]);
    check(queue_next(&q, QUEUE_AGED) == &s[0]);
    queue_let_in(&q, &s[0]);
    check_int(q.served, 1000);
    queue_let_in(&q, &s[2]);
    check(!queue_next(&q, QUEUE_AGED));
    for (uint32_t i = 0; i < 3; i++)
        queue_leave_client(&q, s[i].client);
    check_int(q.n_remembered, 0);
    check(!q.clients);
    queue_release(&q);
}

static void test_clients(void)
{
    struct queue q = { 0 };
    struct sequence s = { 0 };
    check_begin("a client saves nothing up, and is not remembered for ever");
    struct client *a = queue_client(&q, 1);
    s.client = a;
    queue_add(&q, &s);                          /* somebody waits */
    a->served = 500;
    q.served = 400;
    check_int(queue_client(&q, 2)->served, 400);
    for (uint64_t id = 10; id < 5000; id++) {
        struct client *c = queue_client(&q, id);
        c->served += 10;
        queue_leave_client(&q, c);
        check(q.n_remembered < 1100);
    }
    check_int(queue_client(&q, 1)->served, 500);
    queue_remove(&q, &s);
    queue_leave_client(&q, a);
    queue_leave_client(&q, a);
    queue_leave_client(&q, queue_client(&q, 2));
    q.clients->n_sequences = 0;
    queue_release(&q);
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

/* A limit that no step keeps: each has as little in it as may be. */
static void test_short_steps(struct engine *e)
{
    struct sequence *s[4];
    check_begin("steps that may take no time have one token of a prompt, and everybody gets on");
    empty_caches(e);
    e->options.step_ms = 1;
    e->pace = (struct pace){ .per_s = { 0, 1, 1 }, .n_steps = 10 };
    for (uint32_t i = 0; i < 4; i++) {
        struct sequence_request request = request_of(20 + i);
        s[i] = world_add(e, &request);
    }
    while (world_step(e)) {
        const struct flight *f = &e->flight[(e->first_flight + e->n_flights - 1) % e->n_flights];
        check(f->n_prefill <= 1 && f->n_decode <= 1);
        e->pace = (struct pace){ .per_s = { 0, 1, 1 }, .n_steps = 10 };
    }
    check_int(engine_predicted_us(e), 1e6 / 32);
    for (uint32_t i = 0; i < 4; i++) {
        check_answer(s[i], answer[20 + i], n_new[20 + i]);
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

static void lead(struct engine *e)
{
    test_prefixes(e);
    test_salts(e);
    test_choices(e);
    test_copy_to_come(e);
    test_cancelled_prefill(e);
    test_never_fits(e);
    test_thrash(e);
    test_pushed_out(e);
    test_order(e);
    test_short_steps(e);
    test_turns(e);
    if (e->n_ranks > 1)
        test_idle(e);
    test_aged();
    test_clients();
    test_stress(e, "200 requests in a small cache, some cancelled, somebody is pushed out every third step", 3);
    if (e->n_ranks == 1) {
        test_stress(e, "200 requests, only who is in the way is pushed out", 0);
        test_collisions(e);
    }
    engine_close(lone);
    comm_close(self_comm);
}

int main(int argc, char **argv)
{
    static const struct world_test test = { rows, COUNT_OF(rows), N_ALONE, engine_options, find_answers, lead };
    (void)argc;
    return world_main(&test, argv[0]);
}
