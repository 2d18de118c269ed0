/* compile.h: from a model file to the graph of one rank, pass by pass. */
#ifndef STOA_RUN_COMPILE_H
#define STOA_RUN_COMPILE_H

#include "model/model.h"

enum pass { PASS_BUILD, PASS_SIMPLIFY, PASS_SHARD, PASS_FUSE_MATMULS, PASS_FUSE_EPILOGUES, PASS_FUSE_ROWS, PASS_FUSE_PROLOGUES,
            PASS_OVERLAP, PASS_PLACE, N_PASSES };

struct compile_options {
    struct model_options model;
    struct mesh mesh;
    bool gathered;              /* weights are stored in parts over dp, and gathered before use */
    unsigned without;           /* bits 1 << enum pass: overlap gathers a weight when it is needed, place shares no memory; simplify is
                                   left out of the model's graph only: what pass_shard() makes is tidied up always */
};

/* A pass by name, or "fuse" for the last of the four; ERR_USAGE names the choices. */
int pass_find(enum pass *out, const char *name);
/* A comma list of passes to leave out, as a mask; "fuse" is all four of them, "build" and "shard" are refused, NULL is none. */
int pass_parse_without(unsigned *mask, const char *names);

/* Runs the passes up to `last` for `rank`.  Closes nothing of the caller's; graph_close() the result. */
int compile_rank(struct graph **out, const struct model_file *file, const struct compile_options *options, uint32_t rank, enum pass last);

/* What a rank will hold, before anything is loaded. */
struct rank_prediction {
    size_t weight_bytes, activation_bytes;
    size_t kv_bytes_per_token;  /* of layers that keep every position */
    size_t kv_window_bytes;     /* of those that keep a window: of one sequence that is longer than it and a step */
};
int predict_rank(struct rank_prediction *out, const struct model_file *file, const struct compile_options *options, uint32_t rank);

#endif
