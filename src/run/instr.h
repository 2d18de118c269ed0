/* instr.h: what a program is made of; shared by program.c (makes it), execute.c (runs it), matmul_chain.c (chains of a product),
 * attend.c (attention), experts.c (mixtures of experts), exchange.c (its messages) and dispatch.c (messages of experts); cuts.h says how
 * a product is cut. */
#ifndef STOA_RUN_INSTR_H
#define STOA_RUN_INSTR_H

#include "base/work.h"
#include "run/cuts.h"
#include "run/kv_cache.h"
#include "run/program.h"

#define CHUNK_ROWS 4            /* of row operators in a chunk; so few are made by each thread that multiplies them */

/* Row r of an operand, as thread t sees it: base + r * row_bytes + t * thread_bytes.  A tensor in the arena has
 * thread_bytes 0; a value that stays inside a row_chain has one row for each thread and row_bytes 0.  One that stays inside a
 * matmul_chain has a block for each thread, see struct piece. */
struct operand {
    char *base;
    size_t row_bytes, thread_bytes;
    uint32_t n_columns;
    uint32_t n_rows;                        /* of a tensor whose rows do not follow a symbol */
    enum dtype type;
};

static inline void *operand_row(const struct operand *o, uint32_t row, int thread)
{
    return o->base + row * o->row_bytes + (size_t)thread * o->thread_bytes;
}

/* What a row function works on: columns begin .. end of a row, where it can do with some of them.  A value that stays inside a
 * matmul_chain has the columns from `begin` and the rows from `row0` on. */
struct piece {
    uint32_t row, row0, begin, end;
    int thread;
};

static inline void *piece_at(const struct operand *o, const struct piece *at)
{
    if (o->thread_bytes)
        return o->base + (at->row - at->row0) * o->row_bytes + (size_t)at->thread * o->thread_bytes;
    return o->base + at->row * o->row_bytes + dtype_bytes(o->type, at->begin);
}

/* The whole row: of a tensor in the arena, or of what stays inside a row_chain. */
static inline void *piece_row(const struct operand *o, const struct piece *at)
{
    return operand_row(o, at->row, at->thread);
}

/* How the work of a matmul_chain is cut, for each of its strips (graph.h). */
struct matmul_chain {
    struct strips strips;
    uint32_t block_columns[NODE_MAX_OUTPUTS], block_rows;      /* whole units; without an epilogue a chunk is one block */
    struct cuts cuts[NODE_MAX_OUTPUTS];     /* of columns */
    uint32_t n_all_chunks;
    uint32_t order[NODE_MAX_OUTPUTS];       /* of strips: those with the largest units first, so that threads end together */
    struct instr *prologue;                 /* the instruction before; NULL: there is none */
    struct instr *own;                      /* its steps, as a thread does them for itself */
    struct operand own_input;               /* what they make */
    bool shares;                            /* others want something of the prologue too */
};

/* The rows of an instruction's work; split: this rank's share of them along tp. */
struct instr_rows {
    uint8_t symbol;
    bool split;
};

struct instr {
    enum op op;
    enum work_kind kind;
    const struct node_attr *attr;
    struct operand in[NODE_MAX_INPUTS], out[NODE_MAX_OUTPUTS];
    uint32_t n_in, n_out;
    struct instr_rows rows;
    struct work work;                       /* of the running step: chunks that threads claim */

    struct instr *step;                     /* row_chain, matmul_chain: [n_steps] */
    uint32_t n_steps;
    struct matmul_chain *chain;             /* matmul_chain, without the steps of its prologue */
    const struct instr *prologue_of;        /* row_chain that is the prologue of a matmul_chain; else NULL */

    struct sum_tree tree;                   /* matmul over a label */
    const struct sum_tree *tree_or_null;
    uint32_t n_panels;                      /* of all weights of a matmul (of one expert) */
    struct cuts cuts;                       /* of them */
    atomic_uint_least64_t end_ns;           /* when its last chunk so far was done, if a profile is made */
    uint32_t n_pairs, n_active;             /* sort_by_expert: what it found in this step */
    float *frequency;                       /* rope_angles: [n_rotated / 2] */
    struct comm_tree joined;                /* all_reduce, reduce_scatter, combine */
    size_t *first;                          /* [ranks + 1]: reduce_scatter, all_gather, gather_weight: where each rank's part begins */
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

/* The input of a matmul_chain that a thread has made for itself: in which step, of which instruction. */
struct own_input {
    _Alignas(CACHE_LINE) const struct instr *of;
    unsigned step;
};

/* Room for the messages of a dispatch or a combine, to and from each rank of the island. */
struct moved {
    char *to_send, *to_receive;
    size_t room;                            /* of each rank, in both */
    const void **send;                      /* [ranks] each */
    void **receive;
    size_t *n_send, *n_room, *n_received;
};

/* A few tokens of one sequence: with all heads of a KV head at most ATTENTION_MAX_QUERIES queries, unless one token has more. */
struct attention_item {
    uint32_t sequence, first_token, n_tokens;
};
/* Of an item: run first_run + run of the n_runs that its tokens see, or all of it.  Items before this one have `place` runs. */
struct attention_part {
    uint32_t item, first_run, n_runs, run, place;
};
struct attention_cut {
    uint32_t run_shift, n_parts;            /* a run has 1 << run_shift spans */
    struct attention_part *part;
};
/* Attention's work in a step; a chunk is a part at one KV head. */
struct attend {
    uint32_t item_tokens, n_items;
    struct attention_item *item;            /* [T] */
    struct attention_cut cut[GRAPH_MAX_CACHE_GROUPS];       /* windows see different runs */
    uint32_t max_runs;                      /* at all KV heads together; with more, runs are made longer */
    struct attention_partial *partials;     /* [max_runs][ATTENTION_MAX_QUERIES] */
    atomic_uint *n_done;                    /* [max_runs]: runs of an item at a KV head; 0 between instructions */
    const void **tiles;                     /* [threads][max_blocks]: of the sequence that a thread attends over */
    uint32_t max_blocks;
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
    struct moved moved;                     /* dispatch, combine */
    struct comm_gather *gather;             /* of weights, when they are gathered */
    uint32_t n_gathering;                   /* started and not waited for */
    struct instr *instr;
    struct instr *steps;                    /* of all chains */
    uint32_t n_instr, n_steps;
    struct own_input *own_input;            /* [threads] */
    struct boundary *boundaries;

    const struct step *step;                /* while one runs; read by a thread only while it holds a chunk */
    atomic_uint step_number;
    uint32_t count[N_SYMBOLS];              /* rows of each symbol in this step; of U and P at most */
    bool splits_rows;                       /* sequence parallelism pays in this step */
    /* Of the mixture that runs: */
    uint32_t n_came;                        /* rows of U */
    uint32_t n_pairs;                       /* rows of experts: a token at one of its experts each */
    uint32_t *active, n_active;             /* [experts here]: those that have a row */
    uint32_t *sequence_of;                  /* [T]: of each token of the step */
    struct attend attend;
    struct work items;                      /* of program_run_items(); a step has none */
    program_item_fn *item_fn;               /* read by a thread only while it holds an item */
    void *item_user;
    int error;                              /* of the step; written by thread 0 */

    struct program_counters counters;
    struct profile *profile;                /* [threads]; NULL: none is made */
};

/* Rows that exist at most in this step, and those of them that this rank works on now. */
static inline uint32_t program_max_rows(const struct program *p, const struct instr *in)
{
    return p->count[in->rows.symbol];
}
struct range program_rows(const struct program *p, const struct instr *in);

/* execute.c */
/* An operator without a function is a hole in execute.c, found when a program is compiled and not in a step. */
bool program_can_run(enum op op);
/* Into how many chunks the instruction's work falls in this step; 0 when there is none. */
uint32_t program_n_chunks(const struct program *p, const struct instr *in);
void program_run_chunk(struct program *p, struct instr *in, uint32_t chunk, int thread);
void program_matmul(struct program *p, const struct instr *in, const struct operand *x, uint32_t first_row, uint32_t n_rows,
                    uint32_t expert, uint32_t panel0, uint32_t panel1);
/* A row operator at a piece of a row. */
void program_row(struct program *p, struct instr *in, const struct piece *at);
/* matmul_chain.c */
/* Gives what stays inside its places in a thread's scratch (offset, and n_bytes from row to row); bytes of it. */
size_t matmul_chain_place(struct node *n);
/* in: with all steps.  Those of a prologue go to the instruction before; own: room for as many. */
int matmul_chain_compile(struct program *p, struct instr *in, struct instr *own, const struct node *n);
/* In this step each thread does the prologue for itself. */
bool matmul_chain_does_prologue(const struct program *p, const struct instr *in);
void program_matmul_chain(struct program *p, struct instr *in, uint32_t chunk, int thread);
/* attend.c */
int attend_open(struct program *p);
void attend_release(struct attend *a);
void attend_prepare(struct program *p);         /* a step, once it and its counts are known */
void program_kv_store(struct program *p, struct instr *in, const struct piece *at);
uint32_t program_attention_chunks(const struct program *p, const struct instr *in);
void program_attention(struct program *p, struct instr *in, uint32_t chunk, int thread);
/* experts.c */
/* The expert that is the i-th with rows, and these; false when fewer have some. */
bool program_expert(const struct program *p, const struct instr *in, uint32_t i, uint32_t *expert, struct range *rows);
void program_sort_by_expert(struct program *p, struct instr *in);
void program_expert_matmul(struct program *p, struct instr *in, uint32_t chunk);
void program_expert_sum(struct program *p, struct instr *in, uint32_t row, int thread);
/* exchange.c and dispatch.c: called by thread 0 only */
int program_reduce_scatter(struct program *p, struct instr *in);
int program_all_gather(struct program *p, struct instr *in);
int program_gather_weight(struct program *p, struct instr *in);
int program_gather_wait(struct program *p, struct instr *in);
int program_dispatch(struct program *p, struct instr *in);
int program_combine(struct program *p, struct instr *in);
/* Room for what the program's dispatches and combines move at most. */
int moved_open(struct program *p);
void moved_release(struct moved *m);
int program_all_reduce(struct program *p, struct instr *in);
int program_send(struct program *p, struct instr *in);
int program_receive(struct program *p, struct instr *in);
/* A large message moves only while its sender is inside the transport, so the step looks in between instructions, and between
 * chunks while weights are gathered. */
void program_push(struct program *p);

#endif
