/* test_engine.c: sequences that come and go at any time, on every kind of layout, say what each says alone on one rank.
 * Started plainly, the program runs itself under mpirun, once for each layout. */
#include "tests/cluster/world.h"

#include "base/base.h"
#include "base/random.h"

static const struct world_row rows[] = {
    { "tp=1", "tiny-gemma3", false, false },            /* the first N_ALONE without MPI */
    { "tp=1", "tiny-mixed", false, false },
    { "tp=2", "tiny-mixed", false, false },
    { "dp=2", "tiny-mixed", true, false },
    { "dp=3", "tiny-mixed", false, false },
    { "dp=2,tp=2", "tiny-gemma3", false, false },
    { "dp=2,pp=2", "tiny-gemma3", false, false },
    { "dp=3,pp=2,tp=2", "tiny-mixed", false, false },
    { "pp=3", "tiny-gemma3", false, false },
    { "dp=3", "tiny-gemma3", false, true },
    { "dp=2,pp=2", "tiny-mixed", false, true },
    { "dp=2,tp=2,ep=4", "tiny-qwen3moe", false, false },
    { "dp=4,ep=2", "tiny-qwen3moe", false, false },
};

enum { N_ALONE = 2, N_QUESTIONS = 9, MAX_TOKENS = 200, CONTEXT = 256 };

/* Lengths of all kinds: within a block, over several chunks, one that only reads its prompt, one that goes on for long. */
static const struct { uint32_t n_tokens, n_new; float temperature; } questions[N_QUESTIONS] = {
    { 1, 30, 0 }, { 90, 1, 0 }, { 17, 12, 0.8f }, { 33, 0, 0 }, { 64, 40, 0 }, { 5, 3, 1.5f }, { 16, 16, 0 }, { 150, 20, 0.9f }, { 2, 60, 0 },
};
static int32_t prompt[N_QUESTIONS][MAX_TOKENS], answer[N_QUESTIONS][MAX_TOKENS];

static struct engine_options engine_options(const struct world_row *row, const char *layout)
{
    struct engine_options o = { .n_threads = 1, .chunk = 24, .context = CONTEXT, .max_sequences = N_QUESTIONS, .int8_activations = !row->f32,
                                .cache_type = row->f32 ? DTYPE_F32 : DTYPE_F16 };
    check_int(mesh_parse(&o.mesh, layout), 0);
    o.gathered = row->gathered && o.mesh.size[AXIS_DP] > 1;
    return o;
}

static struct sequence_request request_of(uint32_t q)
{
    return (struct sequence_request){ .tokens = prompt[q], .n_tokens = questions[q].n_tokens, .n_new = questions[q].n_new,
                                      .params = { .temperature = questions[q].temperature, .top_p = 1, .seed = q } };
}

static struct sequence *add(struct engine *e, uint32_t q)
{
    struct sequence_request request = request_of(q);
    struct sequence *s = NULL;
    check_int(engine_add(e, &s, &request), 0);
    return s;
}

static void run_all(struct engine *e)
{
    while (world_step(e))
        ;
}

/* Others may have more to do. */
static void finish(struct engine *e, const struct sequence *s)
{
    while (!sequence_is_done(s))
        if (!check(world_step(e)))
            world_give_up(e);
}

static void check_answer(const struct sequence *s, uint32_t q)
{
    uint32_t n;
    const int32_t *tokens = sequence_new_tokens(s, &n);
    check(sequence_is_done(s));
    if (check_int(n, questions[q].n_new) && n)
        check_bytes("the answer", tokens, answer[q], n * sizeof *tokens);
}

/* ---- many requests ---- */
enum { N_REQUESTS = 200, MOST_NEW = 24 };
static int32_t request_answer[N_REQUESTS][MOST_NEW];
static uint32_t request_length[N_REQUESTS];

/* Sampled, of random length, ended by some tokens as by a stop string; up to N_QUESTIONS at once. */
static void run_requests(struct engine *e, int32_t answers[N_REQUESTS][MOST_NEW], uint32_t lengths[N_REQUESTS])
{
    struct sequence *s[N_QUESTIONS] = { 0 };
    uint32_t which[N_QUESTIONS], n_begun = 0, n_ended = 0;
    while (n_ended < N_REQUESTS) {
        for (uint32_t i = 0; i < N_QUESTIONS && n_begun < N_REQUESTS; i++) {
            if (s[i])
                continue;
            uint32_t r = n_begun;
            struct sequence_request request = {
                .tokens = prompt[r % N_QUESTIONS] + r / N_QUESTIONS, .n_tokens = 1 + (uint32_t)(random_u64(r, 1) % 20),
                .n_new = 1 + (uint32_t)(random_u64(r, 2) % MOST_NEW), .params = { .temperature = 1, .top_p = 1, .seed = r },
            };
            which[i] = n_begun++;
            if (!check_int(engine_add(e, &s[i], &request), 0))
                return;
        }
        world_step(e);
        for (uint32_t i = 0; i < N_QUESTIONS; i++) {
            uint32_t n, k = 0;
            if (!s[i])
                continue;
            const int32_t *tokens = sequence_new_tokens(s[i], &n);
            while (k < n && tokens[k] % 16)
                k++;
            if (k == n && !sequence_is_done(s[i]))
                continue;
            lengths[which[i]] = MIN(k + 1, n);
            memcpy(answers[which[i]], tokens, lengths[which[i]] * sizeof *tokens);
            engine_remove(e, s[i]);
            s[i] = NULL;
            n_ended++;
        }
    }
}

/* What each question is answered alone, on this rank alone. */
static void find_answers(const struct model_file *file, const struct world_row *row)
{
    struct engine_options o = engine_options(row, "tp=1");
    struct comm *self;
    struct engine *e;
    for (uint32_t q = 0; q < N_QUESTIONS; q++)
        for (uint32_t i = 0; i < MAX_TOKENS; i++)
            prompt[q][i] = (int32_t)(random_u64(q, i) % 300);
    check_begin("answers of one rank");
    check_int(comm_open_self(&self), 0);
    o.max_sequences = 1;
    if (!check_int(engine_open(&e, file, &o, self), 0))
        return;
    for (uint32_t q = 0; q < N_QUESTIONS; q++) {
        uint32_t n;
        struct sequence *s = add(e, q);
        run_all(e);
        const int32_t *tokens = sequence_new_tokens(s, &n);
        memcpy(answer[q], tokens, n * sizeof *tokens);
        engine_remove(e, s);
    }
    engine_close(e);
    e = NULL;
    o.max_sequences = N_QUESTIONS;
    if (check_int(engine_open(&e, file, &o, self), 0))
        run_requests(e, request_answer, request_length);
    engine_close(e);
    comm_close(self);
}

/* ---- what the leader does ---- */
static void test_all_together(struct engine *e)
{
    struct sequence *s[N_QUESTIONS];
    check_begin("NM-03: all questions at once");
    for (uint32_t q = 0; q < N_QUESTIONS; q++)
        s[q] = add(e, q);
    run_all(e);
    for (uint32_t q = 0; q < N_QUESTIONS; q++) {
        check_answer(s[q], q);
        engine_remove(e, s[q]);
    }
}

/* Prompts of 1, 7 and 30 tokens in one batch, then three that are equal. */
static void test_batches(struct engine *e)
{
    static const uint32_t n_tokens[3] = { 1, 7, 30 };
    int32_t alone[3][20];
    for (uint32_t round = 0; round < 3; round++) {
        struct sequence *s[3];
        check_begin("PL-11: %s", round == 0 ? "each alone" : round == 1 ? "three lengths in a batch" : "three equal prompts in a batch");
        for (uint32_t i = 0; i < 3; i++) {
            uint32_t which = round == 2 ? 1 : i, n;
            struct sequence_request request = { .tokens = prompt[7], .n_tokens = n_tokens[which], .n_new = 20, .params = { .top_p = 1 } };
            check_int(engine_add(e, &s[i], &request), 0);
            if (round > 0)
                continue;
            run_all(e);
            memcpy(alone[i], sequence_new_tokens(s[i], &n), sizeof alone[i]);
            check_int(n, 20);
        }
        run_all(e);
        for (uint32_t i = 0; i < 3; i++) {
            uint32_t n;
            check_bytes("the answer", sequence_new_tokens(s[i], &n), alone[round == 2 ? 1 : i], sizeof alone[i]);
            engine_remove(e, s[i]);
        }
    }
}

/* Three answers to one prompt differ, and are the same when they are asked for again. */
static void test_choices(struct engine *e)
{
    int32_t answers[2][3][20];
    check_begin("NM-05: three choices under one seed, twice");
    for (uint32_t round = 0; round < 2; round++) {
        struct sequence *s[3];
        for (uint32_t c = 0; c < 3; c++) {
            struct sequence_request request = { .tokens = prompt[2], .n_tokens = 17, .n_new = 20,
                                                .params = { .temperature = 1, .top_p = 1, .seed = 7, .choice = round ? 2 - c : c } };
            check_int(engine_add(e, &s[c], &request), 0);
        }
        run_all(e);
        for (uint32_t c = 0; c < 3; c++) {
            uint32_t n;
            memcpy(answers[round][round ? 2 - c : c], sequence_new_tokens(s[c], &n), sizeof answers[0][0]);
            check_int(n, 20);
            engine_remove(e, s[c]);
        }
    }
    check_bytes("again", answers[1], answers[0], sizeof answers[0]);
    for (uint32_t c = 0; c < 3; c++)
        check(memcmp(answers[0][c], answers[0][(c + 1) % 3], sizeof answers[0][0]));
}

static void test_requests(struct engine *e)
{
    static int32_t answers[N_REQUESTS][MOST_NEW];
    static uint32_t lengths[N_REQUESTS];
    uint32_t n_stopped = 0;
    check_begin("PL-15: 200 sampled requests of random length, ended by a token");
    run_requests(e, answers, lengths);
    check_bytes("lengths", lengths, request_length, sizeof lengths);
    check_bytes("answers", answers, request_answer, sizeof answers);
    for (uint32_t r = 0; r < N_REQUESTS; r++)
        n_stopped += answers[r][lengths[r] - 1] % 16 == 0;
    check(n_stopped > 20 && n_stopped < 190);          /* both ends are met */
}

/* On dp=3 two groups have nothing to do at all. */
static void test_one_alone(struct engine *e)
{
    check_begin("one question alone");
    for (uint32_t q = 4; q < 6; q++) {
        struct sequence *s = add(e, q);
        run_all(e);
        check_answer(s, q);
        engine_remove(e, s);
    }
}

static void test_homes(struct engine *e)
{
    uint32_t n_groups = e->n_groups, n_each = DIV_UP(N_QUESTIONS, n_groups), n = 0;
    struct sequence *s[2 * N_QUESTIONS + 1];
    struct engine_load load;
    check_begin("each comes to the group with the fewest, no group takes more than its part, who is too many waits");
    for (; n <= n_each * n_groups; n++)
        s[n] = add(e, 4);
    world_step(e);
    for (uint32_t i = 0; i + 1 < n; i += n_groups) {        /* whichever of them knows the question: each gets one before any gets two */
        uint32_t seen = 0;
        for (uint32_t g = 0; g < n_groups; g++)
            seen |= 1u << s[i + g]->group;
        check_int(seen, (1u << n_groups) - 1);
    }
    check_int(s[n - 1]->state, SEQUENCE_WAITING);
    engine_load(e, &load);
    check_int(load.running, n - 1);
    check_int(load.waiting, 1);
    uint32_t home = s[n_groups - 1]->group;
    engine_remove(e, s[n_groups - 1]);
    s[n_groups - 1] = add(e, 4);
    world_step(e);
    check_int(s[n - 1]->group, home);
    check_int(s[n_groups - 1]->state, SEQUENCE_WAITING);
    run_all(e);
    for (uint32_t i = 0; i < n; i++) {
        check_answer(s[i], 4);
        engine_remove(e, s[i]);
    }
    for (uint32_t g = 0; g < n_groups; g++)
        for (uint32_t c = 0; c < e->limits.n_cache_groups; c++)
            check_int(block_pool_available(&e->group[g].pool[c]), e->limits.cache[c].n_all);
}

/* After every few steps one goes, another comes. */
static void test_coming_and_going(struct engine *e)
{
    struct sequence *s[N_QUESTIONS] = { 0 };
    uint32_t n_answered = 0;
    check_begin("NM-03: some go in the middle, others come");
    for (uint64_t round = 0; round < 60; round++) {
        uint32_t q = (uint32_t)(random_u64(round, 0) % N_QUESTIONS);
        if (s[q] && (sequence_is_done(s[q]) || random_u64(round, 1) % 3 == 0)) {
            if (sequence_is_done(s[q])) {
                check_answer(s[q], q);
                n_answered++;
            }
            engine_remove(e, s[q]);
            s[q] = NULL;
        } else if (!s[q]) {
            s[q] = add(e, q);
        }
        for (uint64_t n = random_u64(round, 2) % 5; n > 0; n--)
            world_step(e);
    }
    check(n_answered > 5);
    run_all(e);
    for (uint32_t q = 0; q < N_QUESTIONS; q++)
        if (s[q]) {
            check_answer(s[q], q);
            engine_remove(e, s[q]);
        }
}

/* The turns of a chat: how many tokens of what there is are taken back, how many are new, and how long the answer is. */
static const struct { uint32_t n_back, n_more, n_new; } turns[] = {
    { 0, 20, 15 }, { 0, 20, 15 }, { 7, 20, 40 }, { 12, 2, 3 }, { 36, 5, 10 }, { 100, 10, 5 }, { 0, 3, 9 },
};

static void test_continue(struct engine *e)
{
    int32_t text[CONTEXT];
    struct sequence *fresh, *chat = add(e, 2), *other = add(e, 8);
    check_begin("a sequence goes on, and computes only what is new, but for less than a block");
    finish(e, chat);
    for (uint32_t turn = 0; turn < COUNT_OF(turns); turn++) {
        uint32_t n = chat->n_tokens - turns[turn].n_back, n_all = n + turns[turn].n_more;
        memcpy(text, chat->tokens, n * sizeof *text);
        for (uint32_t i = n; i < n_all; i++)
            text[i] = (int32_t)(random_u64(turn, i) % 300);
        struct sequence_request request = { .tokens = text, .n_tokens = n_all, .n_new = turns[turn].n_new, .params = { .top_p = 1 } };
        check_int(engine_continue(e, chat, &request), 0);
        finish(e, chat);
        if (e->n_groups == 1)                           /* the last token of an answer has never been an input */
            check(sequence_n_cached(chat) + BLOCK_TOKENS >= n && sequence_n_cached(chat) <= n + 1);
        check_int(engine_add(e, &fresh, &request), 0);
        finish(e, fresh);
        check_bytes("the turn's answer", chat->tokens, fresh->tokens, (n_all + turns[turn].n_new) * sizeof *text);
        engine_remove(e, fresh);
    }
    run_all(e);
    check_answer(other, 8);
    engine_remove(e, other);
    engine_remove(e, chat);
}

static void test_bad_requests(struct engine *e)
{
    static const int32_t outside[] = { 1, 301 };
    struct sequence *s, *busy = add(e, 4);
    check_begin("what cannot be asked is an error, and what runs goes on");
    struct sequence_request request = { .tokens = outside, .n_tokens = 2, .n_new = 1, .params = { .top_p = 1 } };
    check(engine_step(e) > 0);
    check_int(engine_add(e, &s, &request), ERR_USAGE);
    request.n_tokens = 1;
    request.n_new = CONTEXT;
    check_int(engine_add(e, &s, &request), ERR_USAGE);
    check_int(engine_continue(e, busy, &request), ERR_USAGE);
    request.n_new = 1;
    request.all_rows = true;
    check_int(engine_add(e, &s, &request), ERR_USAGE);
    run_all(e);
    check_answer(busy, 4);
    engine_remove(e, busy);
}

static void test_counters(struct engine *e)
{
    uint32_t n_ranks = (uint32_t)engine_n_ranks(e);
    struct rank_counters *c = calloc(n_ranks, sizeof *c);
    check_begin("every rank counts, also where its group has nothing to do");
    check_int(engine_counters(e, c, true), 0);
    struct sequence *s = add(e, 7);
    run_all(e);
    check_int(engine_counters(e, c, true), 0);
    for (uint32_t r = 0; r < n_ranks; r++)
        check(c[r].rank == r && c[r].weight_bytes && c[r].compute_s + c[r].wait_s + c[r].wire_s > 0);
    check_int(engine_counters(e, c, false), 0);
    check(c[0].compute_s == 0 && c[n_ranks - 1].bytes_sent == 0);
    engine_remove(e, s);
    free(c);
}

static void lead(struct engine *e)
{
    test_all_together(e);
    test_one_alone(e);
    test_batches(e);
    test_choices(e);
    test_homes(e);
    test_requests(e);
    test_coming_and_going(e);
    test_continue(e);
    test_bad_requests(e);
    test_counters(e);
    test_all_together(e);
    check_begin("a sequence that is still running does not hold up the end");
    add(e, 8);
    check(engine_step(e) > 0);
}

int main(int argc, char **argv)
{
    static const struct world_test test = { rows, COUNT_OF(rows), N_ALONE, engine_options, find_answers, lead };
    (void)argc;
    return world_main(&test, argv[0]);
}
