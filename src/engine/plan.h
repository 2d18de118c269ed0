/* plan.h: the step plan: what the leader tells every rank to compute next.  One run of bytes, header first.
 *
 * Ranks hold no policy: a plan says which tokens at which positions with which KV blocks, which rows' outputs are wanted,
 * and how candidates for those rows are chosen.  Plans are numbered from 0 without a gap, and every rank runs every plan. */
#ifndef STOA_ENGINE_PLAN_H
#define STOA_ENGINE_PLAN_H

#include "engine/sampler.h"
#include "run/program.h"

enum plan_flags {
    PLAN_STOP = 1,              /* the last plan: ranks leave their loop; it has no tokens */
    PLAN_FULL_LOGITS = 2,       /* the last stage sends whole rows instead of candidates */
    PLAN_COUNTERS = 4,          /* each rank answers with its rank_counters */
    PLAN_RESET_COUNTERS = 8,    /* after answering */
};

struct plan_header {
    uint64_t n_bytes;
    uint32_t number, flags;
    uint32_t n_tokens, n_rows, n_sequences, n_blocks;
};

struct plan_row {
    struct sample_params params;
    uint32_t position;          /* of the token to be picked */
    uint32_t padding;
};

/* A plan with room for its maxima, made once. */
struct plan {
    struct plan_header header;
    int32_t *tokens, *positions, *rows;         /* [max_tokens], [max_tokens], [max_rows] */
    struct plan_row *row;                       /* [max_rows] */
    struct step_sequence *sequences;            /* [max_sequences]; blocks point into `blocks` */
    uint32_t *blocks;                           /* [max_blocks] */
    uint32_t max_tokens, max_rows, max_sequences, max_blocks;
};

int plan_open(struct plan **out, uint32_t max_tokens, uint32_t max_rows, uint32_t max_sequences, uint32_t max_blocks);
void plan_close(struct plan *plan);
void plan_clear(struct plan *plan);

/* Bytes of the encoded plan, at most plan_max_bytes(). */
size_t plan_max_bytes(const struct plan *plan);
size_t plan_encode(const struct plan *plan, void *bytes);
/* ERR_PEER when the bytes are no plan that fits. */
int plan_decode(struct plan *plan, const void *bytes, size_t n_bytes);

/* The plan as a step of the program; borrowed. */
struct step plan_step(const struct plan *plan);

#endif
