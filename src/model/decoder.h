/* decoder.h: what decoder-only families have in common: their hyperparameters, and the pieces of a layer.
 *
 * A family reads the hyperparameters, sets what it does in its own way, and puts the pieces together.  Pieces take and give
 * [T][embd] tensors; NULL operands give NULL, with error_text() set, so a family looks once. */
#ifndef STOA_MODEL_DECODER_H
#define STOA_MODEL_DECODER_H

#include "model/model.h"

struct decoder {
    const struct model_file *file;
    uint32_t n_layers, n_vocab, n_embd, n_ffn, n_heads, n_kv_heads, head_dim, n_rotated;
    uint32_t n_experts, n_used, n_expert_ffn;   /* 0 experts: none */
    float eps;
    struct rope_scaling rope;
    /* What families differ in; set between decoder_read() and decoder_begin(). */
    bool interleaved;                           /* RoPE rotates neighbours (2i, 2i + 1), else (i, i + n / 2) */
    bool has_qkv_bias, has_head_norms;          /* every layer has them */
    bool normalise_experts;                     /* unless the file says otherwise */
    float expert_scale;
    float attention_scale, attention_softcap;
    struct tensor *(*gated)(struct graph *g, struct tensor *gate, struct tensor *up);    /* of the feed-forward */
};

/* Reads and checks the keys that all have, and sets the rest as Llama has it.  ERR_BAD_FILE with the key. */
int decoder_read(struct decoder *d, const struct model_file *file);
/* Declares labels and makes the inputs. */
struct decoder_inputs {
    struct tensor *tokens, *positions, *rows;
};
struct decoder_inputs decoder_begin(struct graph *g, const struct decoder *d);
/* The angles of every position, for these frequencies; with the file's rope_freqs tensor where it has one and `factors` is set. */
struct tensor *decoder_angles(struct graph *g, const struct decoder *d, struct tensor *positions, const struct rope_scaling *rope,
                              bool factors);
struct tensor *decoder_embed(struct graph *g, const struct decoder *d, struct tensor *tokens);
/* RMS norm with the layer's vector "blk.I.NAME.weight". */
struct tensor *decoder_norm(struct graph *g, const struct decoder *d, uint32_t layer, const char *name, struct tensor *x);
/* window: positions that a query sees, its own included; 0: all. */
struct tensor *decoder_attention(struct graph *g, const struct decoder *d, uint32_t layer, struct tensor *h, struct tensor *angles,
                                 uint32_t window);
/* Experts in a layer that has a router, else one feed-forward. */
struct tensor *decoder_feed_forward(struct graph *g, const struct decoder *d, uint32_t layer, struct tensor *h);
/* The last norm and the head, for the rows that are wanted; gives the logits, which are not an output yet. */
struct tensor *decoder_head(struct graph *g, const struct decoder *d, struct tensor *x, struct tensor *rows, bool hidden_output);

/* The whole of a model whose layers are   x += attention(norm(x));  x += feed_forward(norm(x)). */
int decoder_build(struct graph *g, const struct decoder *d, const struct model_options *options);

/* rope.c: reads what the file says of RoPE: "rope.freq_base" (base where it is absent) and every kind of scaling that GGUF states. */
int rope_read(struct rope_scaling *rope, const struct model_file *file, float base);
/* A base alone; *base is left as it is when the key is absent. */
int rope_read_base(float *base, const struct model_file *file, const char *suffix);

#endif
