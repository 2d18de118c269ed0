/* plan.c: a plan as bytes.  Header; tokens; rows; what is done with each row; copies; sequences; the tables of each sequence in
 * turn.
 * What follows from something else does not travel: positions, where a sequence's tokens begin, how long its tables are. */
#include "engine/plan.h"

#include "base/base.h"
#include "base/error.h"
#include "engine/late.h"

#include <stdlib.h>
#include <string.h>

struct wire_sequence {
    uint32_t position, n_tokens;
};

int plan_open(struct plan **out, const struct plan_limits *limits)
{
    struct plan *p = calloc(1, sizeof *p);
    if (p) {
        p->limits = *limits;
        for (uint32_t g = 0; g < limits->n_cache_groups; g++)
            p->max_blocks += limits->n_sequences * limits->cache[g].n_sequence;
        p->max_copies = limits->n_sequences * limits->n_cache_groups;
        p->tokens = calloc(limits->n_tokens, sizeof *p->tokens);
        p->positions = calloc(limits->n_tokens, sizeof *p->positions);
        p->rows = calloc(limits->n_rows, sizeof *p->rows);
        p->row = calloc(limits->n_rows, sizeof *p->row);
        p->sequences = calloc(limits->n_sequences, sizeof *p->sequences);
        p->blocks = calloc(p->max_blocks + 1, sizeof *p->blocks);
        p->copy = calloc(p->max_copies + 1, sizeof *p->copy);
    }
    if (!p || !p->tokens || !p->positions || !p->rows || !p->row || !p->sequences || !p->blocks || !p->copy) {
        plan_close(p);
        return error_set(ERR_NO_MEMORY, "no memory for a step plan");
    }
    *out = p;
    return 0;
}

void plan_close(struct plan *p)
{
    if (!p)
        return;
    free(p->tokens);
    free(p->positions);
    free(p->rows);
    free(p->row);
    free(p->sequences);
    free(p->blocks);
    free(p->copy);
    free(p);
}

void plan_clear(struct plan *p)
{
    p->header = (struct plan_header){ 0 };
}

static size_t wire_bytes(uint32_t n_tokens, uint32_t n_rows, uint32_t n_sequences, uint32_t n_blocks, uint32_t n_copies)
{
    return sizeof(struct plan_header) + sizeof(int32_t) * ((size_t)n_tokens + n_rows) + sizeof(struct plan_row) * n_rows +
           sizeof(struct wire_sequence) * n_sequences + sizeof(uint32_t) * n_blocks + sizeof(struct plan_copy) * n_copies;
}

size_t plan_max_bytes(const struct plan *p)
{
    return wire_bytes(p->limits.n_tokens, p->limits.n_rows, p->limits.n_sequences, p->max_blocks, p->max_copies);
}

/* ---- encode ---- */
static char *put(char *at, const void *from, size_t n_bytes)
{
    if (n_bytes)
        memcpy(at, from, n_bytes);
    return at + n_bytes;
}

size_t plan_encode(const struct plan *p, void *bytes)
{
    struct plan_header header = p->header;
    const struct plan_limits *most = &p->limits;
    assert(header.n_tokens <= most->n_tokens && header.n_rows <= most->n_rows && header.n_sequences <= most->n_sequences &&
           header.n_copies <= p->max_copies);
    char *at = (char *)bytes + sizeof header;
    header.n_cache_groups = most->n_cache_groups;
    header.n_blocks = 0;
    at = put(at, p->tokens, header.n_tokens * sizeof *p->tokens);
    at = put(at, p->rows, header.n_rows * sizeof *p->rows);
    at = put(at, p->row, header.n_rows * sizeof *p->row);
    at = put(at, p->copy, header.n_copies * sizeof *p->copy);
    for (uint32_t i = 0; i < header.n_sequences; i++) {
        struct wire_sequence wire = { p->sequences[i].position, p->sequences[i].n_tokens };
        at = put(at, &wire, sizeof wire);
    }
    for (uint32_t i = 0; i < header.n_sequences; i++)
        for (uint32_t g = 0; g < most->n_cache_groups; g++) {
            const struct step_table *table = &p->sequences[i].table[g];
            at = put(at, table->blocks, table->n_blocks * sizeof *table->blocks);
            header.n_blocks += table->n_blocks;
        }
    assert(header.n_blocks <= p->max_blocks);
    header.n_bytes = (size_t)(at - (char *)bytes);
    memcpy(bytes, &header, sizeof header);
    return header.n_bytes;
}

/* ---- decode ---- */
static const char *take(void *to, const char *at, size_t n_bytes)
{
    if (n_bytes)
        memcpy(to, at, n_bytes);
    return at + n_bytes;
}

static int check_header(const struct plan *p, const struct plan_header *h, size_t n_bytes)
{
    const struct plan_limits *most = &p->limits;
    if (h->n_tokens > most->n_tokens || h->n_rows > most->n_rows || h->n_sequences > most->n_sequences || h->n_blocks > p->max_blocks ||
        h->n_copies > p->max_copies || h->n_all_tokens > most->n_all_tokens || h->n_all_tokens < h->n_tokens ||
        h->n_cache_groups != most->n_cache_groups || h->flags & ~(unsigned)PLAN_FLAGS ||
        h->late_room > late_max_bytes(h->n_rows, most->n_vocab) || h->n_bytes != n_bytes ||
        wire_bytes(h->n_tokens, h->n_rows, h->n_sequences, h->n_blocks, h->n_copies) != n_bytes)
        return error_set(ERR_PEER, "step plan %u of %zu bytes does not fit this rank", h->number, n_bytes);
    return 0;
}

/* Blocks have been taken over; each table gets its part of them.  What no token sees may be any number. */
static int take_tables(struct plan *p, struct step_sequence *s, uint32_t *n_taken)
{
    for (uint32_t g = 0; g < p->limits.n_cache_groups; g++) {
        const struct cache_blocks *cache = &p->limits.cache[g];
        uint32_t n = cache_blocks_table(cache, s->position + s->n_tokens);
        uint32_t *blocks = p->blocks + *n_taken;
        if (n > p->header.n_blocks - *n_taken)
            return error_set(ERR_PEER, "step plan %u has fewer blocks than its sequences need", p->header.number);
        for (uint32_t b = cache_blocks_first_seen(cache, s->position); b < DIV_UP(s->position + s->n_tokens, BLOCK_TOKENS); b++)
            if (blocks[b % n] >= cache->n_all)
                return error_set(ERR_PEER, "step plan %u names block %u of %u", p->header.number, blocks[b % n], cache->n_all);
        s->table[g] = (struct step_table){ n, blocks };
        *n_taken += n;
    }
    return 0;
}

static int take_sequences(struct plan *p, const char *at)
{
    const struct plan_header *h = &p->header;
    uint32_t n_tokens = 0, n_blocks = 0;
    take(p->blocks, at + h->n_sequences * sizeof(struct wire_sequence), h->n_blocks * sizeof *p->blocks);
    for (uint32_t i = 0; i < h->n_sequences; i++) {
        struct wire_sequence wire;
        at = take(&wire, at, sizeof wire);
        if (!wire.n_tokens || wire.n_tokens > h->n_tokens - n_tokens || (uint64_t)wire.position + wire.n_tokens > p->limits.context)
            return error_set(ERR_PEER, "step plan %u has a sequence with more tokens than the plan or the context", h->number);
        p->sequences[i] = (struct step_sequence){ n_tokens, wire.n_tokens, wire.position, .table = { { 0 } } };
        for (uint32_t t = 0; t < wire.n_tokens; t++)
            p->positions[n_tokens++] = (int32_t)(wire.position + t);
        int err = take_tables(p, &p->sequences[i], &n_blocks);
        if (err < 0)
            return err;
    }
    if (n_tokens != h->n_tokens || n_blocks != h->n_blocks)
        return error_set(ERR_PEER, "step plan %u has tokens or blocks that belong to no sequence", h->number);
    return 0;
}

static int check_copies(const struct plan *p)
{
    for (uint32_t i = 0; i < p->header.n_copies; i++) {
        const struct plan_copy *c = &p->copy[i];
        uint32_t n = c->cache_group < p->limits.n_cache_groups ? p->limits.cache[c->cache_group].n_all : 0;
        if (c->from >= n || c->to >= n || c->from == c->to)
            return error_set(ERR_PEER, "step plan %u copies a block that there is not", p->header.number);
    }
    return 0;
}

static int check_rows(const struct plan *p)
{
    const struct plan_header *h = &p->header;
    for (uint32_t i = 0; i < h->n_tokens; i++)
        if (p->tokens[i] < 0 || (uint32_t)p->tokens[i] >= p->limits.n_vocab)
            return error_set(ERR_PEER, "step plan %u has token %d of a vocabulary of %u", h->number, p->tokens[i], p->limits.n_vocab);
    for (uint32_t i = 0; i < h->n_rows; i++) {
        if (p->rows[i] < 0 || (uint32_t)p->rows[i] >= h->n_tokens)
            return error_set(ERR_PEER, "step plan %u wants row %d of %u tokens", h->number, p->rows[i], h->n_tokens);
        if (p->row[i].position != (uint32_t)p->positions[p->rows[i]] + 1 || sample_check(&p->row[i].params) < 0 ||
            p->row[i].n_top > SAMPLE_MAX_TOP || p->row[i].wants_logprobs > 1)
            return error_set(ERR_PEER, "step plan %u wants a token picked in a way that there is not", h->number);
    }
    return 0;
}

int plan_decode(struct plan *p, const void *bytes, size_t n_bytes)
{
    const char *at = bytes;
    struct plan_header h;
    int err;
    if (n_bytes < sizeof h)
        return error_set(ERR_PEER, "a step plan of %zu bytes is too short", n_bytes);
    at = take(&h, at, sizeof h);
    if ((err = check_header(p, &h, n_bytes)) < 0)
        return err;
    p->header = h;
    at = take(p->tokens, at, h.n_tokens * sizeof *p->tokens);
    at = take(p->rows, at, h.n_rows * sizeof *p->rows);
    at = take(p->row, at, h.n_rows * sizeof *p->row);
    at = take(p->copy, at, h.n_copies * sizeof *p->copy);
    if ((err = check_copies(p)) < 0 || (err = take_sequences(p, at)) < 0)
        return err;
    return check_rows(p);
}

struct step plan_step(const struct plan *p)
{
    return (struct step){ .n_tokens = p->header.n_tokens, .n_rows = p->header.n_rows, .n_sequences = p->header.n_sequences,
                          .n_all_tokens = p->header.n_all_tokens, .tokens = p->tokens, .positions = p->positions, .rows = p->rows,
                          .sequences = p->sequences };
}
