/* test_stress.c: many requests come, share blocks, are pushed out, are cancelled and go, in a small cache. */
#include "tests/cluster/schedule.h"

enum { N_AT_ONCE = 12 };

static int32_t answer[N_REQUESTS][MOST_NEW];

static void find_answers(const struct model_file *file, const struct world_row *row)
{
    open_lone(file, row);
    for (uint32_t r = 0; r < N_REQUESTS; r++) {
        struct sequence_request request = request_of(r);
        answer_alone(&request, answer[r]);
    }
    close_lone();
}

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
        t->n_full += sequence_end(t->s[i]) == SEQUENCE_END_FULL;
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
        sequence_preempt(e, s);
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

static void lead(struct engine *e)
{
    test_stress(e, "200 requests in a small cache, some cancelled, somebody is pushed out every third step", 3);
    if (e->n_ranks == 1) {
        test_stress(e, "200 requests, only who is in the way is pushed out", 0);
        test_collisions(e);
    }
}

int main(int argc, char **argv)
{
    static const struct world_test test = { schedule_rows, COUNT_OF(schedule_rows), N_ALONE, engine_options, find_answers, lead };
    (void)argc;
    return world_main(&test, argv[0]);
}
