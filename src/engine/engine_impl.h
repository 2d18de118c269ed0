/* engine_impl.h: shared by engine.c (open, close), follower.c (the loop of a rank), result.c (candidates and logits on their way
 * to the leader), and the leader's three: sequence.c, flight.c (plans on their way) and leader.c (what goes into them). */
#ifndef STOA_ENGINE_IMPL_H
#define STOA_ENGINE_IMPL_H

#include "engine/engine.h"
#include "engine/plan.h"

enum control_tag { TAG_PLAN = 1, TAG_RESULT, TAG_COUNTERS };

struct sequence {
    struct sequence *next;              /* in its group */
    uint32_t group;                     /* along dp: its keys and values are in that group's ranks as long as it lives */
    struct sequence_request request;
    int32_t *tokens;
    uint32_t n_tokens, n_planned, n_in_flight;
    uint32_t n_stored;                  /* most positions that the cache has held of it since it last began anew */
    uint32_t *table[GRAPH_MAX_CACHE_GROUPS], n_blocks[GRAPH_MAX_CACHE_GROUPS];
    bool stopped;                       /* nothing more is planned of it; how it ended: */
    enum sequence_end end;              /* SEQUENCE_RUNS also when n_new has been reached */
    int32_t stop_id, *stop_ids;
    char why[128];                      /* of SEQUENCE_FAILED */
};

/* One group along dp, as the leader sees it. */
struct group {
    struct sequence *sequences;         /* linked, oldest first */
    uint32_t n_sequences;
    struct block_pool pool[GRAPH_MAX_CACHE_GROUPS];
};

/* One plan in flight: of one group, for one step. */
struct group_plan {
    struct plan *plan;
    struct sequence **row_sequence;     /* [n_rows]: whose each wanted row is */
    struct sequence **sequence;         /* [n_sequences]: who takes part */
    char *bytes;                        /* the encoded plan, until all sends are done */
};

/* One step in flight. */
struct flight {
    struct group_plan *group;           /* [dp] */
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
    struct probe *probe;                /* from the first engine_probe() on */
    struct peaks peaks;
    struct mesh mesh;
    uint32_t rank, n_ranks;
    struct rank_process *processes;     /* [n_ranks] */
    bool is_last_stage;
    const float *logits;                /* of this rank's slice after a step */
    uint32_t n_slice;                   /* its columns */
    struct range vocab;                 /* and which ids they are */
    float *row_max;                     /* [n_rows] */
    struct plan_limits limits;          /* of the plans of every group */
    struct plan *plan;                  /* follower: the decoded plan */
    char *plan_bytes;
    struct buffer result;

    /* the leader */
    uint32_t n_groups;                  /* along dp */
    struct group *group;                /* [n_groups] */
    struct flight *flight;              /* ring of n_flights */
    uint32_t n_flights, first_flight, n_in_flight, next_number;
    bool has_failed;                    /* other ranks may be anywhere: nothing can be asked of them any more */
    struct candidate *candidates;       /* merged, grown when needed */
    size_t candidates_room;
    float *full_row;                    /* [n_vocab] */
    struct buffer *incoming;            /* [ranks of a group's last stage] */
    size_t *taken;                      /* [the same]: how much of each has been taken over */
};

/* process.c */
/* Collective over the world. */
int processes_gather(struct rank_process **out, struct comm *world);

/* result.c */
/* This rank's part of the plan's result, for the leader. */
int result_collect(struct engine *e, const struct plan *plan, struct buffer *out);
/* Leader: group by group, rank by rank of the last stage, takes rows and hands them to their sequences. */
int result_apply(struct engine *e, struct flight *f);

/* engine.c */
/* Runs a plan's step, or nothing when no group has tokens in it; on a rank of the last stage the result is in *out. */
int engine_run_plan(struct engine *e, const struct plan *plan, struct buffer *out);
/* Whether this rank owes the leader a result for the plan: one of no bytes when its group has no token in the step, so that no
 * rank falls behind. */
bool engine_owes_result(const struct engine *e, const struct plan *plan);
int engine_own_probe(struct engine *e);
void engine_own_counters(struct engine *e, struct rank_counters *out, bool reset);
/* i-th rank of the last stage of a group along dp */
uint32_t engine_last_stage_rank(const struct engine *e, uint32_t group, uint32_t i);

/* leader.c */
int leader_open(struct engine *e);
void leader_close(struct engine *e);

/* flight.c */
int flight_open(struct engine *e, struct flight *f);
void flight_release(struct engine *e, struct flight *f);
/* The one after all that are in flight; there is room for it. */
struct flight *flight_next(struct engine *e);
/* Sends every group its plan. */
int flight_send(struct engine *e, struct flight *f);
/* Sends a step without tokens, after all others are done: counters, stop. */
int flight_send_empty(struct engine *e, unsigned flags);
/* Waits for the result of the oldest step in flight and takes it over. */
int flight_collect_oldest(struct engine *e);
/* After an error: drops all that is in flight.  Returns err. */
int flight_fail(struct engine *e, int err);

/* sequence.c */
bool sequence_wants_prefill(const struct sequence *s);
/* Has a token to generate, in flight or not. */
bool sequence_is_running(const struct sequence *s);
bool sequence_wants_decode(const struct sequence *s);
bool sequence_wants_token(const struct sequence *s, uint32_t position);
/* What was picked for its next position, event->index left to be filled in. */
void sequence_take_token(struct sequence *s, struct token_event *event);
/* The first end of several is the one that counts. */
void sequence_end_with(struct sequence *s, enum sequence_end end);
/* SEQUENCE_FAILED, with the line of the error that is set. */
void sequence_fail(struct sequence *s);
void sequence_take_row(struct sequence *s, uint32_t position, const float *logits, uint32_t n_vocab);

#endif
