/* test_plan.c: a step plan on the wire: what goes in comes out, and bytes that lie are refused without a look beyond them. */
#include "engine/plan.h"
#include "base/error.h"
#include "base/random.h"
#include "tests/check.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_TOKENS = 40, MAX_ROWS = 7, MAX_SEQUENCES = 5, MAX_BLOCKS = 30 };

static struct plan *open_plan(void)
{
    struct plan *plan = NULL;
    check_int(plan_open(&plan, MAX_TOKENS, MAX_ROWS, MAX_SEQUENCES, MAX_BLOCKS), 0);
    return plan;
}

static void fill(struct plan *p, uint64_t seed)
{
    struct plan_header *h = &p->header;
    plan_clear(p);
    h->number = (uint32_t)seed;
    h->flags = (uint32_t)(random_u64(seed, 0) & 15);
    h->n_tokens = (uint32_t)(random_u64(seed, 1) % (MAX_TOKENS + 1));
    h->n_rows = h->n_tokens ? (uint32_t)(random_u64(seed, 2) % (MAX_ROWS + 1)) : 0;
    h->n_sequences = (uint32_t)(random_u64(seed, 3) % (MAX_SEQUENCES + 1));
    for (uint32_t i = 0; i < h->n_tokens; i++) {
        p->tokens[i] = (int32_t)(random_u64(seed, 100 + i) % 50000);
        p->positions[i] = (int32_t)(random_u64(seed, 200 + i) % 8192);
    }
    for (uint32_t i = 0; i < h->n_rows; i++) {
        p->rows[i] = (int32_t)(random_u64(seed, 300 + i) % h->n_tokens);
        p->row[i] = (struct plan_row){ .params = { .temperature = 0.5f, .top_p = 0.25f, .top_k = i, .choice = 3, .seed = random_u64(seed, 400 + i) }, .position = 7 * i };
    }
    uint32_t n_blocks = 0;
    for (uint32_t i = 0; i < h->n_sequences; i++) {
        uint32_t n = (uint32_t)(random_u64(seed, 500 + i) % (MAX_BLOCKS / MAX_SEQUENCES + 1));
        uint32_t first = (uint32_t)(random_u64(seed, 550 + i) % (h->n_tokens + 1));
        p->sequences[i] = (struct step_sequence){ first, h->n_tokens - first, 3 * i, n, p->blocks + n_blocks };
        for (uint32_t k = 0; k < n; k++, n_blocks++)
            p->blocks[n_blocks] = (uint32_t)random_u64(seed, 600 + n_blocks);
    }
    h->n_blocks = n_blocks;
}

static void check_equal(const struct plan *a, const struct plan *b)
{
    const struct plan_header *h = &b->header;
    check_int(a->header.number, h->number);
    check_int(a->header.flags, h->flags);
    check_int(a->header.n_tokens, h->n_tokens);
    check_int(a->header.n_rows, h->n_rows);
    check_int(a->header.n_blocks, h->n_blocks);
    if (!check_int(a->header.n_sequences, h->n_sequences))
        return;
    check_bytes("tokens", a->tokens, b->tokens, h->n_tokens * sizeof *a->tokens);
    check_bytes("positions", a->positions, b->positions, h->n_tokens * sizeof *a->positions);
    check_bytes("rows", a->rows, b->rows, h->n_rows * sizeof *a->rows);
    check_bytes("row", a->row, b->row, h->n_rows * sizeof *a->row);
    for (uint32_t i = 0; i < h->n_sequences; i++) {
        const struct step_sequence *x = &a->sequences[i], *y = &b->sequences[i];
        check(x->first_token == y->first_token && x->n_tokens == y->n_tokens && x->position == y->position);
        if (check_int(x->n_blocks, y->n_blocks))
            check_bytes("blocks", x->blocks, y->blocks, x->n_blocks * sizeof *x->blocks);
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
        { "more blocks", offsetof(struct plan_header, n_blocks), MAX_BLOCKS + 1 },
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

    check_begin("sequences that claim other blocks than there are");
    for (uint64_t seed = 0; seed < 50; seed++) {
        fill(from, seed);
        if (from->header.n_sequences < 2 || !from->header.n_blocks)
            continue;
        size_t n = plan_encode(from, bytes), at = n - sizeof(uint32_t) * from->header.n_blocks - 16;      /* the last sequence */
        uint32_t more = UINT32_MAX;
        memcpy(bytes + at + 12, &more, sizeof more);
        check_int(decode_exactly(to, bytes, n), ERR_PEER);
    }
    free(bytes);
    plan_close(from);
    plan_close(to);
}

/* What a follower would read wildly for. */
static void test_inner_lies(void)
{
    static const struct { const char *name; size_t offset; uint32_t value; } rows[] = {
        { "blocks that belong to nobody", 12, 1 },
        { "a sequence that begins behind the tokens", 0, 4 },
        { "a sequence of more tokens than there are", 4, 4 },
        { "a sequence whose end wraps", 0, UINT32_MAX },
        { "a row of a token that is not there", (size_t)-(int)(sizeof(struct plan_row) + sizeof(int32_t)), 3 },
        { "a negative row", (size_t)-(int)(sizeof(struct plan_row) + sizeof(int32_t)), UINT32_MAX },
    };
    struct plan *from = open_plan(), *to = open_plan();
    char *bytes = malloc(plan_max_bytes(from));
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        check_begin("a plan with %s is ERR_PEER", rows[i].name);
        fill(from, 1);
        from->header.n_tokens = 3;
        from->header.n_rows = from->header.n_sequences = 1;
        from->rows[0] = 2;
        from->sequences[0] = (struct step_sequence){ 0, 3, 0, 2, from->blocks };
        size_t n = plan_encode(from, bytes), sequence = n - 2 * sizeof(uint32_t) - 16;
        check_int(decode_exactly(to, bytes, n), 0);
        memcpy(bytes + sequence + rows[i].offset, &rows[i].value, sizeof rows[i].value);
        check_int(decode_exactly(to, bytes, n), ERR_PEER);
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
        uint32_t n_blocks = 0;
        for (uint32_t i = 0; err == 0 && i < to->header.n_sequences; i++)
            n_blocks += to->sequences[i].n_blocks;
        check(err < 0 || n_blocks <= MAX_BLOCKS);
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
