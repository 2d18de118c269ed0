/* test_plan.c: a step plan on the wire: what goes in comes out, and bytes that lie are refused without a look beyond them. */
#include "engine/plan.h"
#include "base/error.h"
#include "base/random.h"
#include "tests/check.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_TOKENS = 40, MAX_ROWS = 7, MAX_SEQUENCES = 5, MAX_ALL_TOKENS = 100, CONTEXT = 96, VOCAB = 50000 };

/* A group that keeps all positions, and a window of 20 that takes 3 blocks of the 6 that the context would. */
static struct plan *open_plan(void)
{
    struct plan_limits limits = { .n_tokens = MAX_TOKENS, .n_rows = MAX_ROWS, .n_sequences = MAX_SEQUENCES, .n_all_tokens = MAX_ALL_TOKENS,
                                  .context = CONTEXT, .n_vocab = VOCAB, .n_cache_groups = 2 };
    struct plan *plan = NULL;
    limits.cache[0] = cache_blocks(0, CONTEXT, 8, MAX_SEQUENCES, 0);
    limits.cache[1] = cache_blocks(20, CONTEXT, 8, MAX_SEQUENCES, 0);
    check_int(plan_open(&plan, &limits), 0);
    return plan;
}

/* The leader's tables are not the plan's own; here with room to go beyond the context. */
static uint32_t table[MAX_SEQUENCES][2][CONTEXT / 16 + 1];

static void add_sequence(struct plan *p, uint64_t seed, uint32_t n_tokens, uint32_t position)
{
    struct plan_header *h = &p->header;
    uint32_t i = h->n_sequences++;
    struct step_sequence *s = &p->sequences[i];
    *s = (struct step_sequence){ .first_token = h->n_tokens, .n_tokens = n_tokens, .position = position };
    for (uint32_t g = 0; g < 2; g++) {
        s->table[g] = (struct step_table){ cache_blocks_table(&p->limits.cache[g], position + n_tokens), table[i][g] };
        for (uint32_t k = 0; k < s->table[g].n_blocks; k++)
            table[i][g][k] = (uint32_t)(random_u64(seed, 600 + 20 * i + 10 * g + k) % p->limits.cache[g].n_all);
    }
    for (uint32_t t = 0; t < n_tokens; t++, h->n_tokens++) {
        p->tokens[h->n_tokens] = (int32_t)(random_u64(seed, 100 + h->n_tokens) % VOCAB);
        p->positions[h->n_tokens] = (int32_t)(position + t);
    }
}

static void add_row(struct plan *p, uint64_t seed, uint32_t token)
{
    uint32_t i = p->header.n_rows++;
    p->rows[i] = (int32_t)token;
    p->row[i] = (struct plan_row){ .params = { .temperature = 0.5f, .top_p = 0.25f, .top_k = i, .choice = 3, .min_p = 0.125f, .seed = random_u64(seed, 400 + i) },
                                   .n_top = i, .wants_logprobs = i % 2, .position = (uint32_t)p->positions[token] + 1 };
}

/* Every eighth has no token of this group's. */
static void fill(struct plan *p, uint64_t seed)
{
    struct plan_header *h = &p->header;
    plan_clear(p);
    h->number = (uint32_t)seed;
    h->flags = (uint32_t)(random_u64(seed, 0) & 15);
    uint32_t n_sequences = seed % 8 ? 1 + (uint32_t)(random_u64(seed, 3) % MAX_SEQUENCES) : 0;
    for (uint32_t i = 0; i < n_sequences; i++) {
        uint32_t n = 1 + (uint32_t)(random_u64(seed, 500 + i) % (MAX_TOKENS / MAX_SEQUENCES));
        add_sequence(p, seed, n, (uint32_t)(random_u64(seed, 550 + i) % (CONTEXT - n + 1)));
    }
    for (uint64_t i = 0; n_sequences && i < random_u64(seed, 5) % 4; i++) {
        uint32_t g = (uint32_t)(i % 2), n = p->limits.cache[g].n_all, from = (uint32_t)(random_u64(seed, 560 + i) % n);
        p->copy[h->n_copies++] = (struct plan_copy){ g, from, (from + 1 + (uint32_t)(random_u64(seed, 570 + i) % (n - 1))) % n };
    }
    uint32_t n_rows = n_sequences ? (uint32_t)(random_u64(seed, 2) % (MAX_ROWS + 1)) : 0;
    for (uint32_t i = 0; i < n_rows; i++)
        add_row(p, seed, (uint32_t)(random_u64(seed, 300 + i) % h->n_tokens));
    h->n_all_tokens = h->n_tokens + (uint32_t)(random_u64(seed, 4) % (MAX_ALL_TOKENS - MAX_TOKENS));
}

static void check_equal(const struct plan *a, const struct plan *b)
{
    const struct plan_header *h = &b->header;
    check_int(a->header.number, h->number);
    check_int(a->header.flags, h->flags);
    check_int(a->header.n_all_tokens, h->n_all_tokens);
    check_int(a->header.n_tokens, h->n_tokens);
    check_int(a->header.n_rows, h->n_rows);
    if (!check_int(a->header.n_sequences, h->n_sequences))
        return;
    check_bytes("tokens", a->tokens, b->tokens, h->n_tokens * sizeof *a->tokens);
    check_bytes("positions", a->positions, b->positions, h->n_tokens * sizeof *a->positions);
    check_bytes("rows", a->rows, b->rows, h->n_rows * sizeof *a->rows);
    check_bytes("row", a->row, b->row, h->n_rows * sizeof *a->row);
    if (check_int(a->header.n_copies, h->n_copies))
        check_bytes("copies", a->copy, b->copy, h->n_copies * sizeof *a->copy);
    for (uint32_t i = 0; i < h->n_sequences; i++) {
        const struct step_sequence *x = &a->sequences[i], *y = &b->sequences[i];
        check(x->first_token == y->first_token && x->n_tokens == y->n_tokens && x->position == y->position);
        for (uint32_t g = 0; g < 2; g++)
            if (check_int(x->table[g].n_blocks, y->table[g].n_blocks))
                check_bytes("blocks", x->table[g].blocks, y->table[g].blocks, x->table[g].n_blocks * sizeof *x->table[g].blocks);
    }
}

static void test_round_trip(void)
{
    struct plan *from = open_plan(), *to = open_plan();
    void *bytes = malloc(plan_max_bytes(from));
    for (uint64_t seed = 0; seed < 200; seed++) {
        check_begin("round trip of plan %u", (unsigned)seed);
        fill(from, seed);
        size_t n = plan_encode(from, bytes);
        check(n <= plan_max_bytes(from));
        check_int(plan_decode(to, bytes, n), 0);
        check_equal(to, from);
        struct step step = plan_step(to);
        check_int(step.n_tokens, from->header.n_tokens);
        check_int(step.n_all_tokens, from->header.n_all_tokens);
        check(step.tokens == to->tokens && step.sequences == to->sequences);
    }
    free(bytes);
    plan_close(from);
    plan_close(to);
}

/* Each refused plan lies in a block of exactly its size, so that a sanitizer sees a read beyond it. */
static int decode_exactly(struct plan *to, const void *bytes, size_t n)
{
    void *copy = malloc(n ? n : 1);
    memcpy(copy, bytes, n);
    int err = plan_decode(to, copy, n);
    free(copy);
    return err;
}

static void test_truncated(void)
{
    struct plan *from = open_plan(), *to = open_plan();
    char *bytes = malloc(plan_max_bytes(from) + 8);
    check_begin("a plan cut anywhere, or with bytes behind it, is ERR_PEER");
    fill(from, 17);
    size_t n = plan_encode(from, bytes);
    memset(bytes + n, 0, 8);
    for (size_t cut = 0; cut < n; cut++)
        check_int(decode_exactly(to, bytes, cut), ERR_PEER);
    check_int(decode_exactly(to, bytes, n + 1), ERR_PEER);
    check_int(decode_exactly(to, bytes, n + 8), ERR_PEER);
    free(bytes);
    plan_close(from);
    plan_close(to);
}

/* A header's field is set to a value; n_bytes is made to agree where the field would only be caught by that. */
static void test_lies(void)
{
    static const struct { const char *name; size_t offset; uint32_t value; } rows[] = {
        { "more tokens than there is room for", offsetof(struct plan_header, n_tokens), MAX_TOKENS + 1 },
        { "more rows", offsetof(struct plan_header, n_rows), MAX_ROWS + 1 },
        { "more sequences", offsetof(struct plan_header, n_sequences), MAX_SEQUENCES + 1 },
        { "more blocks", offsetof(struct plan_header, n_blocks), MAX_SEQUENCES * (CONTEXT / 16 + 3) + 1 },
        { "more copies", offsetof(struct plan_header, n_copies), MAX_SEQUENCES * 2 + 1 },
        { "four billion copies", offsetof(struct plan_header, n_copies), UINT32_MAX },
        { "more tokens in all groups", offsetof(struct plan_header, n_all_tokens), MAX_ALL_TOKENS + 1 },
        { "fewer tokens in all groups than in this one", offsetof(struct plan_header, n_all_tokens), 1 },
        { "another number of cache groups", offsetof(struct plan_header, n_cache_groups), 1 },
        { "a late input longer than there can be", offsetof(struct plan_header, late_room) + 4, 1 },
        { "flags that there are not", offsetof(struct plan_header, flags), PLAN_FLAGS + 1 },
        { "four billion tokens", offsetof(struct plan_header, n_tokens), UINT32_MAX },
        { "four billion rows", offsetof(struct plan_header, n_rows), UINT32_MAX },
        { "four billion sequences", offsetof(struct plan_header, n_sequences), UINT32_MAX },
        { "four billion blocks", offsetof(struct plan_header, n_blocks), UINT32_MAX },
        { "two billion tokens", offsetof(struct plan_header, n_tokens), 0x80000000u },
        { "no tokens where there are some", offsetof(struct plan_header, n_tokens), 0 },
    };
    struct plan *from = open_plan(), *to = open_plan();
    size_t room = 4 * plan_max_bytes(from);
    char *bytes = malloc(room);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        check_begin("a plan of %s is ERR_PEER", rows[i].name);
        fill(from, 17);
        size_t n = plan_encode(from, bytes);
        memcpy(bytes + rows[i].offset, &rows[i].value, sizeof rows[i].value);
        check_int(decode_exactly(to, bytes, n), ERR_PEER);
        check_int(decode_exactly(to, bytes, room), ERR_PEER);
    }
    free(bytes);
    plan_close(from);
    plan_close(to);
}

/* What a follower would read or write wildly for.  The plan: header, 5 tokens, 1 row, what is done with it, a sequence of the
 * first token, at position 5, and one of 4 tokens from position 14; for the first 1 block of each cache group, for the other 2. */
enum { AT_TOKEN = sizeof(struct plan_header), AT_ROW = AT_TOKEN + 5 * 4, AT_PARAMS = AT_ROW + 4,
       AT_SEQUENCE = AT_PARAMS + sizeof(struct plan_row) + 8, AT_BLOCK = AT_SEQUENCE + 8 + 2 * 4, END = AT_BLOCK + 4 * 4 };

static void test_inner_lies(void)
{
    static const struct { const char *name; size_t offset; uint32_t value; } rows[] = {
        { "a token beyond the vocabulary", AT_TOKEN, VOCAB },
        { "a negative token", AT_TOKEN + 8, UINT32_MAX },
        { "a row of a token that is not there", AT_ROW, 5 },
        { "a negative row", AT_ROW, UINT32_MAX },
        { "a temperature that is not a number", AT_PARAMS + offsetof(struct sample_params, temperature), 0x7fc00000 },
        { "no top-p", AT_PARAMS + offsetof(struct sample_params, top_p), 0 },
        { "more top logprobs than anybody gets", AT_PARAMS + offsetof(struct plan_row, n_top), SAMPLE_MAX_TOP + 1 },
        { "logprobs that are wanted twice", AT_PARAMS + offsetof(struct plan_row, wants_logprobs), 2 },
        { "a min-p above 1", AT_PARAMS + offsetof(struct sample_params, min_p), 0x40000000 },
        { "a token to be picked elsewhere", AT_PARAMS + offsetof(struct plan_row, position), 7 },
        { "a sequence beyond its blocks", AT_SEQUENCE, 30 },
        { "blocks of no sequence", AT_SEQUENCE, 12 },
        { "a sequence beyond the context", AT_SEQUENCE, CONTEXT - 2 },
        { "a sequence whose end wraps", AT_SEQUENCE, UINT32_MAX },
        { "a sequence of more tokens than there are", AT_SEQUENCE + 4, 5 },
        { "tokens of no sequence", AT_SEQUENCE + 4, 3 },
        { "a sequence without tokens", AT_SEQUENCE + 4, 0 },
        { "a block that the cache has not", AT_BLOCK, MAX_SEQUENCES * CONTEXT / 16 },
        { "a block that the window's cache has not", AT_BLOCK + 3 * 4, MAX_SEQUENCES * 3 },
    };
    struct plan *from = open_plan(), *to = open_plan();
    char *bytes = malloc(plan_max_bytes(from));
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        check_begin("a plan with %s is ERR_PEER", rows[i].name);
        plan_clear(from);
        add_sequence(from, i, 1, 5);
        add_sequence(from, i, 4, 14);
        add_row(from, i, 0);
        from->header.n_all_tokens = 5;
        size_t n = plan_encode(from, bytes);
        check_int(n, END);
        check_int(decode_exactly(to, bytes, n), 0);
        memcpy(bytes + rows[i].offset, &rows[i].value, sizeof rows[i].value);
        check_int(decode_exactly(to, bytes, n), ERR_PEER);
    }

    static const struct plan_copy copies[] = { { 2, 0, 1 }, { 0, MAX_SEQUENCES * CONTEXT / 16, 1 }, { 1, 1, MAX_SEQUENCES * 3 }, { 0, 1, 1 },
                                               { UINT32_MAX, 0, 1 }, { 1, 0, UINT32_MAX }, { 1, 0, 1 } };
    for (size_t i = 0; i < COUNT_OF(copies); i++) {
        bool is_good = i + 1 == COUNT_OF(copies);
        check_begin("a copy of %u to %u in cache group %u is %s", copies[i].from, copies[i].to, copies[i].cache_group, is_good ? "fine" : "ERR_PEER");
        plan_clear(from);
        add_sequence(from, i, 1, 5);
        from->header.n_all_tokens = 1;
        from->header.n_copies = 1;
        from->copy[0] = copies[i];
        check_int(decode_exactly(to, bytes, plan_encode(from, bytes)), is_good ? 0 : ERR_PEER);
    }

    check_begin("a sequence beyond the context, with the blocks that it would need");
    for (uint32_t position = CONTEXT - 4; position <= CONTEXT - 3; position++) {
        plan_clear(from);
        add_sequence(from, 1, 4, position);
        from->header.n_all_tokens = 4;
        check_int(decode_exactly(to, bytes, plan_encode(from, bytes)), position + 4 <= CONTEXT ? 0 : ERR_PEER);
    }
    free(bytes);
    plan_close(from);
    plan_close(to);
}

static void test_random_bytes(void)
{
    struct plan *from = open_plan(), *to = open_plan();
    unsigned char *bytes = malloc(plan_max_bytes(from));
    check_begin("plans with random bytes changed are decoded or refused");
    for (uint64_t seed = 0; seed < 20000; seed++) {
        fill(from, seed);
        size_t n = plan_encode(from, bytes);
        for (uint32_t k = 0; k < 3; k++)
            bytes[random_u64(seed, 700 + k) % n] = (unsigned char)random_u64(seed, 800 + k);
        int err = decode_exactly(to, bytes, n);
        check(err == 0 || err == ERR_PEER);
        for (uint32_t i = 0, t = 0; err == 0 && i < to->header.n_sequences; i++) {
            const struct step_sequence *q = &to->sequences[i];
            check(q->first_token == t && q->position + q->n_tokens <= CONTEXT);
            t += q->n_tokens;
            for (uint32_t g = 0; g < 2; g++)
                for (uint32_t b = cache_blocks_first_seen(&to->limits.cache[g], q->position); b <= (q->position + q->n_tokens - 1) / 16; b++)
                    check(q->table[g].blocks[b % q->table[g].n_blocks] < to->limits.cache[g].n_all);
        }
        for (uint32_t i = 0; err == 0 && i < to->header.n_copies; i++)
            check(to->copy[i].cache_group < 2 && MAX(to->copy[i].from, to->copy[i].to) < to->limits.cache[to->copy[i].cache_group].n_all);
    }
    free(bytes);
    plan_close(from);
    plan_close(to);
}

int main(void)
{
    test_round_trip();
    test_truncated();
    test_lies();
    test_inner_lies();
    test_random_bytes();
    return check_done();
}
