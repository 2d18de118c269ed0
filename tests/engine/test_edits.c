/* test_edits.c: penalties, bias and bans are what plain arithmetic says, on every slice; a late input that lies is refused. */
#include "engine/late.h"
#include "base/error.h"
#include "base/random.h"
#include "tests/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 211, MAX_TOKENS = 400 };
static const struct model_info model = { .n_vocab = VOCAB, .n_ids = VOCAB - 11 };

static const struct { const char *name; struct sample_penalties penalties; uint32_t n_bias, n_stop_ids, min_new; } rows[] = {
    { "nothing",                        { 0, 0, 0 },             0, 0, 0 },
    { "all of them off",                { 1, 0, 0 },             0, 2, 0 },
    { "repetition",                     { 1.3f, 0, 0 },          0, 0, 0 },
    { "repetition that is wanted",      { 0.7f, 0, 0 },          0, 0, 0 },
    { "frequency",                      { 0, 0.4f, 0 },          0, 0, 0 },
    { "presence",                       { 1, 0, 1.5f },          0, 0, 0 },
    { "negative frequency and presence", { 0, -2, -2 },          0, 0, 0 },
    { "bias",                           { 0, 0, 0 },             9, 0, 0 },
    { "stop ids that are banned",       { 0, 0, 0 },             0, 3, 30 },
    { "everything",                     { 1.1f, 0.3f, 0.2f },    20, 4, 10 },
};

/* The request of a row: half of the ids come often; biases lie apart, one of them is a ban. */
struct example {
    struct sequence_request request;
    int32_t tokens[MAX_TOKENS], stop_ids[8];
    struct logit_bias bias[32];
};

static void make_example(struct example *x, size_t row, uint64_t seed)
{
    *x = (struct example){ .request = { .n_tokens = 1 + (uint32_t)(random_u64(seed, 1) % 150), .n_new = 200, .min_new = rows[row].min_new,
                                        .penalties = rows[row].penalties, .n_bias = rows[row].n_bias, .n_stop_ids = rows[row].n_stop_ids } };
    x->request.n_generated = (uint32_t)(random_u64(seed, 2) % (x->request.n_tokens + 1));
    x->request.tokens = x->tokens;
    x->request.stop_ids = x->stop_ids;
    x->request.bias = x->bias;
    for (uint32_t i = 0; i < MAX_TOKENS; i++) {
        uint64_t r = random_u64(seed, 100 + i);
        x->tokens[i] = (int32_t)(r % 2 ? r / 2 % 5 : r / 2 % VOCAB);
    }
    for (uint32_t i = 0; i < 8; i++)
        x->stop_ids[i] = (int32_t)(3 + 17 * i);
    for (uint32_t i = 0; i < 32; i++)
        x->bias[i] = (struct logit_bias){ (int32_t)(6 * i + seed % 6), i % 9 == 5 ? -INFINITY : (float)i / 3 - 4 };
}

/* Plainly, in double, over the whole history. */
static double expected(const struct example *x, uint32_t n_tokens, int32_t id, double logit)
{
    const struct sequence_request *r = &x->request;
    uint32_t n_seen = 0, n_answer = 0;
    for (uint32_t i = 0; i < n_tokens; i++) {
        n_seen += x->tokens[i] == id;
        n_answer += x->tokens[i] == id && i >= r->n_tokens - r->n_generated;
    }
    for (uint32_t i = 0; i < r->n_bias; i++)
        logit += x->bias[i].id == id ? (double)x->bias[i].add : 0;
    for (uint32_t i = 0; i < r->n_stop_ids; i++)
        if (x->stop_ids[i] == id && n_tokens - r->n_tokens < r->min_new)
            logit = -INFINITY;
    if (n_seen && r->penalties.repetition != 0)
        logit = logit > 0 ? logit / (double)r->penalties.repetition : logit * (double)r->penalties.repetition;
    return n_answer ? logit - ((double)r->penalties.frequency * n_answer + (double)r->penalties.presence) : logit;
}

static void random_logits(float *logits, uint64_t seed)
{
    for (uint32_t i = 0; i < VOCAB; i++)
        logits[i] = (float)(random_u64(seed, 1000 + i) % 20000) / 1000 - 10;
}

static void check_logits(const struct example *x, uint32_t n_tokens, const float *raw, const float *edited)
{
    uint32_t n_wrong = 0;
    for (int32_t id = 0; id < VOCAB; id++) {
        double want = expected(x, n_tokens, id, (double)raw[id]);
        n_wrong += isinf(want) ? edited[id] != -INFINITY : fabs((double)edited[id] - want) > 1e-5;
    }
    check_int(n_wrong, 0);
}

/* In two slices cut anywhere, through a late input as the ranks get it. */
static void check_edits(const struct example *x, const struct edit_table *table, uint32_t n_tokens, uint64_t seed)
{
    float raw[VOCAB], whole[VOCAB], cut[VOCAB];
    struct buffer late = { 0 };
    struct late_row row[2];
    uint32_t at = (uint32_t)(random_u64(seed, 3) % (VOCAB + 1));
    random_logits(raw, seed);
    memcpy(whole, raw, sizeof raw);
    memcpy(cut, raw, sizeof raw);
    late_begin(&late, 7, late_max_bytes(1, edit_table_room(table)));
    size_t capacity = late.capacity;
    late_add_edits(&late, 1, table, n_tokens - x->request.n_tokens < x->request.min_new);
    check_int(late.capacity, capacity);
    if (!check_int(late_read(row, 2, late.bytes, late.size, 7), 0))
        return;
    check_int(row[0].n_edits, 0);
    edits_apply(whole, VOCAB, 0, row[1].edits, row[1].n_edits);
    edits_apply(cut, at, 0, row[1].edits, row[1].n_edits);
    edits_apply(cut + at, VOCAB - at, (int32_t)at, row[1].edits, row[1].n_edits);
    check_bytes("the slices", cut, whole, sizeof whole);
    check_logits(x, n_tokens, raw, whole);
    buffer_release(&late);
}

static void test_edits(void)
{
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        check_begin("%s, as a sequence grows", rows[i].name);
        for (uint64_t seed = 0; seed < 20; seed++) {
            struct example x;
            struct edit_table table;
            make_example(&x, i, seed);
            check_int(edits_check(&x.request, &model), 0);
            if (!check_int(edit_table_open(&table, &x.request, model.n_vocab), 0))
                return;
            for (uint32_t n = x.request.n_tokens; n < x.request.n_tokens + x.request.n_new; n++) {
                if (n % 16 == 0 || n < x.request.n_tokens + 35)
                    check_edits(&x, &table, n, seed * 1000 + n);
                edit_table_take(&table, x.tokens[n]);
            }
            edit_table_release(&table);
        }
    }
    check_begin("what changes nothing takes no room");
    struct example x;
    struct edit_table table;
    make_example(&x, 1, 1);
    check_int(edit_table_open(&table, &x.request, model.n_vocab), 0);
    check_int(edit_table_room(&table), 0);
}

static void test_check(void)
{
    static const struct { const char *name; struct logit_bias bias; int32_t stop_id; struct sample_penalties penalties; int want; } bad[] = {
        { "the last id", { VOCAB - 12, 100 }, VOCAB - 12, { 1, 0, 0 }, 0 },
        { "a bias on an id beyond the tokenizer's", { VOCAB - 11, 1 }, 1, { 0, 0, 0 }, ERR_USAGE },
        { "a bias far outside", { 999999, -100 }, 1, { 0, 0, 0 }, ERR_USAGE },
        { "a bias on a negative id", { -1, 5 }, 1, { 0, 0, 0 }, ERR_USAGE },
        { "a bias that is not a number", { 1, NAN }, 1, { 0, 0, 0 }, ERR_USAGE },
        { "an endless bias", { 1, INFINITY }, 1, { 0, 0, 0 }, ERR_USAGE },
        { "a stop id outside", { 1, 1 }, VOCAB, { 0, 0, 0 }, ERR_USAGE },
        { "a negative stop id", { 1, 1 }, -2, { 0, 0, 0 }, ERR_USAGE },
        { "a negative repetition", { 1, 1 }, 1, { -1, 0, 0 }, ERR_USAGE },
        { "an endless repetition", { 1, 1 }, 1, { INFINITY, 0, 0 }, ERR_USAGE },
        { "a frequency that is not a number", { 1, 1 }, 1, { 0, NAN, 0 }, ERR_USAGE },
        { "an endless presence", { 1, 1 }, 1, { 0, 0, INFINITY }, ERR_USAGE },
    };
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct sequence_request request = { .bias = &bad[i].bias, .n_bias = 1, .stop_ids = &bad[i].stop_id, .n_stop_ids = 1, .penalties = bad[i].penalties };
        check_begin("OA-11: %s", bad[i].name);
        check_int(edits_check(&request, &model), bad[i].want);
    }
}

/* In a block of exactly its size, so that a sanitizer sees a read beyond it. */
static int read_exactly(const char *bytes, size_t n_bytes, uint32_t n_rows, uint32_t number)
{
    struct late_row row[4];
    char *copy = malloc(n_bytes + !n_bytes);
    memcpy(copy, bytes, n_bytes);
    int err = late_read(row, n_rows, copy, n_bytes, number);
    for (uint32_t r = 0; err == 0 && r < n_rows; r++)
        for (uint32_t i = 0; i < row[r].n_edits; i++)
            check(row[r].edits[i].repetition > 0);
    free(copy);
    return err;
}

static void make_late(struct buffer *late)
{
    struct example x;
    struct edit_table table;
    make_example(&x, 9, 5);
    check_int(edit_table_open(&table, &x.request, model.n_vocab), 0);
    late_begin(late, 7, 0);
    for (uint32_t r = 0; r < 3; r++)
        late_add_edits(late, r, &table, true);
    edit_table_release(&table);
}

static void test_lies(void)
{
    static const struct { const char *name; size_t offset; uint32_t value; } lies[] = {
        { "of another plan", offsetof(struct late_header, number), 8 },
        { "with more sections than there are", offsetof(struct late_header, n_sections), 4 },
        { "with fewer", offsetof(struct late_header, n_sections), 2 },
        { "of another length", offsetof(struct late_header, n_bytes), 64 },
        { "with a section of a later version", sizeof(struct late_header) + offsetof(struct late_section, kind), 2 },
        { "for a row that there is not", sizeof(struct late_header) + offsetof(struct late_section, row), 3 },
        { "with four billion edits", sizeof(struct late_header) + offsetof(struct late_section, n), UINT32_MAX },
        { "with an add that is no number", sizeof(struct late_header) + sizeof(struct late_section) + offsetof(struct row_edit, add), 0x7fc00000 },
        { "that divides by nothing", sizeof(struct late_header) + sizeof(struct late_section) + offsetof(struct row_edit, repetition), 0 },
    };
    struct buffer late = { 0 };
    make_late(&late);
    check_int(read_exactly(late.bytes, late.size, 3, 7), 0);
    for (size_t i = 0; i < COUNT_OF(lies); i++) {
        char *copy = malloc(late.size);
        check_begin("a late input %s is ERR_PEER", lies[i].name);
        memcpy(copy, late.bytes, late.size);
        memcpy(copy + lies[i].offset, &lies[i].value, sizeof lies[i].value);
        check_int(read_exactly(copy, late.size, 3, 7), ERR_PEER);
        free(copy);
    }
    check_begin("a late input cut anywhere is ERR_PEER");
    for (size_t n = 0; n < late.size; n++)
        check_int(read_exactly(late.bytes, n, 3, 7), ERR_PEER);
    check_begin("late inputs with random bytes changed are read or refused");
    for (uint64_t seed = 0; seed < 5000; seed++) {
        char *copy = malloc(late.size);
        memcpy(copy, late.bytes, late.size);
        for (uint32_t k = 0; k < 3; k++)
            copy[random_u64(seed, k) % late.size] = (char)random_u64(seed, 10 + k);
        int err = read_exactly(copy, late.size, 3, 7);
        check(err == 0 || err == ERR_PEER);
        free(copy);
    }
    buffer_release(&late);
}

int main(void)
{
    test_check();
    test_edits();
    test_lies();
    return check_done();
}
