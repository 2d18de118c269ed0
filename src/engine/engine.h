/* engine.h: a replica: one leader that decides and ranks that run.
 *
 * Every rank of the world opens the engine with the same options.  Rank 0, the leader, then adds sequences and calls
 * engine_step() until they are done; every other rank calls engine_follow(), which returns when the leader closes.
 *
 * Sequences wait in one queue (queue.h) and are dealt over the groups along dp; each runs where it was put until it ends or is pushed
 * out.  The leader keeps up to pp + 1 steps in flight, each of a plan for every group.  A sequence is in one plan in flight at a
 * time, the chunks of its prefill excepted.  One thread of each process, the step thread, calls in. */
#ifndef STOA_ENGINE_ENGINE_H
#define STOA_ENGINE_ENGINE_H

#include "engine/prefix.h"
#include "engine/sampler.h"
#include "run/compile.h"
#include "run/probe.h"
#include "run/program.h"

#include "comm/comm.h"

struct engine;
struct sequence;

struct engine_options {
    struct mesh mesh;
    int n_threads;                      /* of this rank; 0: an even part of the cores that it shares with other ranks */
    bool is_pinned;                     /* threads keep to cores of one NUMA node (base/cores.h); also the calling thread, until
                                         * engine_close() */
    bool int8_activations;
    enum dtype cache_type;
    uint32_t n_groups;                  /* of every canonical tree; 0: by the rule */
    uint32_t chunk;                     /* most prompt tokens of one sequence in a step */
    uint32_t context;                   /* most tokens of a sequence; 0: what the model was made for, 8192 at most */
    uint32_t max_sequences;             /* in a step, of all groups along dp; each has room for an equal part of them, rounded up */
    uint32_t cache_blocks;              /* most KV blocks of a cache group in a group along dp; 0: what max_sequences of them can need */
    bool no_prefix_cache;               /* every token of every sequence is computed */
    uint32_t step_ms;                   /* no step is planned that is predicted to take longer, but see pace.h; 0: no limit */
    uint64_t epoch;                     /* which start of the replica this is: in every plan, for its ranks to see */
    const char *isa;                    /* NULL: the best of this CPU */
    unsigned without;                   /* passes left out, as pass_parse_without() gives them */
    bool full_logits;                   /* sequences may ask for whole rows of logits */
    bool hidden_norms;
    bool profile;                       /* fill in rank_counters.work, and allow engine_probe() */
    const char *packed_cache;           /* folder of packed weights, or NULL; each rank's own affair */
    bool gathered;                      /* weights are stored in parts over dp, and gathered before use: dp > 1 */
};

/* Fills in what is left to the model, and cuts what is more than it can use.  ERR_USAGE: a context beyond the model's. */
int engine_options_resolve(struct engine_options *options, const struct model_info *model);

/* How each rank's graph is compiled; options as engine_options_resolve() leaves them. */
struct compile_options engine_compile_options(const struct engine_options *options);

/* Collective over the world.  When it fails on any rank it fails on all; the leader's error_text() names the rank. */
int engine_open(struct engine **out, const struct model_file *file, const struct engine_options *options, struct comm *world);
/* The leader's close ends the followers.  NULL is fine. */
void engine_close(struct engine *e);
/* Ranks but 0: runs plans until the leader closes. */
int engine_follow(struct engine *e);

const struct model_info *engine_model(const struct engine *e);
uint32_t engine_context(const struct engine *e);
/* The most tokens of a sequence: the context, or fewer where the KV cache holds fewer. */
uint32_t engine_longest(const struct engine *e);
uint32_t engine_chunk(const struct engine *e);
int engine_n_ranks(const struct engine *e);
int engine_n_threads(const struct engine *e);               /* of this rank */
const char *engine_isa(const struct engine *e);             /* and its instruction set, as --isa names it */

/* Which process a rank is, so that somebody else can see that it is gone: a pid that has come back has another start time. */
struct rank_process {
    char host[65];
    int32_t pid;
    uint64_t start_time;                /* field 22 of /proc/PID/stat; 0 where it cannot be read */
};
const struct rank_process *engine_processes(const struct engine *e);        /* [engine_n_ranks()] */

/* ---- the leader's side ---- */
/* What a step has brought for a sequence.  Log-probabilities are natural, and of the logits as the model gives them. */
struct token_event {
    int32_t id;
    uint32_t index;                     /* 0 is the first of the answer, request.n_generated counted */
    float logprob;                      /* with request.wants_logprobs */
    double queue_s, prefill_s;          /* of its first, else 0: from engine_add() to its first step, and from then on */
    uint32_t n_top;                     /* request.n_top, but no more than there are ids */
    const struct token_logprob *top;    /* by falling logprob, ties to the lower id; borrowed, valid during the call */
};

struct sequence_request {
    const int32_t *tokens;              /* copied */
    uint32_t n_tokens;                  /* at least 1 */
    uint32_t n_generated;               /* so many of them, the last, are the answer so far: the sequence goes on with it */
    uint32_t n_new;                     /* tokens to generate beyond `tokens` */
    uint32_t min_new;                   /* of which so many before a stop id can be picked */
    struct sample_params params;
    uint64_t client;                    /* clients share the engine evenly */
    int32_t priority;                   /* within a client; lower is let in first */
    struct prefix_salt salt;            /* copied; only requests with the same one share cached blocks */
    struct sample_penalties penalties;
    const struct logit_bias *bias;      /* copied; each id once */
    uint32_t n_bias;
    const int32_t *stop_ids;            /* copied; picking one ends the sequence, and it is not among the new tokens */
    uint32_t n_stop_ids;
    bool wants_logprobs;
    uint32_t n_top;                     /* with wants_logprobs: and of so many ids with the largest logits; SAMPLE_MAX_TOP at most */
    /* Each new token, as it is picked, inside engine_step(): no call into the engine from here but sequence_stop().  NULL is fine. */
    void (*on_token)(void *user, const struct token_event *event);
    bool all_rows;                      /* on_row for every position, else for the last of the prompt and each new token */
    /* With full_logits: the logits that follow `position`, n_vocab of them; valid during the call.  NULL is fine. */
    void (*on_row)(void *user, uint32_t position, const float *logits, uint32_t n_vocab);
    void *user;
};
/* Puts it into the queue.  ERR_USAGE: a token that does not exist, too long for the context or for the whole cache. */
int engine_add(struct engine *e, struct sequence **out, const struct sequence_request *request);
/* The next turn of a sequence that is done: these tokens from the start, as if it was removed and added.  On ERR_USAGE nothing
 * has changed, on another error it is done and what it had brought is still there. */
int engine_continue(struct engine *e, struct sequence *s, const struct sequence_request *request);
/* At any time, also in the middle; its blocks are free at once. */
void engine_remove(struct engine *e, struct sequence *s);
/* Plans, runs, and takes the result of the oldest plan in flight: 1; 0 when no sequence has anything left to do. */
int engine_step(struct engine *e);

enum sequence_end {
    SEQUENCE_END_NONE,          /* it has not ended */
    SEQUENCE_END_STOP,          /* a stop id was picked: sequence_stop_id() */
    SEQUENCE_END_LENGTH,        /* all n_new are there */
    SEQUENCE_END_FULL,          /* the cache cannot hold more of it */
    SEQUENCE_END_CANCELLED,     /* sequence_stop() */
    SEQUENCE_END_FAILED,        /* it went wrong, for itself alone: sequence_error() */
};
enum sequence_end sequence_end(const struct sequence *s);
int32_t sequence_stop_id(const struct sequence *s);
/* Of SEQUENCE_END_FAILED the code, with its line set as error_text(); else 0. */
int sequence_error(const struct sequence *s);
bool sequence_is_done(const struct sequence *s);
/* The generated tokens so far, those of `tokens` not among them. */
const int32_t *sequence_new_tokens(const struct sequence *s, uint32_t *n);
/* Stops after what it has: a stop string was seen, or nobody wants more. */
void sequence_stop(struct sequence *s);

/* It has not been let in yet. */
bool sequence_is_queued(const struct sequence *s);
/* Of its prompt, found in the prefix cache when it was let in first. */
uint32_t sequence_n_cached(const struct sequence *s);
/* How often it was pushed out for want of blocks, and computed again. */
uint32_t sequence_n_preemptions(const struct sequence *s);

enum { STEP_SIZES = 16 };
/* What the leader has to do, and what it has done since it was opened. */
struct engine_load {
    uint32_t running, waiting;          /* sequences */
    uint32_t n_blocks, free_blocks;     /* of the pool that is fullest for its size; blocks that only the prefix cache holds are free */
    uint64_t steps, preemptions;
    uint64_t step_tokens, steps_of_size[STEP_SIZES];    /* computed, of all groups; steps of up to 2^i tokens, the last: of more */
    uint64_t prefix_queries, prefix_hits;       /* prompt tokens that were looked up, and found */
    uint64_t prompt_tokens, generated_tokens;   /* let in; picked */
};
void engine_load(const struct engine *e, struct engine_load *load);
/* How long the longest step takes that may be planned now, as measured steps say; 0 until some have been. */
uint32_t engine_predicted_us(const struct engine *e);
/* When there is nothing to do: returns when every rank has said that it is there, so not when one is stopped. */
int engine_beat(struct engine *e);
/* Of each rank, [engine_n_ranks()]: what its steps have taken since it was opened, as of the last beat or, while there are steps, a second
 * ago at most. */
struct rank_time {
    double compute_s, wait_s, wire_s;
};
const struct rank_time *engine_rank_times(const struct engine *e);
/* Walks the invariants of queue, blocks and prefix cache; tests call it after every step. */
void engine_check(const struct engine *e);

struct rank_counters {
    uint32_t rank;
    uint64_t weight_bytes, peak_bytes;  /* peak: of the process, as the system counts it */
    bool weights_mapped;                /* from the packed cache */
    double compute_s, wait_s, wire_s;   /* since the last reset */
    uint64_t bytes_sent;
    double hidden_square[PROGRAM_MAX_HIDDEN];           /* see run/program.h */
    uint32_t n_hidden;
    struct work_counters work[N_WORK_KINDS];            /* with options.profile, since the last reset */
    struct peaks peaks;                                 /* the highest that engine_probe() has seen */
};
/* Measures for a second what each rank's machine can do while all ranks do the same, see run/probe.h.  options.profile. */
int engine_probe(struct engine *e);
/* counters: engine_n_ranks() of them. */
int engine_counters(struct engine *e, struct rank_counters *counters, bool reset);

#endif
