/* instr.h: what a program is made of; shared by program.c (makes it), execute.c (runs it) and exchange.c (its messages). */
#ifndef STOA_RUN_INSTR_H
#define STOA_RUN_INSTR_H

#include "base/work.h"
#include "run/kv_cache.h"
#include "run/program.h"

/* Row r of an operand, as thread t sees it: base + r * row_bytes + t * thread_bytes.  A tensor in the arena has
 * thread_bytes 0; a value that stays inside a chain has one row for each thread and row_bytes 0. */
struct operand {
    char *base;
    size_t row_bytes, thread_bytes;
    uint32_t n_columns;
    enum dtype type;
};

static inline void *operand_row(const struct operand *o, uint32_t row, int thread)
{
    return o->base + row * o->row_bytes + (size_t)thread * o->thread_bytes;
}

struct instr {
    enum op op;
    const struct node_attr *attr;
    struct operand in[NODE_MAX_INPUTS], out[NODE_MAX_OUTPUTS];
    uint32_t n_in, n_out;
    uint32_t row_symbol;                    /* which count of the step gives the rows of the work */
    struct work work;                       /* of the running step: chunks that threads claim */

    struct instr *step;                     /* row_chain: [n_steps] */
    uint32_t n_steps;

    struct sum_tree tree;                   /* matmul over a label */
    const struct sum_tree *tree_or_null;
    uint32_t n_panels, chunk_panels;        /* of all weights of a matmul; and how many make a chunk of work */
    float *frequency;                       /* rope_angles: [n_rotated / 2] */
    struct comm_tree joined;                /* all_reduce */
    struct boundary *boundary;              /* send */
};

/* A send may still be on its way when the next step overwrites the arena, so it leaves from a copy. */
struct boundary {
    struct boundary *next_boundary;         /* of this program */
    struct comm_request *request;           /* [n_slots] */
    char *bytes;                            /* [n_slots][slot_bytes] */
    uint32_t n_slots, next;
    size_t slot_bytes;
};

struct program {
    struct graph *graph;
    struct program_options options;
    struct weights *weights;
    struct kv_cache cache[GRAPH_MAX_CACHE_GROUPS];
    struct arena memory;                    /* of instructions and tables, as long as the program */
    char *activations;                      /* the arena of pass_place() */
    char *rows;                             /* values inside chains: [threads][scratch_bytes] */
    size_t scratch_bytes;
    void *reduce_scratch;
    struct instr *instr;
    uint32_t n_instr;
    struct boundary *boundaries;

    const struct step *step;                /* while one runs; read by a thread only while it holds a chunk */
    atomic_uint step_number;
    uint32_t count[N_SYMBOLS];              /* rows of each symbol in this step */
    uint32_t *sequence_of;                  /* [T]: of each token of the step */
    struct attention_item *item;            /* the step's pieces of attention, without the KV head */
    uint32_t n_items;
    const void **tiles;                     /* [threads][max_blocks]: of the sequence that a thread attends over */
    uint32_t max_blocks;
    int error;                              /* of the step; written by thread 0 */

    struct program_counters counters;
};

/* A few tokens of one sequence: with all heads of a KV head at most ATTENTION_MAX_QUERIES queries. */
struct attention_item {
    uint32_t sequence, first_token, n_tokens;
};

/* execute.c */
/* Into how many chunks the instruction's work falls in this step; 0 when there is none. */
uint32_t program_n_chunks(const struct program *p, const struct instr *in);
void program_run_chunk(struct program *p, struct instr *in, uint32_t chunk, int thread);
/* exchange.c: called by thread 0 only */
int program_all_reduce(struct program *p, struct instr *in);
int program_send(struct program *p, struct instr *in);
int program_receive(struct program *p, struct instr *in);
/* A large message moves only while its sender is inside the transport, so the step looks in between instructions. */
void program_push_sends(struct program *p);

#endif
