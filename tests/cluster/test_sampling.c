/* test_sampling.c: with every parameter of sampling on, tokens and log-probabilities have the same bits on every layout, whatever
 * else runs; and what goes wrong with one sequence is its own. */
#include "tests/cluster/world.h"

#include "base/base.h"
#include "base/random.h"

#include <math.h>

static const struct world_row rows[] = {
    { "tp=1", "tiny-vocab", false, false },             /* the first N_ALONE without MPI */
    { "tp=1", "tiny-broken-moe", false, false },
    { "tp=2", "tiny-vocab", false, false },
    { "tp=3", "tiny-vocab", true, false },
    { "pp=2", "tiny-vocab", false, false },
    { "pp=2,tp=2", "tiny-vocab", false, false },
    { "dp=2", "tiny-vocab", false, false },
    { "dp=2,tp=2", "tiny-vocab", false, false },
    { "dp=2,ep=2", "tiny-broken-moe", false, false },
    { "tp=2,ep=2", "tiny-broken-moe", false, false },
};

enum { N_ALONE = 2, N_REQUESTS = 12, MAX_PROMPT = 60, N_NEW = 24, CONTEXT = 128, BROKEN = 7,
       N_BLOCKS = 16 };              /* of a group: not enough for all at once, so some are pushed out and computed again */

/* The first of them wants all the logprobs that there are, the last none. */
static const struct { struct sample_params params; struct sample_penalties penalties; uint32_t n_top; bool has_bias; } kinds[] = {
    { { .temperature = 0, .top_p = 1 }, { 1.2f, 0.5f, 0.3f }, SAMPLE_MAX_TOP, true },
    { { .temperature = 1, .top_p = 1 }, { 1.3f, 0, 0 }, 20, false },
    { { .temperature = 0.9f, .top_p = 0.9f }, { 1, 0.7f, 0 }, 5, true },
    { { .temperature = 1.1f, .top_p = 0.95f, .top_k = 40, .min_p = 0.02f }, { 0.9f, -0.4f, 1 }, 1, true },
    { { .temperature = 8, .top_p = 0.99f }, { 1, 0, 0 }, 0, false },                           /* nearly flat: the cut is sought */
    { { .temperature = 6, .top_p = 0.9f, .top_k = 3000, .min_p = 0.001f }, { 1.1f, 0, 0.5f }, 3, true },
    { { .temperature = 5, .top_p = 1, .top_k = 2000 }, { 0, 0, 0 }, 20, false },
    { { .temperature = 3, .top_p = 1, .min_p = 0.05f }, { 0, 0, 0 }, 2, true },
    { { .temperature = 0, .top_p = 1 }, { 0, 0, 0 }, 0, false },
};

/* What a request brought: zero where it brought nothing, to be compared as bytes. */
struct heard {
    uint32_t n;
    struct heard_token {
        int32_t id;
        uint32_t index, n_top;
        float logprob;
        struct token_logprob top[SAMPLE_MAX_TOP];
    } token[N_NEW];
};

static uint32_t n_ids;
static int32_t prompt[N_REQUESTS][MAX_PROMPT + N_NEW];
static struct logit_bias bias[N_REQUESTS][40];
static struct heard alone[N_REQUESTS];

static void hear(void *user, const struct token_event *event)
{
    struct heard *h = user;
    if (!check(h->n < N_NEW))
        return;
    struct heard_token *t = &h->token[h->n++];
    *t = (struct heard_token){ .id = event->id, .index = event->index, .n_top = event->n_top, .logprob = event->logprob };
    for (uint32_t i = 0; i < event->n_top; i++) {
        t->top[i] = event->top[i];
        check(event->top[i].id >= 0 && (uint32_t)event->top[i].id < n_ids);             /* PL-05 */
    }
}

static struct engine_options engine_options(const struct world_row *row, const char *layout)
{
    struct engine_options o = { .n_threads = 1, .chunk = 24, .context = CONTEXT, .max_sequences = N_REQUESTS, .cache_blocks = N_BLOCKS,
                                .int8_activations = !row->f32, .cache_type = row->f32 ? DTYPE_F32 : DTYPE_F16 };
    check_int(mesh_parse(&o.mesh, layout), 0);
    return o;
}

/* The token that breaks a row is banned, so that none is broken unless it is asked for. */
static struct sequence_request request_of(uint32_t r, struct heard *heard)
{
    const size_t kind = r % COUNT_OF(kinds);
    struct sequence_request request = {
        .tokens = prompt[r], .n_tokens = 1 + (uint32_t)(random_u64(r, 1) % MAX_PROMPT), .n_new = N_NEW, .params = kinds[kind].params,
        .penalties = kinds[kind].penalties, .bias = bias[r], .n_bias = kinds[kind].has_bias ? 40 : 1, .wants_logprobs = kind + 1 < COUNT_OF(kinds),
        .n_top = kinds[kind].n_top, .on_token = hear, .user = heard,
    };
    request.params.seed = r * 31;
    request.params.choice = r % 4;
    memset(heard, 0, sizeof *heard);
    return request;
}

static void make_requests(const struct engine *e)
{
    n_ids = engine_model(e)->n_ids;
    for (uint32_t r = 0; r < N_REQUESTS; r++) {
        for (uint32_t i = 0; i < MAX_PROMPT; i++) {
            prompt[r][i] = (int32_t)(random_u64(r, 10 + i) % (n_ids / (1 + r % 3 * 8)));
            prompt[r][i] += prompt[r][i] == BROKEN;
        }
        for (uint32_t i = 0; i < 40; i++)
            bias[r][i] = (struct logit_bias){ (int32_t)(BROKEN + (i ? 1 + (i * 7 + r) % (n_ids - BROKEN - 1) : 0)), i % 8 ? 4 - (float)i / 5 : -INFINITY };
    }
}

/* One request alone, to its end. */
static enum sequence_end answer(struct engine *e, const struct sequence_request *request)
{
    struct sequence *s = world_add(e, request);
    world_finish(e, s);
    enum sequence_end end = sequence_end(s);
    engine_remove(e, s);
    return end;
}

/* With whole rows of logits the leader samples from them: another way to the same bits. */
static void check_full_logits(const struct model_file *file, const struct world_row *row, struct comm *self)
{
    struct engine_options o = engine_options(row, "tp=1");
    struct engine *e;
    struct heard heard;
    check_begin("whole rows of logits give the same");
    o.full_logits = true;
    if (!check_int(engine_open(&e, file, &o, self), 0))
        return;
    for (uint32_t r = 0; r < N_REQUESTS; r++) {
        struct sequence_request request = request_of(r, &heard);
        check_int(answer(e, &request), SEQUENCE_END_LENGTH);
        check_bytes("the answer", &heard, &alone[r], sizeof heard);
    }
    engine_close(e);
}

static void find_answers(const struct model_file *file, const struct world_row *row)
{
    struct engine_options o = engine_options(row, "tp=1");
    struct comm *self;
    struct engine *e;
    check_begin("answers of one rank, each alone");
    o.max_sequences = 1;
    check_int(comm_open_self(&self), 0);
    if (!check_int(engine_open(&e, file, &o, self), 0))
        return;
    make_requests(e);
    for (uint32_t r = 0; r < N_REQUESTS; r++) {
        struct sequence_request request = request_of(r, &alone[r]);
        check_int(answer(e, &request), SEQUENCE_END_LENGTH);
        check_int(alone[r].n, N_NEW);
    }
    engine_close(e);
    check_full_logits(file, row, self);
    comm_close(self);
}

/* ---- what the leader does ---- */
static void test_together(struct engine *e)
{
    static struct heard heard[N_REQUESTS];
    struct sequence *s[N_REQUESTS];
    uint32_t n_preemptions = 0;
    check_begin("NM-05, PL-05: all at once, with every parameter on, some computed twice: the same bits");
    for (uint32_t r = 0; r < N_REQUESTS; r++) {
        struct sequence_request request = request_of(r, &heard[r]);
        s[r] = world_add(e, &request);
    }
    while (world_step(e))
        ;
    for (uint32_t r = 0; r < N_REQUESTS; r++) {
        check_int(sequence_end(s[r]), SEQUENCE_END_LENGTH);
        if (!check_bytes("the answer", &heard[r], &alone[r], sizeof heard[r]))
            printf("    request %u\n", r);
        n_preemptions += sequence_n_preemptions(s[r]);
        engine_remove(e, s[r]);
    }
    check(n_preemptions > 0);
}

/* From any token on, as after a preemption or on another replica. */
static void test_resumed(struct engine *e)
{
    static struct heard heard;
    check_begin("an answer goes on where it was left");
    for (uint32_t r = 0; r < N_REQUESTS; r += 2) {
        struct sequence_request request = request_of(r, &heard);
        uint32_t n = 1 + (uint32_t)(random_u64(r, 2) % (N_NEW - 1)), n_prompt = request.n_tokens;
        int32_t tokens[MAX_PROMPT + N_NEW];
        memcpy(tokens, request.tokens, n_prompt * sizeof *tokens);
        for (uint32_t i = 0; i < n; i++)
            tokens[n_prompt + i] = alone[r].token[i].id;
        request.tokens = tokens;
        request.n_tokens += n;
        request.n_generated = n;
        request.n_new -= n;
        check_int(answer(e, &request), SEQUENCE_END_LENGTH);
        if (check_int(heard.n, N_NEW - n))
            check_bytes("what follows", heard.token, alone[r].token + n, heard.n * sizeof *heard.token);
    }
}

/* Where the id comes first in the answer. */
static uint32_t first_of(const struct heard *h, int32_t id)
{
    uint32_t n = 0;
    while (h->token[n].id != id)
        n++;
    return n;
}

static void test_stop_ids(struct engine *e)
{
    static struct heard heard;
    check_begin("a stop id ends the answer, and is not among its tokens; not before min_new");
    for (uint32_t r = 0; r < N_REQUESTS; r += 2) {
        int32_t stop_ids[] = { BROKEN + 1, alone[r].token[N_NEW / 2].id };
        struct sequence_request request = request_of(r, &heard);
        uint32_t n = MIN(first_of(&alone[r], stop_ids[1]), N_NEW);
        for (uint32_t i = 0; i < n; i++)
            n = alone[r].token[i].id == stop_ids[0] ? i : n;
        request.stop_ids = stop_ids;
        request.n_stop_ids = 2;
        struct sequence *s = world_add(e, &request);
        world_finish(e, s);
        check_int(sequence_end(s), SEQUENCE_END_STOP);
        check_int(sequence_stop_id(s), alone[r].token[n].id);
        check_int(heard.n, n);
        check_bytes("before it", heard.token, alone[r].token, n * sizeof *heard.token);
        engine_remove(e, s);

        request = request_of(r, &heard);
        request.stop_ids = stop_ids;
        request.n_stop_ids = 2;
        request.min_new = n + 3;
        enum sequence_end end = answer(e, &request);
        check(heard.n >= MIN(n + 3, N_NEW) && (end == SEQUENCE_END_STOP || end == SEQUENCE_END_LENGTH));
        for (uint32_t i = 0; i < heard.n; i++)
            check(heard.token[i].id != stop_ids[0] && heard.token[i].id != stop_ids[1]);
    }
}

/* A stop id that is picked as soon as it may be. */
static void test_min_new(struct engine *e)
{
    static struct heard heard;
    static const struct logit_bias forced = { 42, 100 };
    static const int32_t stop_id = 42;
    for (uint32_t min_new = 0; min_new < 4; min_new++) {
        struct sequence_request request = request_of(8, &heard);
        check_begin("an answer of %u tokens before the stop id", min_new);
        request.bias = &forced;
        request.n_bias = 1;
        request.stop_ids = &stop_id;
        request.n_stop_ids = 1;
        request.min_new = min_new;
        check_int(answer(e, &request), SEQUENCE_END_STOP);
        check_int(heard.n, min_new);
    }
}

static void test_bias(struct engine *e)
{
    static struct heard heard;
    const struct logit_bias forced = { 42, 100 };
    struct logit_bias banned[N_NEW + 1];
    struct sequence_request request = request_of(8, &heard);
    check_begin("a bias forces and bans ids; logprobs are those of the model");
    request.wants_logprobs = true;
    request.n_top = 3;
    request.bias = &forced;
    check_int(answer(e, &request), SEQUENCE_END_LENGTH);
    for (uint32_t i = 0; i < N_NEW; i++)
        check(heard.token[i].id == 42 && heard.token[i].logprob <= heard.token[i].top[0].logprob);
    check(heard.token[0].logprob < -0.5f && heard.token[0].top[0].id == alone[8].token[0].id);
    for (uint32_t i = 0; i < N_NEW; i++)
        banned[i] = (struct logit_bias){ alone[8].token[i].id, -INFINITY };
    request = request_of(8, &heard);
    request.bias = banned;
    request.n_bias = 1;
    check_int(answer(e, &request), SEQUENCE_END_LENGTH);
    check(heard.token[0].id != alone[8].token[0].id);
}

/* Others are not disturbed by what cannot be. */
static void test_refused(struct engine *e)
{
    static struct heard heard, other;
    static const struct logit_bias outside[] = { { 999999, -100 }, { -1, 5 }, { 5, NAN } };
    const int32_t bad_stop = -3;
    struct sequence_request running = request_of(0, &heard);
    struct sequence *s = world_add(e, &running), *more;
    check_begin("OA-11: ids and numbers out of range are refused, and who runs goes on");
    check(world_step(e));
    for (size_t i = 0; i < COUNT_OF(outside); i++) {
        struct sequence_request request = request_of(1, &other);
        request.bias = &outside[i];
        request.n_bias = 1;
        check_int(engine_add(e, &more, &request), ERR_USAGE);
        check_int(engine_continue(e, s, &request), ERR_USAGE);
    }
    struct sequence_request request = request_of(1, &other);
    request.stop_ids = &bad_stop;
    request.n_stop_ids = 1;
    check_int(engine_add(e, &more, &request), ERR_USAGE);
    request = request_of(1, &other);
    request.penalties.repetition = -1;
    check_int(engine_add(e, &more, &request), ERR_USAGE);
    request = request_of(1, &other);
    request.params.min_p = 1.5f;
    check_int(engine_add(e, &more, &request), ERR_USAGE);
    request = request_of(1, &other);
    request.n_top = SAMPLE_MAX_TOP + 1;
    check_int(engine_add(e, &more, &request), ERR_USAGE);
    world_finish(e, s);
    check_bytes("the answer", &heard, &alone[0], sizeof heard);
    engine_remove(e, s);
}

/* Every third prompt has the token whose embedding is no number, somewhere. */
static void test_broken(struct engine *e)
{
    static struct heard heard[N_REQUESTS];
    struct sequence *s[N_REQUESTS];
    int32_t kept[N_REQUESTS];
    check_begin("NM-02: a logit that is not a number ends its own sequence; others get what they get alone");
    for (uint32_t r = 0; r < N_REQUESTS; r++) {
        struct sequence_request request = request_of(r, &heard[r]);
        uint32_t at = r % request.n_tokens;
        kept[r] = prompt[r][at];
        if (r % 3 == 0)
            prompt[r][at] = BROKEN;
        s[r] = world_add(e, &request);
        prompt[r][at] = kept[r];
    }
    while (world_step(e))
        ;
    for (uint32_t r = 0; r < N_REQUESTS; r++) {
        check_int(sequence_end(s[r]), r % 3 ? SEQUENCE_END_LENGTH : SEQUENCE_END_FAILED);
        check_int(sequence_error(s[r]), r % 3 ? 0 : ERR_FAILED);
        if (r % 3)
            check_bytes("the answer", &heard[r], &alone[r], sizeof heard[r]);
        else
            check_int(heard[r].n, 0);
        engine_remove(e, s[r]);
    }
}

static void lead(struct engine *e)
{
    n_ids = engine_model(e)->n_ids;
    test_together(e);
    test_resumed(e);
    test_stop_ids(e);
    test_min_new(e);
    test_bias(e);
    test_refused(e);
    test_broken(e);
    test_together(e);
}

int main(int argc, char **argv)
{
    const struct world_test test = { .rows = rows, .n_rows = COUNT_OF(rows), .n_alone = N_ALONE, .options = engine_options,
                                     .prepare = find_answers, .lead = lead };
    (void)argc;
    return world_main(&test, argv[0]);
}
