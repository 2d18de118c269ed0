/* program.h: a rank's graph, compiled: weights loaded, every operand resolved to an address, ready to run steps.
 *
 * program_step() runs the instructions in order on all threads of the pool.  An instruction's work is cut into chunks that
 * threads claim; it is over when its chunks are done, whichever threads came by (base/work.h).  Only thread 0, the caller,
 * talks to other ranks.  A step allocates nothing. */
#ifndef STOA_RUN_PROGRAM_H
#define STOA_RUN_PROGRAM_H

#include "comm/comm.h"
#include "graph/graph.h"
#include "kernel/kernel.h"
#include "run/weights.h"

struct program;

struct program_options {
    const struct model_file *file;          /* stays open as long as the program */
    const struct kernels *kernels;
    struct pool *pool;
    const struct mesh *mesh;
    uint32_t rank;
    struct comm *stages;                    /* all ranks; messages between pipeline stages */
    struct comm *axis[N_AXES];              /* this rank's line of the mesh along each axis that has collectives */
    uint32_t n_blocks[GRAPH_MAX_CACHE_GROUPS];          /* of the KV cache of each of the graph's cache groups */
    uint32_t context;                       /* most positions of a sequence */
    bool profile;                           /* fill in program_counters.work; costs two looks at the clock for each chunk */
    const char *packed_cache;               /* see weights_open() */
    weights_progress_fn *progress;
    void *progress_user;
};

/* Takes the graph over, on failure too.  It has been through pass_place(). */
int program_open(struct program **out, struct graph *graph, const struct program_options *options);
void program_close(struct program *program);

/* After the pool has run something else. */
void program_serve(struct program *program);

/* Where a sequence's keys and values are in one cache group: position p in blocks[p / BLOCK_TOKENS % n_blocks].  So a table that is
 * as long as the sequence names every block once, and the table of a window is a ring (kv_sequence_blocks()). */
struct step_table {
    uint32_t n_blocks;
    const uint32_t *blocks;
};
/* Between steps: block `to` of the cache group gets what `from` holds. */
void program_copy_block(struct program *program, uint32_t cache_group, uint32_t from, uint32_t to);

/* What one step computes.  Tokens of a sequence stand together, in ascending position. */
struct step_sequence {
    uint32_t first_token, n_tokens;         /* of the step's tokens */
    uint32_t position;                      /* of its first token in this step */
    struct step_table table[GRAPH_MAX_CACHE_GROUPS];
};
struct step {
    uint32_t n_tokens, n_rows, n_sequences;
    uint32_t n_all_tokens;                  /* of all groups along dp in this step: so many may come to this rank's experts */
    const int32_t *tokens, *positions;      /* [n_tokens] */
    const int32_t *rows;                    /* [n_rows]: which tokens' outputs are wanted */
    const struct step_sequence *sequences;
};
/* n_tokens and n_rows within the symbols' maxima.  Every rank of the world joins every step, also those of a group along dp
 * that has no token in it.  ERR_PEER from the transport, ERR_FAILED when a library has
 * changed the floating-point mode. */
int program_step(struct program *program, const struct step *step);

/* Between steps: fn(user, item, thread) for each item below n, on all threads, whoever claims it.  It makes no call of this header. */
typedef void program_item_fn(void *user, uint32_t item, int thread);
void program_run_items(struct program *program, program_item_fn *fn, void *user, uint32_t n);

/* The output called `name` after a step: [rows][columns]; NULL when this rank does not make it.  Valid until the next step. */
const float *program_output(const struct program *program, const char *name, uint32_t *n_columns);

#define PROGRAM_MAX_HIDDEN 1025             /* one more than a model may have layers */

/* The kinds of work that a step is made of: matmuls by what their weights are for (of a mixture's experts too), attention, row
 * operators and what is joined of them, messages. */
enum work_kind {
    WORK_QKV, WORK_ATTN_OUT, WORK_GATE_UP, WORK_DOWN, WORK_HEAD, WORK_ROUTER, WORK_ATTENTION, WORK_ROWS, WORK_COMM, N_WORK_KINDS,
};
extern const char *const work_name[N_WORK_KINDS];

/* With program_options.profile; what is read and computed follows from the shapes of the steps that ran. */
struct work_counters {
    uint64_t n_calls;                       /* instructions */
    double wall_s;                          /* from the end of the region before to the end of theirs */
    double busy_s;                          /* of all threads, in chunks */
    uint64_t weight_bytes, kv_bytes;        /* that must be read: weights once for a call, keys once for a sequence */
    uint64_t int_ops, float_ops;            /* a multiplication and an addition are two; int: products of int8 blocks */
};
void work_counters_add(struct work_counters *to, const struct work_counters *from);

struct program_counters {
    struct work_counters work[N_WORK_KINDS];
    size_t weight_bytes;
    bool weights_mapped;
    double step_s;                          /* inside program_step() */
    double wait_s, wire_s;                  /* of that, in communication */
    uint64_t bytes_sent;
    double hidden_square[PROGRAM_MAX_HIDDEN];       /* sums of squares of the outputs "hidden", in order */
    uint32_t n_hidden;
};
void program_counters(const struct program *program, struct program_counters *out);
void program_counters_reset(struct program *program);

#endif
