/* model.h: the table of model families, and what a program needs to know of a model before it builds one.
 *
 * A family is one file: it reads hyperparameters from the model file and builds a graph as if for one device.  It knows
 * nothing of ranks, threads, batches or the step plan. */
#ifndef STOA_MODEL_MODEL_H
#define STOA_MODEL_MODEL_H

#include "format/model_file.h"
#include "graph/graph.h"

struct model_info {
    const char *architecture;       /* borrowed from the file */
    uint32_t n_layers, n_vocab;
    uint32_t n_ids;                 /* that the tokenizer has: rows of the vocabulary beyond are padding, which no answer may name */
    uint32_t n_context;             /* the longest sequence that the model was made for */
    uint64_t n_parameters;          /* elements of all tensors in the file */
};

struct model_options {
    bool int8_activations;          /* else everything is f32 between the operators */
    bool warn;                      /* of tensors that the family does not use */
    bool hidden_outputs;            /* an output "hidden" after the embedding, each layer, and the last norm */
    enum dtype cache_type;
    uint32_t n_groups;              /* of every canonical tree; 0: by the rule, which is the answer that all layouts give */
    uint32_t max_tokens, max_rows;  /* of one step */
};

/* Inputs of every graph: "tokens" [T] i32, "positions" [T] i32, "rows" [R] i32.  Outputs: "logits" [R][vocab]. */

/* ERR_BAD_FILE for an architecture that no family serves, or hyperparameters and tensors that do not fit. */
int model_info_read(struct model_info *info, const struct model_file *file);
int model_build(struct graph **out, const struct model_file *file, const struct model_options *options);

/* ---- for the family files ---- */
struct model_family {
    const char *architecture;
    int (*build)(struct graph *g, const struct model_file *file, const struct model_options *options);
};
extern const struct model_family model_llama, model_qwen2, model_qwen3, model_qwen3moe, model_gemma3;

/* A weight of the file under the printf-formatted name, with the dims that the family expects; NULL and ERR_BAD_FILE naming
 * the tensor when it is missing or has other dims.  A vector has rows DIM(1). */
struct tensor *model_weight(struct graph *g, const struct model_file *file, enum weight_use use, struct dim rows, struct dim columns,
                            const char *format, ...) __attribute__((format(printf, 6, 7)));
/* A stack of matrices [experts][rows][columns]: "blk.LAYER.NAME_exps.weight", or the tensors "blk.LAYER.NAME.E.weight" of older files. */
struct tensor *model_expert_weight(struct graph *g, const struct model_file *file, struct dim experts, struct dim rows, struct dim columns,
                                   uint32_t layer, const char *name);
bool model_has(const struct model_file *file, const char *name);
/* format has one %u. */
bool model_has_layer(const struct model_file *file, const char *format, uint32_t layer);
/* Whether there is a key "ARCHITECTURE.suffix". */
bool model_has_key(const struct model_file *file, const char *suffix);
/* False, and *out as it was, when the key is absent or of another type. */
bool model_i32s(const struct model_file *file, const char *suffix, const int32_t **out, size_t *n);
/* "ARCHITECTURE.suffix" as an integer in [min, max]; 0 or ERR_BAD_FILE. */
int model_u32(const struct model_file *file, const char *suffix, uint32_t min, uint32_t max, uint32_t *out);
int model_f32(const struct model_file *file, const char *suffix, float *out);
/* The same, with *out left as it is when the key is absent; a key of the wrong type is an error all the same. */
int model_optional_u32(const struct model_file *file, const char *suffix, uint32_t min, uint32_t max, uint32_t *out);
int model_optional_f32(const struct model_file *file, const char *suffix, float *out);
int model_optional_bool(const struct model_file *file, const char *suffix, bool *out);
int model_optional_string(const struct model_file *file, const char *suffix, const char **out);

#endif
