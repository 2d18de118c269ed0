/* graph.h: a computation as nodes and tensors.
 *
 * A model file builds a graph as if for one device.  Passes rewrite it: pass_shard() turns it into the part of one rank,
 * pass_fuse_*() join nodes, pass_place() gives every tensor its place in memory.  The graph does not compute: src/run
 * compiles it into a program.
 *
 *   dim      mul * symbol + add, with a label when a layout may cut it, and then `width` columns for each element of the
 *            label: the 576 columns of 9 heads are { add = 576, label = heads, width = 64 }
 *   symbol   a size known only at run time; each has a maximum: T tokens of a step, R rows of it that are wanted, U tokens
 *            that came from other groups of dp to the experts of this rank, P pairs of a token and one of its experts here
 *   placement, for each axis of the mesh: replicated, split along a dim (the tensor's own dims are then this rank's
 *            part), or partial: n_parts of the sums that make up the whole, [n_parts] x the dims.  Rows that are split along
 *            tp (sequence parallelism) stay at their own places: a rank computes some of the rows of a tensor of full size, so a
 *            replicated tensor serves where a split one is wanted
 *
 * Nodes stand in a list in topological order.  A tensor has one maker (NULL for an input or a weight).  Memory belongs
 * to the graph's arena and lives until graph_close().
 *
 * Errors: builders return NULL and leave error_text() when shapes do not fit; a NULL operand gives NULL, so a model
 * builds to the end and looks once. */
#ifndef STOA_GRAPH_GRAPH_H
#define STOA_GRAPH_GRAPH_H

#include "base/arena.h"
#include "base/dtype.h"
#include "graph/mesh.h"
#include "graph/partition.h"

#include <stdio.h>

enum symbol { SYMBOL_NONE, SYMBOL_T, SYMBOL_R, SYMBOL_U, SYMBOL_P, N_SYMBOLS };
extern const char *const symbol_name[N_SYMBOLS];

#define GRAPH_MAX_DIMS 6
#define GRAPH_MAX_CACHE_GROUPS 4
#define NODE_MAX_INPUTS 12
#define NODE_MAX_OUTPUTS 4
#define NODE_MAX_STEPS 12

struct dim {
    uint64_t mul, add;
    uint8_t symbol, label;
    uint32_t width;
};
#define DIM(n) ((struct dim){ .add = (n) })
#define DIM_T ((struct dim){ .mul = 1, .symbol = SYMBOL_T })
#define DIM_R ((struct dim){ .mul = 1, .symbol = SYMBOL_R })
#define DIM_OF(elements, label_, width_) ((struct dim){ .add = (uint64_t)(elements) * (width_), .label = (label_), .width = (width_) })

enum placement_kind { PLACE_REPLICATED, PLACE_SPLIT, PLACE_PARTIAL };
struct placement {
    uint8_t kind, dim, label;       /* split: which dim, cut as which label; partial: summed over which label */
    uint32_t n_parts;               /* partial */
};

/* A weight is a slice of a tensor in the model file.  dim 0 is the contiguous one of the file's order reversed: rows. */
enum weight_use {
    WEIGHT_MATMUL,                  /* [rows][k], packed for the matmul kernel */
    WEIGHT_VECTOR,                  /* [n], kept as f32 */
    WEIGHT_LOOKUP,                  /* [rows][k], read row by row from the mapped file; holds no memory of its own */
    WEIGHT_EXPERTS,                 /* [experts][rows][k]: matrices for the matmul kernel, one after the other */
};
#define WEIGHT_PANEL 16             /* rows that are packed together: parts of a gathered weight are whole panels */
struct weight {
    const char *name;
    enum dtype type;
    enum weight_use use;
    uint64_t n_rows, n_columns;     /* of the whole tensor in the file, or of each expert in it */
    struct range rows, columns;     /* this rank's slice */
    struct range experts;           /* whose matrices this rank has; {0, 1} but for WEIGHT_EXPERTS */
    bool per_expert;                /* the file has a tensor for each expert; name is a format with one %u */
    struct range stored;            /* panels of the slice, counted through all its experts, that are in this rank's memory */
    uint32_t visit;                 /* graph_each_weight()'s own */
};

struct node;
struct shard;
struct tensor {
    uint32_t id;
    const char *name;
    enum dtype type;
    uint32_t n_dims;
    struct dim dim[GRAPH_MAX_DIMS];
    struct placement placement[N_AXES];
    struct node *maker;
    struct weight *weight;
    bool is_output;                 /* of the graph: never merged away, lives to the end */
    bool is_packed;                 /* a weight in the kernels' order, gathered from the ranks that store it */
    bool has_buffer;                /* set by pass_place(): false for values that stay inside a fused node */
    size_t offset, n_bytes;         /* pass_place(): in the rank's activation arena, at the symbols' maxima */
};

enum op {
#define OP(name, n_inputs, n_outputs, kind, columns, shape, shard, cost) OP_##name,
#include "graph/ops.def"
#undef OP
    N_OPS
};

enum op_kind {
    KIND_INPUT,                     /* comes with the step plan */
    KIND_ROWS,                      /* each row on its own: may be joined into a chain */
    KIND_REGION,                    /* the whole operator is one parallel region */
    KIND_COMM,                      /* talks to other ranks */
};

/* What a row operator needs together of a row, to make the same columns of its output. */
enum op_columns { COLUMNS_WHOLE, COLUMNS_ANY, COLUMNS_BLOCK, COLUMNS_HEAD };

/* Frequencies base^(-2i/n), changed as the model file says, and a factor on every cosine and sine.
 *   ROPE_LINEAR   divided by factor
 *   ROPE_YARN     Peng et al., "YaRN: Efficient Context Window Extension of Large Language Models" (2023): those that turn more
 *                 than beta_fast times in original_context stay, those that turn less than beta_slow times are divided by
 *                 factor, in between a ramp over the pair's number blends both */
enum rope_kind { ROPE_PLAIN, ROPE_LINEAR, ROPE_YARN };
struct rope_scaling {
    enum rope_kind kind;
    float base, factor, original_context, beta_fast, beta_slow;
    float magnitude;                /* of (cos, sin): 1 but for YaRN */
};

/* What an operator needs besides its tensors; each uses the fields that its row in ops.def names. */
struct node_attr {
    float eps;                      /* rms_norm, head_norm */
    uint32_t head_dim;              /* head_norm, rope, kv_store, attention */
    uint32_t n_rotated;             /* rope_angles, rope */
    bool interleaved;               /* rope */
    struct rope_scaling rope;       /* rope_angles */
    float scale;                    /* attention, scale, route */
    uint32_t cache_group, cache_layer;      /* kv_store, attention: which group, and layer of this rank's part of it */
    float softcap;                  /* attention, softcap: 0 is none */
    uint32_t first_head, first_kv_head, heads_per_kv;      /* attention: the rank's first heads in the model's numbering */
    enum label sum_label;           /* matmul: the label that is contracted, or LABEL_NONE; all_reduce */
    struct tree tree;               /* matmul over a label: leaves relative to the weight's own columns */
    enum axis axis;                 /* of a collective */
    struct joined_tree joined;      /* all_reduce, reduce_scatter, combine */
    uint32_t peer;                  /* send, receive: the stage at the other end */
    uint32_t channel;               /* send, receive: which of the tensors between the two stages */
    bool split_rows;                /* send, receive: only the rows of this rank's share along tp */
    uint32_t n_used;                /* route: experts that a token goes to */
    bool normalise;                 /* route: their weights are made to sum to 1 */
    struct range experts;           /* sort_by_expert: those of this rank */
    uint32_t n_panels;              /* gather_weight: of all ranks together */
    bool early;                     /* gather_weight: a gather_wait follows */
    uint32_t n_ranks;               /* dispatch, combine: of the island; 0 in a model's graph, where all experts are at home */
    const struct range *experts_of; /* dispatch: [n_ranks], those of each */
};

struct node {
    enum op op;
    int layer;                      /* of the model; LAYER_ANY: belongs wherever it is used */
    uint32_t n_in, n_out, n_steps;
    struct tensor *in[NODE_MAX_INPUTS], *out[NODE_MAX_OUTPUTS];
    struct node *step[NODE_MAX_STEPS];      /* row_chain, matmul_chain: the nodes that it joins, in order */
    uint32_t product;                       /* matmul_chain: which step is its product */
    struct node_attr attr;
    struct node *next, *prev;
};
#define LAYER_ANY (-1)

/* Layers whose keys and values are kept alike.  Every rank has all groups of the model, with layers or without. */
struct cache_group {
    uint32_t window;                /* a query sees this many positions, its own included; 0: all */
    uint32_t head_dim;
    uint32_t n_layers, n_kv_heads;  /* on this rank; set by pass_shard() */
};

struct graph {
    struct arena arena;
    struct node *first, *last;
    uint32_t n_tensors, n_layers;
    uint32_t n_visits;              /* walks of graph_each_weight() so far */
    int layer;                      /* what the builder gives to new nodes */
    uint64_t symbol_max[N_SYMBOLS];
    struct label_info labels[N_LABELS];
    bool int8_activations;          /* the numeric mode: matmuls over block weights quantize their input */
    uint32_t n_groups;              /* of every canonical tree; 0: by the rule */
    enum dtype cache_type;
    uint32_t n_cache_groups;
    struct cache_group cache_group[GRAPH_MAX_CACHE_GROUPS];
    size_t arena_bytes;             /* pass_place() */
    FILE *log;                      /* NULL, or where a pass reports each rewrite */
};

struct op_info {
    const char *name;
    uint32_t n_inputs, n_outputs;   /* at least; matmul takes more weights with more outputs */
    enum op_kind kind;
    enum op_columns columns;
    /* Sets type, n_dims and dim of the outputs from the inputs; 0 or an error. */
    int (*shape)(struct graph *g, struct node *n);
    /* Adds this rank's version to s->to and maps the outputs (pass_shard.c). */
    int (*shard)(struct shard *s, const struct node *n);
    /* Floating-point operations, and bytes of weights, for one row. */
    void (*cost)(const struct node *n, double *flops, double *weight_bytes);
};
extern const struct op_info op_info[N_OPS];

/* ---- building ---- */
struct graph *graph_open(void);
void graph_close(struct graph *g);
/* Declares that the model has n elements of a label, `width` columns each where they are contracted, cut in `unit`s of
 * elements.  graph_matmul() widens the unit to what the blocks of the weights and of int8 activations span. */
void graph_label(struct graph *g, enum label label, uint32_t n_elements, uint32_t width, uint32_t unit);
/* The cache group with this window and head size, made at its first use; GRAPH_MAX_CACHE_GROUPS, with an error, when there are
 * too many. */
uint32_t graph_cache_group(struct graph *g, uint32_t window, uint32_t head_dim);
/* kv_heads are cut where the heads they serve are. */
void graph_label_follows(struct graph *g, enum label label, uint32_t n_elements, enum label of, uint32_t per_element);

struct tensor *graph_input(struct graph *g, const char *name, enum dtype type, struct dim dim);
struct tensor *graph_weight(struct graph *g, const char *name, enum dtype type, enum weight_use use, struct dim rows, struct dim columns);
void graph_output(struct tensor *t, const char *name);

struct tensor *graph_embed(struct graph *g, struct tensor *tokens, struct tensor *table);
struct tensor *graph_rms_norm(struct graph *g, struct tensor *x, struct tensor *weight, float eps);
/* In int8 mode, and when w has blocks, a quantize node is put before. */
struct tensor *graph_matmul(struct graph *g, struct tensor *x, struct tensor *w);
struct tensor *graph_add(struct graph *g, struct tensor *a, struct tensor *b);
struct tensor *graph_add_bias(struct graph *g, struct tensor *x, struct tensor *bias);
struct tensor *graph_swiglu(struct graph *g, struct tensor *gate, struct tensor *up);
struct tensor *graph_geglu(struct graph *g, struct tensor *gate, struct tensor *up);
struct tensor *graph_scale(struct graph *g, struct tensor *x, float factor);
struct tensor *graph_softcap(struct graph *g, struct tensor *x, float cap);
/* RMS norm of each head by itself; weight [head_dim]. */
struct tensor *graph_head_norm(struct graph *g, struct tensor *x, struct tensor *weight, uint32_t head_dim, float eps);
/* factors: NULL, or a vector [n_rotated / 2] that divides the frequencies. */
struct tensor *graph_rope_angles(struct graph *g, struct tensor *positions, struct tensor *factors, const struct node_attr *attr);
struct tensor *graph_rope(struct graph *g, struct tensor *x, struct tensor *angles, const struct node_attr *attr);
/* Stores k and v of this step's tokens; the result stands for "the cache holds them". */
struct tensor *graph_kv_store(struct graph *g, struct tensor *k, struct tensor *v, const struct node_attr *attr);
struct tensor *graph_attention(struct graph *g, struct tensor *q, struct tensor *stored, const struct node_attr *attr);
struct tensor *graph_rows(struct graph *g, struct tensor *x, struct tensor *rows);

/* A mixture of experts over x [T][n]: logits [T][experts] choose attr->n_used of them for each row; each computes
 * down (silu(gate x) * up x), and their outputs times their weights are added in the canonical tree over expert id.
 * gate, up: [experts][ffn][n]; down: [experts][n][ffn].  attr: n_used, normalise, scale. */
struct tensor *graph_experts(struct graph *g, struct tensor *x, struct tensor *logits, struct tensor *gate, struct tensor *up,
                             struct tensor *down, const struct node_attr *attr);
/* WEIGHT_EXPERTS: n matrices; per_expert: name is a format for the names of n tensors. */
struct tensor *graph_expert_weight(struct graph *g, const char *name, bool per_expert, enum dtype type, struct dim experts, struct dim rows,
                                   struct dim columns);

/* A node with these inputs and attributes at the end of the graph, its outputs made and shaped; NULL and error_text(). */
struct node *graph_node(struct graph *g, enum op op, struct tensor *const *in, uint32_t n_in, uint32_t n_out, const struct node_attr *attr);

/* ---- what passes use ---- */
struct tensor *graph_tensor(struct graph *g, enum dtype type);
void graph_remove(struct graph *g, struct node *n);
/* `by`, whose operands are set, takes the place of the nodes from first to last. */
void graph_replace(struct graph *g, struct node *first, struct node *last, struct node *by);
void graph_report(const struct graph *g, const struct node *n, const char *what);
void graph_move_before(struct graph *g, struct node *n, struct node *place);
/* Every use of `old` becomes `by`; `what` is reported to g->log. */
void graph_replace_uses(struct graph *g, struct tensor *old, struct tensor *by, const char *what);
/* How often each tensor, by id, is an input, also of a step, and once more for an output of the graph; the caller frees.
 * NULL: no memory. */
uint32_t *graph_count_uses(const struct graph *g);
uint64_t dim_at(const struct dim *dim, uint64_t symbol_value);
uint64_t dim_max(const struct graph *g, const struct dim *dim);
/* Elements of one row: the product of all dims but the first. */
uint64_t tensor_columns(const struct tensor *t);
/* From one row in memory to the next.  A kernel reads the same columns of many rows of int8 activations: where these would
 * fall on a few sets of the cache, rows are a line longer. */
size_t tensor_row_bytes(const struct tensor *t);
uint32_t tensor_n_parts(const struct tensor *t);
/* A rank computes only its share of the rows: sequence parallelism. */
static inline bool tensor_rows_are_split(const struct tensor *t)
{
    return t->placement[AXIS_TP].kind == PLACE_SPLIT && t->placement[AXIS_TP].dim == 0;
}
/* A matmul or an expert_matmul; and where its weights begin among its inputs. */
bool node_multiplies(const struct node *n);
uint32_t node_first_weight(const struct node *n);
/* One of its steps makes t. */
bool node_makes(const struct node *n, const struct tensor *t);

/* ---- matmul_chain: row operators that make the product's input, its prologue; a product (matmul or expert_matmul); row operators
 * on what it makes, its epilogue.  Either may be missing.
 *
 * Prologue: without effects, on the rows of the product.  Where they are few, each thread makes the input for itself; else it is a
 * region before that of the product, and the input is in memory, so it is an output of the node.
 *
 * Epilogue: who has computed some columns of the product for some rows does it on them at once, so it may have operators only
 * that make columns of their output from the same columns of their inputs.  A strip is the outputs of the product that the
 * epilogue ties together (gate and up; k and v, which are stored together), with the steps that work on them: all of the same
 * columns, of which a chunk of work has `unit`s: whole panels, blocks and heads, as the steps need them. */
struct strip {
    uint64_t n_columns;             /* of each of its outputs; the last unit may be a part of one */
    uint32_t unit;
};
struct strips {
    uint32_t n;
    struct strip strip[NODE_MAX_OUTPUTS];
    uint8_t of_product[NODE_MAX_OUTPUTS];   /* the strip of each output of the product */
    uint8_t of_step[NODE_MAX_STEPS];        /* of each step after it */
};
/* NULL, or which rule the chain breaks. */
const char *chain_strips(struct strips *out, const struct node *chain);

/* 0, or ERR_FAILED with the node that breaks a rule: topological order, one maker, shapes as the shape rules give them, partial
 * sums and split rows only where they are understood, gathers that start early waited for in their order and before a use. */
int graph_verify(struct graph *g);

/* ---- printing ---- */
/* Only the nodes that stand in one layer, after what they take from others; or with LAYER_ANY all. */
void graph_print_text(const struct graph *g, int layer, FILE *to);
void graph_print_dot(const struct graph *g, int layer, FILE *to);
bool graph_has_layer(const struct graph *g, int layer);

/* ---- passes, in order ---- */
/* Dead nodes, common subexpressions, reductions over one rank.  Keeps every output bit for bit. */
int pass_simplify(struct graph *g);
/* Makes the part of `rank` as a new graph; `from` stays as it is.  gathered: what groups of dp hold in common is stored in parts.
 * ERR_USAGE when the layout does not fit the model. */
int pass_shard(struct graph **to, const struct graph *from, const struct mesh *mesh, bool gathered, uint32_t rank);
/* Four ways to fewer, longer regions of work; each keeps every output bit for bit. */
/* Matmuls of one input become one with several weights. */
int pass_fuse_matmuls(struct graph *g);
/* A product and row operators on its columns become a matmul_chain. */
int pass_fuse_epilogues(struct graph *g);
/* Runs of the row operators that are left become a row_chain. */
int pass_fuse_rows(struct graph *g);
/* What makes the input of a matmul and nothing else becomes its prologue. */
int pass_fuse_prologues(struct graph *g);
/* Starts the gathering of a layer's weights a layer early.  Keeps every output bit for bit. */
int pass_overlap(struct graph *g);
/* How many bytes n rows of k weights take; the backend's rule. */
typedef size_t packed_bytes_fn(enum dtype type, uint32_t n_rows, uint32_t k);
/* Gives every tensor its place.  reuse: tensors that are not alive together may share it. */
int pass_place(struct graph *g, bool reuse, packed_bytes_fn *packed_bytes);

/* Bytes that the rank's weights take in memory once loaded. */
size_t graph_weight_bytes(struct graph *g, packed_bytes_fn *packed_bytes);
/* Calls `visit` once for every weight tensor that the graph uses. */
void graph_each_weight(struct graph *g, void (*visit)(struct tensor *weight, void *user), void *user);

#endif
