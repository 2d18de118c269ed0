/* test_sharing.c: what one sequence has computed, another begins with; and answers as if it had not. */
#include "tests/cluster/schedule.h"

/* Text A with ten tokens behind it, then A alone; then lengths around a block. */
static void test_prefixes(struct engine *e)
{
    static const uint32_t lengths[] = { 50, 40, 48, 48, 48, 32, 33, 1, 1, 1, 17, 16, 16, 64, 64 };
    int32_t want[8];
    check_begin("KV-01, KV-02: beginnings of one text, whole blocks and not, again and again");
    empty_caches(e);
    for (uint32_t i = 0; i < COUNT_OF(lengths); i++) {
        struct sequence_request request = { .tokens = prompt[0], .n_tokens = lengths[i], .n_new = 8, .params = { .top_p = 1 } };
        answer_alone(&request, want);
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
        answer_alone(&request, want[i]);
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
        answer_alone(&request, want[i - 1]);
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
    answer_alone(&request, want);
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

static void lead(struct engine *e)
{
    test_prefixes(e);
    test_salts(e);
    test_choices(e);
    test_copy_to_come(e);
    test_cancelled_prefill(e);
    close_lone();
}

int main(int argc, char **argv)
{
    static const struct world_test test = { schedule_rows, COUNT_OF(schedule_rows), N_ALONE, engine_options, open_lone, lead };
    (void)argc;
    return world_main(&test, argv[0]);
}
