/* engine_impl.h: shared by engine.c (open, close), follower.c (the loop of a rank), result.c (candidates and logits for the leader),
 * and the leader's own: sequence.c, tables.c (its blocks), queue.c (who is next), schedule.c (what goes into a plan), flight.c (plans on
 * their way), result_merge.c (what they have brought), leader.c (its steps). */
#ifndef STOA_ENGINE_IMPL_H
#define STOA_ENGINE_IMPL_H

#include "engine/engine.h"
#include "engine/late.h"
#include "engine/pace.h"
#include "engine/plan.h"
#include "engine/queue.h"

enum control_tag { TAG_PLAN = 1, TAG_LATE, TAG_RESULT, TAG_COUNTERS, TAG_BEAT };

enum sequence_state { SEQUENCE_WAITING, SEQUENCE_RUNNING, SEQUENCE_DONE };     /* sequence.c */

struct sequence {
    struct sequence *next;              /* in the queue, in its group, or among those that are done */
    enum sequence_state state;
    uint32_t group;                     /* along dp, while it runs: its keys and values are in that group's ranks */
    struct sequence_request request;
    struct client *client;              /* until it is done */
    uint64_t arrival, since_step;       /* its number, and when it came */
    double arrived_s, begun_s;          /* when it came, and was planned first */
    int32_t *tokens;
    void *salt;                         /* of the request */
    uint32_t n_tokens, n_planned, n_in_flight;
    uint32_t n_confirmed;               /* first positions whose keys and values are there, as a collected result says */
    uint32_t next_row;                  /* rows of positions before it have been planned, or are not wanted */
    uint32_t n_stale;                   /* of n_in_flight: planned before it was pushed out; what they stored is lost, their rows count */
    uint32_t n_charged;                 /* tokens that its client has been charged for */
    uint32_t n_landed;                  /* of n_tokens: those that engine_load() counts, or that were in the request */
    uint32_t n_cached, n_preemptions;
    bool is_counted;                    /* it has been planned, so n_cached is known */
    /* Its blocks, see tables.c. */
    uint32_t *table[GRAPH_MAX_CACHE_GROUPS];            /* [n_sequence of the cache group], NO_BLOCK where there is none */
    uint32_t n_entered[GRAPH_MAX_CACHE_GROUPS];         /* blocks of positions that have had one, from 0 on */
    uint32_t root, node, n_published;   /* in the prefix cache */
    bool is_fresh;                      /* nothing of it has been planned since it was let in */
    uint64_t n_seen;                    /* while it is fresh: the group's n_published when its beginning was looked up */
    uint32_t last_plan;                 /* the number of the last one that it is in */
    uint32_t copy_from[GRAPH_MAX_CACHE_GROUPS];
    bool has_copy;                      /* the block after the published ones begins as a copy of these */
    bool stopped;                       /* nothing more is planned of it; how it ended: */
    enum sequence_end end;              /* SEQUENCE_END_NONE also when n_new has been reached */
    int32_t stop_id, *stop_ids;
    char why[128];                      /* of SEQUENCE_END_FAILED */
    struct edit_table edits;            /* of the logits of its next token */
};

/* One group along dp, as the leader sees it. */
struct group {
    struct sequence *sequences;         /* RUNNING ones, by standing: who was let in first, but within a client by priority */
    uint32_t n_sequences;
    struct block_pool pool[GRAPH_MAX_CACHE_GROUPS];
    struct prefix prefix;
    uint64_t n_published;               /* blocks that ever were */
    bool is_tight;                      /* one was pushed out, and none has ended since: nobody is let in */
};

/* One plan in flight: of one group, for one step. */
struct group_plan {
    struct plan *plan;
    struct sequence **row_sequence;     /* [n_rows]: whose each wanted row is; NULL when it has been removed */
    struct sequence **sequence;         /* [n_sequences]: who takes part */
    char *bytes;                        /* the encoded plan, until all sends are done */
    struct buffer late;                 /* and its late input, likewise */
};

/* One step in flight. */
struct flight {
    struct group_plan *group;           /* [dp] */
    struct comm_request *request;       /* [n_ranks] */
    struct comm_request *late_request;  /* [n_ranks]; only of last stages */
    struct buffer own_result;           /* the leader's own, when it is in the last stage */
    uint32_t n_prefill, n_decode;       /* tokens of the largest plan in it */
    double start_s;
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
    uint64_t digest;                    /* of model and options: the same on all ranks, and what cached keys and values depend on */
    bool is_last_stage;
    const float *logits;                /* of this rank's slice after a step */
    uint32_t n_slice;                   /* its columns */
    struct range vocab;                 /* and which ids they are */
    float *row_max, *raw_max;           /* [n_rows]: of the row's edited and raw logits on all ranks; one follows the other */
    float *n_listed;                    /* [n_rows]: the longest list of candidates of any rank */
    struct sample_cut *cut;             /* [n_rows]: with more than that can be listed */
    float *edited;                      /* [threads][n_vocab]: a row's */
    float *scratch;                     /* [threads][n_vocab]: of a search for a cut */
    struct buffer *found;               /* [n_rows]: candidates */
    struct late_row *late_row;          /* [n_rows] */
    struct buffer late;                 /* what they point into, on other ranks than the leader's; there a whole row's edits */
    struct sample_bin *bins;            /* [ranks of tp, but no fewer than threads][SAMPLE_BINS] */
    struct plan_limits limits;          /* of the plans of every group */
    struct plan *plan;                  /* follower: the decoded plan */
    char *plan_bytes;
    struct buffer result;               /* follower: of the plan; leader: candidates of a row that it has whole */
    double last_work_s;                 /* follower: when a step with tokens was over */

    /* the leader */
    uint32_t n_groups;                  /* along dp */
    struct group *group;                /* [n_groups] */
    struct queue queue;
    struct sequence *done;              /* linked; they hold nothing */
    struct engine_load counted;         /* what grows */
    struct pace pace;
    double last_end_s;                  /* when the last step's result was here */
    struct rank_time *time;             /* [n_ranks] */
    double next_beat_s;                 /* then a step asks for them */
    struct flight *flight;              /* ring of n_flights */
    uint32_t n_flights, first_flight, n_in_flight, next_number;
    bool has_failed;                    /* other ranks may be anywhere: nothing can be asked of them any more */
    struct candidate *candidates;       /* [tp * SAMPLE_MAX_LIST]: a row's, merged */
    struct candidate *largest;          /* [tp * SAMPLE_MAX_TOP]: of the raw logits, merged */
    float *full_row;                    /* [n_vocab] */
    struct buffer *incoming;            /* [ranks of a group's last stage] */
    size_t *taken;                      /* [the same]: how much of each has been taken over */
};

/* process.c */
/* Collective over the world. */
int processes_gather(struct rank_process **out, struct comm *world);

/* result.c */
/* This rank's part of the plan's result, for the leader; late: the plan's late input, when it is here already. */
int result_collect(struct engine *e, const struct plan *plan, const struct buffer *late, struct buffer *out);
/* Most bytes of a rank's candidates for a row, and for a plan; rows of whole logits come beyond. */
size_t result_max_row_bytes(void);
size_t result_max_bytes(const struct engine *e);

/* result_merge.c */
/* Leader: group by group, rank by rank of the last stage, takes rows and hands them to their sequences. */
int result_apply(struct engine *e, struct flight *f);

/* engine.c */
/* Runs a plan's step, or nothing when no group has tokens in it; on a rank of the last stage the result is in *out.  late: NULL
 * where it has yet to come. */
int engine_run_plan(struct engine *e, const struct plan *plan, const struct buffer *late, struct buffer *out);
/* Whether this rank owes the leader a result for the plan: one of no bytes when its group has no token in the step, so that no
 * rank falls behind. */
bool engine_owes_result(const struct engine *e, const struct plan *plan);
int engine_own_probe(struct engine *e);
struct rank_time engine_own_time(const struct engine *e);
void engine_own_counters(struct engine *e, struct rank_counters *out, bool reset);
/* i-th rank of the last stage of a group along dp */
uint32_t engine_last_stage_rank(const struct engine *e, uint32_t group, uint32_t i);
/* The ids of which the i-th rank along tp has the logits. */
struct range engine_vocab(const struct engine *e, uint32_t i);

/* leader.c */
int leader_open(struct engine *e);
void leader_close(struct engine *e);
/* After a plan with PLAN_BEAT: every rank's answer. */
int leader_take_beats(struct engine *e);

/* flight.c */
int flight_open(struct engine *e, struct flight *f);
void flight_release(struct engine *e, struct flight *f);
/* The one after all that are in flight; there is room for it. */
struct flight *flight_next(struct engine *e);
/* Sends every group its plan. */
int flight_send(struct engine *e, struct flight *f);
/* Makes and sends the late inputs of a step whose plans have been sent. */
int flight_send_late(struct engine *e, struct flight *f);
/* Sends a step without tokens, after all others are done: counters, stop. */
int flight_send_empty(struct engine *e, unsigned flags);
/* Waits for the result of the oldest step in flight and takes it over. */
int flight_collect_oldest(struct engine *e);
/* After an error: drops all that is in flight.  Returns err. */
int flight_fail(struct engine *e, int err);

/* Takes the sequence out of the steps in flight: nothing that they bring is for it. */
void flight_forget(struct engine *e, const struct sequence *s);

/* sequence.c */
/* Tokens whose keys or rows are still to be planned. */
uint32_t sequence_n_left(const struct sequence *s);
/* Has its prompt behind it, and a token to generate, in flight or not. */
bool sequence_is_decoding(const struct sequence *s);
bool sequence_wants_row(const struct sequence *s, uint32_t position);
bool sequence_wants_token(const struct sequence *s, uint32_t position);
/* No stop id may be picked yet. */
bool sequence_bans_stop_ids(const struct sequence *s);
/* What was picked for its next position, event->index left to be filled in. */
void sequence_take_token(struct sequence *s, struct token_event *event);
/* The first end of several is the one that counts. */
void sequence_end_with(struct sequence *s, enum sequence_end end);
/* SEQUENCE_END_FAILED, with the line of the error that is set. */
void sequence_fail(struct sequence *s);
void sequence_take_row(struct sequence *s, uint32_t position, const float *logits, uint32_t n_vocab);
/* WAITING to RUNNING, in this group; false, and nothing has changed, when there is no room. */
bool sequence_begin(struct engine *e, struct sequence *s, uint32_t group);
/* When it is about to be planned: the first time, what it need not compute is known. */
void sequence_count_in(struct engine *e, struct sequence *s);
/* RUNNING to WAITING. */
void sequence_preempt(struct engine *e, struct sequence *s);
/* To DONE, when it is. */
void sequence_settle(struct engine *e, struct sequence *s);

/* tables.c */
/* With what the prefix cache knows of it. */
void tables_begin(struct engine *e, struct sequence *s);
/* Blocks for its first n_positions: all, or false and nothing has changed. */
bool tables_reserve(struct engine *e, struct sequence *s, uint32_t n_positions);
/* How many it would take for that. */
uint32_t tables_wanted(const struct engine *e, const struct sequence *s, uint32_t cache_group, uint32_t n_positions);
void tables_release(struct engine *e, struct sequence *s);
/* Blocks of its beginning that a group knows. */
uint32_t tables_known(const struct engine *e, const struct sequence *s, uint32_t group);
/* One that stands before s is computing the next block of its beginning. */
bool tables_are_coming(const struct engine *e, const struct sequence *s);
/* After n_confirmed has grown. */
void tables_publish(struct engine *e, struct sequence *s);
/* With has_copy: the other end of the copy. */
uint32_t tables_copy_to(const struct engine *e, const struct sequence *s, uint32_t cache_group);
/* A plan has it, or nobody wants it any more. */
void tables_drop_copy(struct engine *e, struct sequence *s);
void tables_check(const struct engine *e, const struct group *group);

/* schedule.c */
/* Fills in the plans of a step; false when no group has a token to compute. */
bool schedule_step(struct engine *e, struct flight *f);
/* Of a step, 0: there is none. */
double schedule_limit_s(const struct engine *e);

#endif
