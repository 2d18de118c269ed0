/* engine_impl.h: shared by engine.c (open, close), leader.c (sequences, plans), follower.c (the loop of a rank) and result.c
 * (candidates and logits on their way to the leader). */
#ifndef STOA_ENGINE_IMPL_H
#define STOA_ENGINE_IMPL_H

#include "engine/engine.h"
#include "engine/plan.h"

enum control_tag { TAG_PLAN = 1, TAG_RESULT, TAG_COUNTERS };

/* One plan in flight. */
struct flight {
    struct plan *plan;
    struct sequence **row_sequence;     /* [max_rows]: whose each wanted row is */
    struct sequence **sequence;         /* [max_sequences]: who takes part */
    char *bytes;                        /* the encoded plan, until all sends are done */
    struct comm_request *request;       /* [n_ranks] */
    struct buffer own_result;           /* the leader's own, when it is in the last stage */
};

struct engine {
    struct engine_options options;
    struct model_info model;
    struct comm *world, *control, *stages, *axis[N_AXES];
    struct pool *pool;
    struct program *program;
    const struct kernels *kernels;
    struct mesh mesh;
    uint32_t rank, n_ranks;
    bool is_last_stage;
    const float *logits;                /* of this rank's slice after a step */
    uint32_t n_slice;                   /* its columns */
    struct range vocab;                 /* and which ids they are */
    float *row_max;                     /* [max_rows] */
    struct plan *plan;                  /* follower: the decoded plan */
    char *plan_bytes;
    struct buffer result;

    /* the leader */
    struct sequence *sequences;         /* linked, oldest first */
    uint32_t n_sequences;
    struct flight *flight;              /* ring of n_flights */
    uint32_t n_flights, first_flight, n_in_flight, next_number;
    bool has_failed;                    /* other ranks may be anywhere: nothing can be asked of them any more */
    uint32_t *free_block, n_free_blocks, n_blocks;
    struct candidate *candidates;       /* merged, grown when needed */
    size_t candidates_room;
    float *full_row;                    /* [n_vocab] */
    struct buffer *incoming;            /* [ranks of the last stage] */
};

/* result.c */
/* This rank's part of the plan's result, for the leader. */
int result_collect(struct engine *e, const struct plan *plan, struct buffer *out);
/* Leader: rank by rank of the last stage; takes rows from `incoming` and hands them to their sequences. */
int result_apply(struct engine *e, struct flight *f);

/* engine.c */
/* Runs a plan's step, or nothing when it has no tokens; on a rank of the last stage the result is in *out. */
int engine_run_plan(struct engine *e, const struct plan *plan, struct buffer *out);
void engine_own_counters(struct engine *e, struct rank_counters *out, bool reset);
uint32_t engine_last_stage_rank(const struct engine *e, uint32_t i);    /* i-th rank of the last stage */

/* leader.c */
int leader_open(struct engine *e);
void leader_close(struct engine *e);
void leader_take_token(struct sequence *s, int32_t id);
void leader_take_row(struct sequence *s, uint32_t position, const float *logits, uint32_t n_vocab);
bool leader_wants_token(const struct sequence *s, uint32_t position);

#endif
