#include "engine/plan.h"

#include "base/base.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

/* A sequence on the wire: its blocks follow all others in order. */
struct wire_sequence {
    uint32_t first_token, n_tokens, position, n_blocks;
};

int plan_open(struct plan **out, uint32_t max_tokens, uint32_t max_rows, uint32_t max_sequences, uint32_t max_blocks)
{
    struct plan *p = calloc(1, sizeof *p);
    if (p) {
        p->max_tokens = max_tokens;
        p->max_rows = max_rows;
        p->max_sequences = max_sequences;
        p->max_blocks = max_blocks;
        p->tokens = calloc(max_tokens, sizeof *p->tokens);
        p->positions = calloc(max_tokens, sizeof *p->positions);
        p->rows = calloc(max_rows, sizeof *p->rows);
        p->row = calloc(max_rows, sizeof *p->row);
        p->sequences = calloc(max_sequences, sizeof *p->sequences);
        p->blocks = calloc(max_blocks, sizeof *p->blocks);
    }
    if (!p || !p->tokens || !p->positions || !p->rows || !p->row || !p->sequences || !p->blocks) {
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
    free(p);
}

void plan_clear(struct plan *p)
{
    p->header = (struct plan_header){ 0 };
}

size_t plan_max_bytes(const struct plan *p)
{
    return sizeof p->header + sizeof(int32_t) * (2 * (size_t)p->max_tokens + p->max_rows) + sizeof(struct plan_row) * p->max_rows +
           sizeof(struct wire_sequence) * p->max_sequences + sizeof(uint32_t) * p->max_blocks;
}

static char *put(char *at, const void *from, size_t n_bytes)
{
    if (n_bytes)
        memcpy(at, from, n_bytes);
    return at + n_bytes;
}

static const char *take(void *to, const char *at, size_t n_bytes)
{
    if (n_bytes)
        memcpy(to, at, n_bytes);
    return at + n_bytes;
}

size_t plan_encode(const struct plan *p, void *bytes)
{
    struct plan_header header = p->header;
    char *at = (char *)bytes + sizeof header;
    header.n_blocks = 0;
    at = put(at, p->tokens, header.n_tokens * sizeof *p->tokens);
    at = put(at, p->positions, header.n_tokens * sizeof *p->positions);
    at = put(at, p->rows, header.n_rows * sizeof *p->rows);
    at = put(at, p->row, header.n_rows * sizeof *p->row);
    for (uint32_t i = 0; i < header.n_sequences; i++) {
        const struct step_sequence *s = &p->sequences[i];
        struct wire_sequence wire = { s->first_token, s->n_tokens, s->position, s->table[0].n_blocks };
        at = put(at, &wire, sizeof wire);
        header.n_blocks += s->table[0].n_blocks;
    }
    for (uint32_t i = 0; i < header.n_sequences; i++)
        at = put(at, p->sequences[i].table[0].blocks, p->sequences[i].table[0].n_blocks * sizeof(uint32_t));
    header.n_bytes = (size_t)(at - (char *)bytes);
    memcpy(bytes, &header, sizeof header);
    return header.n_bytes;
}

int plan_decode(struct plan *p, const void *bytes, size_t n_bytes)
{
    const char *at = bytes;
    struct plan_header h;
    if (n_bytes < sizeof h)
        return error_set(ERR_PEER, "a step plan of %zu bytes is too short", n_bytes);
    at = take(&h, at, sizeof h);
    size_t wanted = sizeof h + sizeof(int32_t) * (2 * (size_t)h.n_tokens + h.n_rows) + sizeof(struct plan_row) * h.n_rows +
                    sizeof(struct wire_sequence) * h.n_sequences + sizeof(uint32_t) * h.n_blocks;
    if (h.n_tokens > p->max_tokens || h.n_rows > p->max_rows || h.n_sequences > p->max_sequences || h.n_blocks > p->max_blocks ||
        h.n_bytes != n_bytes || wanted != n_bytes)
        return error_set(ERR_PEER, "step plan %u of %zu bytes does not fit this rank", h.number, n_bytes);
    p->header = h;
    at = take(p->tokens, at, h.n_tokens * sizeof *p->tokens);
    at = take(p->positions, at, h.n_tokens * sizeof *p->positions);
    at = take(p->rows, at, h.n_rows * sizeof *p->rows);
    at = take(p->row, at, h.n_rows * sizeof *p->row);
    uint32_t n_blocks = 0;
    for (uint32_t i = 0; i < h.n_sequences; i++) {
        struct wire_sequence wire;
        at = take(&wire, at, sizeof wire);
        if (wire.n_blocks > h.n_blocks - n_blocks || (uint64_t)wire.first_token + wire.n_tokens > h.n_tokens)
            return error_set(ERR_PEER, "step plan %u has a sequence with more blocks or tokens than the plan", h.number);
        p->sequences[i] = (struct step_sequence){ wire.first_token, wire.n_tokens, wire.position, .table = { { wire.n_blocks, p->blocks + n_blocks } } };
        n_blocks += wire.n_blocks;
    }
    if (n_blocks != h.n_blocks)
        return error_set(ERR_PEER, "step plan %u has %u blocks that belong to no sequence", h.number, h.n_blocks - n_blocks);
    for (uint32_t i = 0; i < h.n_rows; i++)
        if ((uint32_t)p->rows[i] >= h.n_tokens)
            return error_set(ERR_PEER, "step plan %u wants row %d of %u tokens", h.number, p->rows[i], h.n_tokens);
    take(p->blocks, at, n_blocks * sizeof *p->blocks);
    return 0;
}

struct step plan_step(const struct plan *p)
{
    return (struct step){ .n_tokens = p->header.n_tokens, .n_rows = p->header.n_rows, .n_sequences = p->header.n_sequences,
                          .tokens = p->tokens, .positions = p->positions, .rows = p->rows, .sequences = p->sequences };
}
