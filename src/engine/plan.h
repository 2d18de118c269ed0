/* plan.h: the step plan: what the leader tells the ranks of one group along dp to compute next.  One run of bytes, header first.
 *
 * Ranks hold no policy: a plan says which blocks are copied, which tokens at which positions with which KV blocks, which rows' outputs
 * are wanted (of a sequence none, one or several), and how candidates for those rows are chosen.  Plans are numbered from 0 without a
 * gap, and every rank runs every plan.  The plans of all groups with one number are one step: experts and gathered weights make every
 * rank join it, so a group without a token runs it too. */
#ifndef STOA_ENGINE_PLAN_H
#define STOA_ENGINE_PLAN_H

#include "engine/blocks.h"
#include "engine/sampler.h"
#include "run/program.h"

enum plan_flags {
    PLAN_STOP = 1,              /* the last plan: ranks leave their loop; it has no tokens */
    PLAN_FULL_LOGITS = 2,       /* the last stage sends whole rows instead of candidates */
    PLAN_COUNTERS = 4,          /* each rank answers with its rank_counters */
    PLAN_RESET_COUNTERS = 8,    /* after answering */
    PLAN_PROBE = 16,            /* each rank measures its machine's peaks, all at once */
    PLAN_BEAT = 32,             /* each rank says that it is there, with its rank_time */
    PLAN_FLAGS = 63,
};

struct plan_header {
    uint64_t n_bytes;
    uint64_t epoch;             /* engine_options.epoch: ranks of another start do not run it */
    uint64_t late_room;         /* a late input follows (late.h), so long at most; 0: none does */
    uint32_t number, flags;
    uint32_t n_all_tokens;      /* of all groups along dp in this step; 0: nothing is run */
    uint32_t n_tokens, n_rows, n_sequences, n_blocks;
    uint32_t n_cache_groups, n_copies;
};

struct plan_row {
    struct sample_params params;
    uint32_t position;          /* of the token to be picked */
    uint32_t n_top;             /* with wants_logprobs: so many of the largest logits */
    uint32_t wants_logprobs;    /* 0 or 1 */
    uint32_t padding;
};

/* Before anything is computed, one after the other: block `to` gets what `from` holds. */
struct plan_copy {
    uint32_t cache_group, from, to;
};

/* What a plan can hold, and what it can name: the same on all ranks. */
struct plan_limits {
    uint32_t n_tokens, n_rows, n_sequences;
    uint32_t n_all_tokens;
    uint32_t context, n_vocab;
    uint32_t n_cache_groups;
    struct cache_blocks cache[GRAPH_MAX_CACHE_GROUPS];
};

/* A plan with room for its limits, made once.  Sequences stand in the order of their tokens and leave no token out; their tables
 * have the length that cache_blocks_table() gives. */
struct plan {
    struct plan_header header;
    int32_t *tokens, *positions, *rows;         /* [n_tokens], [n_tokens], [n_rows] */
    struct plan_row *row;                       /* [n_rows] */
    struct step_sequence *sequences;            /* [n_sequences]; tables of a decoded plan point into `blocks` */
    uint32_t *blocks;                           /* [max_blocks] */
    uint32_t max_blocks;
    struct plan_copy *copy;                     /* [max_copies]: one of each sequence in each cache group */
    uint32_t max_copies;
    struct plan_limits limits;
};

int plan_open(struct plan **out, const struct plan_limits *limits);
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
