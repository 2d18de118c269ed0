/* schedule.h: what the tests of the scheduler share: worlds with a small cache, requests whose prompts have beginnings in common, and
 * the answers of one rank with a cache that nobody shares, which every answer must be.  world_step() looks at all that is always true. */
#ifndef STOA_TESTS_SCHEDULE_H
#define STOA_TESTS_SCHEDULE_H

#include "tests/cluster/world.h"

#include "base/base.h"
#include "base/random.h"

static const struct world_row schedule_rows[] = {
    { "tp=1", "tiny-mixed", false, false },             /* the first N_ALONE without MPI */
    { "tp=1", "tiny-gemma3", false, false },            /* windows */
    { "tp=2", "tiny-mixed", false, false },
    { "pp=2", "tiny-gemma3", false, false },
    { "dp=2,pp=2", "tiny-mixed", false, false },
    { "dp=2,ep=2", "tiny-qwen3moe", false, false },
};

enum { N_ALONE = 2, N_REQUESTS = 200, CONTEXT = 160, N_BLOCKS = 14, MOST_NEW = 40 };

static int32_t prompt[N_REQUESTS][CONTEXT];
static uint32_t n_prompt[N_REQUESTS], n_new[N_REQUESTS];

static inline struct engine_options engine_options(const struct world_row *row, const char *layout)
{
    struct engine_options o = { .n_threads = 1, .chunk = 24, .context = CONTEXT, .max_sequences = 6, .int8_activations = true,
                                .cache_type = DTYPE_F16, .cache_blocks = N_BLOCKS };
    (void)row;
    check_int(mesh_parse(&o.mesh, layout), 0);
    return o;
}

/* A few texts, of which most prompts share a beginning, and part from it anywhere. */
static inline void make_requests(void)
{
    for (uint32_t r = 0; r < N_REQUESTS; r++) {
        uint32_t n_shared = (uint32_t)(random_u64(r, 0) % 80);
        n_prompt[r] = 1 + (uint32_t)(random_u64(r, 1) % 100);
        n_new[r] = (uint32_t)(random_u64(r, 2) % (MOST_NEW + 1));
        for (uint32_t i = 0; i < CONTEXT; i++)
            prompt[r][i] = (int32_t)(i < n_shared ? random_u64(1000 + r % 3, i) % 300 : random_u64(r, 10 + i) % 300);
    }
}

static inline struct sequence_request request_of(uint32_t r)
{
    return (struct sequence_request){ .tokens = prompt[r], .n_tokens = n_prompt[r], .n_new = n_new[r],
                                      .client = r % 3, .priority = (int32_t)r % 2,
                                      .params = { .temperature = r % 4 ? 0.9f : 0, .top_p = 1, .seed = r } };
}

/* On this rank alone, and with nothing shared. */
static struct engine *lone;
static struct comm *self_comm;

static inline void open_lone(const struct model_file *file, const struct world_row *row)
{
    struct engine_options o = engine_options(row, "tp=1");
    o.max_sequences = 1;
    o.cache_blocks = 0;
    o.no_prefix_cache = true;
    make_requests();
    check_begin("one rank");
    if (!check_int(comm_open_self(&self_comm), 0) || !check_int(engine_open(&lone, file, &o, self_comm), 0))
        comm_abort(self_comm, 1);
}

static inline void close_lone(void)
{
    engine_close(lone);
    comm_close(self_comm);
}

/* request->n_new tokens, into `to`. */
static inline void answer_alone(const struct sequence_request *request, int32_t *to)
{
    struct sequence *s;
    uint32_t n;
    if (!check_int(engine_add(lone, &s, request), 0))
        return;
    while (world_step(lone))
        ;
    const int32_t *tokens = sequence_new_tokens(s, &n);
    check_int(sequence_end(s), SEQUENCE_END_LENGTH);
    if (check_int(n, request->n_new))
        memcpy(to, tokens, n * sizeof *to);
    engine_remove(lone, s);
}

/* Nothing runs, nothing waits, no block is lost. */
static inline void check_idle(struct engine *e)
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
static inline void forget_all(struct engine *e, uint32_t g)
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

static inline void empty_caches(struct engine *e)
{
    for (uint32_t g = 0; g < e->n_groups; g++)
        forget_all(e, g);
    engine_check(e);
}

static inline void check_answer(const struct sequence *s, const int32_t *want, uint32_t n_want)
{
    uint32_t n;
    const int32_t *tokens = sequence_new_tokens(s, &n);
    check(sequence_is_done(s));
    if (sequence_end(s) == SEQUENCE_END_FULL)
        check(n < n_want);
    else if (!check_int(n, n_want))
        return;
    if (n)
        check_bytes("the answer", tokens, want, n * sizeof *tokens);
}

#endif
