#include "model/decoder.h"

#include "base/base.h"
#include "base/error.h"

#include <float.h>
#include <math.h>

/* ---- hyperparameters ---- */
/* Keys of relatives that would change the answer, and that nobody here knows. */
static int check_strangers(const struct decoder *d)
{
    uint32_t value = d->head_dim;
    bool causal = true;
    int err = model_optional_u32(d->file, "attention.value_length", d->head_dim, d->head_dim, &value);
    if (err == 0 && (err = model_optional_bool(d->file, "attention.causal", &causal)) == 0 && !causal)
        err = error_set(ERR_BAD_FILE, "attention.causal: false is not supported");
    return err;
}

static int read_experts(struct decoder *d)
{
    const struct model_file *file = d->file;
    int err;
    if ((err = model_optional_u32(file, "expert_count", 0, 1024, &d->n_experts)) < 0 || !d->n_experts)
        return err;
    d->n_expert_ffn = d->n_ffn;
    if ((err = model_u32(file, "expert_used_count", 1, MIN(d->n_experts, 64), &d->n_used)) < 0 ||
        (err = model_optional_u32(file, "expert_feed_forward_length", 1, 1 << 20, &d->n_expert_ffn)) < 0 ||
        (err = model_optional_f32(file, "expert_weights_scale", &d->expert_scale)) < 0)
        return err;
    if (!d->expert_scale)
        d->expert_scale = 1;
    return model_optional_bool(file, "expert_weights_norm", &d->normalise_experts);
}

int decoder_read(struct decoder *d, const struct model_file *file)
{
    struct model_info info;
    int err;
    *d = (struct decoder){ .file = file, .normalise_experts = true, .expert_scale = 1, .gated = graph_swiglu };
    if ((err = model_info_read(&info, file)) < 0 || (err = model_u32(file, "embedding_length", 1, 1 << 20, &d->n_embd)) < 0 ||
        (err = model_u32(file, "feed_forward_length", 1, 1 << 20, &d->n_ffn)) < 0 ||
        (err = model_u32(file, "attention.head_count", 1, 4096, &d->n_heads)) < 0 ||
        (err = model_f32(file, "attention.layer_norm_rms_epsilon", &d->eps)) < 0 || (err = rope_read(&d->rope, file, 10000)) < 0)
        return err;
    d->n_layers = info.n_layers;
    d->n_vocab = info.n_vocab;
    d->n_kv_heads = d->n_heads;
    d->head_dim = d->n_embd / d->n_heads;
    if ((err = model_optional_u32(file, "attention.head_count_kv", 1, d->n_heads, &d->n_kv_heads)) < 0 ||
        (err = model_optional_u32(file, "attention.key_length", 1, 256, &d->head_dim)) < 0)
        return err;
    d->n_rotated = d->head_dim;
    if ((err = model_optional_u32(file, "rope.dimension_count", 1, d->head_dim, &d->n_rotated)) < 0 || (err = read_experts(d)) < 0)
        return err;
    if (d->n_heads % d->n_kv_heads)
        return error_set(ERR_BAD_FILE, "attention.head_count_kv: %u does not divide %u heads", d->n_kv_heads, d->n_heads);
    if (!d->head_dim || d->head_dim > 256 || d->n_rotated % 2)
        return error_set(ERR_BAD_FILE, "heads of %u dims with %u rotated are not supported", d->head_dim, d->n_rotated);
    if (!(d->eps >= 0 && d->eps < 1))
        return error_set(ERR_BAD_FILE, "attention.layer_norm_rms_epsilon: %g is out of range", (double)d->eps);
    d->attention_scale = 1.0f / sqrtf((float)d->head_dim);
    return check_strangers(d);
}

/* ---- pieces ---- */
static bool has_experts(const struct decoder *d, uint32_t layer)
{
    return d->n_experts && model_has_layer(d->file, "blk.%u.ffn_gate_inp.weight", layer);
}

struct decoder_inputs decoder_begin(struct graph *g, const struct decoder *d)
{
    bool is_dense = false;
    for (uint32_t i = 0; i < d->n_layers; i++)
        is_dense |= !has_experts(d, i);
    graph_label(g, LABEL_HEADS, d->n_heads, d->head_dim, 1);
    graph_label_follows(g, LABEL_KV_HEADS, d->n_kv_heads, LABEL_HEADS, d->n_heads / d->n_kv_heads);
    graph_label(g, LABEL_FFN, is_dense ? d->n_ffn : 0, 1, 1);
    graph_label(g, LABEL_EXPERTS, d->n_experts, d->n_expert_ffn, 1);
    graph_label(g, LABEL_VOCAB, d->n_vocab, 1, 16);
    g->n_layers = d->n_layers;
    return (struct decoder_inputs){
        .tokens = graph_input(g, "tokens", DTYPE_I32, DIM_T), .positions = graph_input(g, "positions", DTYPE_I32, DIM_T),
        .rows = graph_input(g, "rows", DTYPE_I32, DIM_R),
    };
}

/* What frequencies are divided by: anything but a positive number turns angles into something that is none, or is no rotation. */
static bool factors_are_good(const struct model_tensor *t)
{
    float value[128];           /* half of the largest head */
    assert(t->dims[0] <= COUNT_OF(value));
    dequantize_row(value, t->data, t->type, t->dims[0]);
    for (uint64_t i = 0; i < t->dims[0]; i++)
        if (!(value[i] > 0 && value[i] <= FLT_MAX)) {
            error_set(ERR_BAD_FILE, "tensor %s: factor %llu is %g, wanted more than 0", t->name, (unsigned long long)i, (double)value[i]);
            return false;
        }
    return true;
}

struct tensor *decoder_angles(struct graph *g, const struct decoder *d, struct tensor *positions, const struct rope_scaling *rope,
                              bool factors)
{
    struct node_attr attr = { .n_rotated = d->n_rotated, .rope = *rope };
    struct tensor *divisors = NULL;
    int layer = g->layer;
    if (factors && model_has(d->file, "rope_freqs.weight") &&
        (!(divisors = model_weight(g, d->file, WEIGHT_VECTOR, DIM(1), DIM(d->n_rotated / 2), "rope_freqs.weight")) ||
         !factors_are_good(model_file_tensor(d->file, "rope_freqs.weight"))))
        return NULL;
    g->layer = LAYER_ANY;
    struct tensor *angles = graph_rope_angles(g, positions, divisors, &attr);
    g->layer = layer;
    return angles;
}

struct tensor *decoder_embed(struct graph *g, const struct decoder *d, struct tensor *tokens)
{
    return graph_embed(g, tokens, model_weight(g, d->file, WEIGHT_LOOKUP, DIM(d->n_vocab), DIM(d->n_embd), "token_embd.weight"));
}

static struct tensor *layer_vector(struct graph *g, const struct decoder *d, uint32_t layer, const char *name, const char *kind,
                                   struct dim dim)
{
    return model_weight(g, d->file, WEIGHT_VECTOR, DIM(1), dim, "blk.%u.%s.%s", layer, name, kind);
}

static struct tensor *layer_matmul(struct graph *g, const struct decoder *d, uint32_t layer, const char *name, struct tensor *x,
                                   struct dim rows, struct dim columns)
{
    return graph_matmul(g, x, model_weight(g, d->file, WEIGHT_MATMUL, rows, columns, "blk.%u.%s.weight", layer, name));
}

struct tensor *decoder_norm(struct graph *g, const struct decoder *d, uint32_t layer, const char *name, struct tensor *x)
{
    return graph_rms_norm(g, x, layer_vector(g, d, layer, name, "weight", DIM(d->n_embd)), d->eps);
}

/* Query, key or value, with its bias where the family has one. */
static struct tensor *projection(struct graph *g, const struct decoder *d, uint32_t layer, const char *name, struct tensor *h,
                                 struct dim rows)
{
    struct tensor *y = layer_matmul(g, d, layer, name, h, rows, DIM(d->n_embd));
    return y && d->has_qkv_bias ? graph_add_bias(g, y, layer_vector(g, d, layer, name, "bias", rows)) : y;
}

static struct tensor *rotated(struct graph *g, const struct decoder *d, uint32_t layer, const char *norm, struct tensor *x,
                              struct tensor *angles, const struct node_attr *attr)
{
    if (x && d->has_head_norms)
        x = graph_head_norm(g, x, layer_vector(g, d, layer, norm, "weight", DIM(d->head_dim)), d->head_dim, d->eps);
    return graph_rope(g, x, angles, attr);
}

struct tensor *decoder_attention(struct graph *g, const struct decoder *d, uint32_t layer, struct tensor *h, struct tensor *angles,
                                 uint32_t window)
{
    struct dim heads = DIM_OF(d->n_heads, LABEL_HEADS, d->head_dim), kv_heads = DIM_OF(d->n_kv_heads, LABEL_KV_HEADS, d->head_dim);
    struct node_attr attr = {
        .head_dim = d->head_dim, .n_rotated = d->n_rotated, .interleaved = d->interleaved, .scale = d->attention_scale,
        .softcap = d->attention_softcap, .heads_per_kv = d->n_heads / d->n_kv_heads,
        .cache_group = graph_cache_group(g, window, d->head_dim),
    };
    if (attr.cache_group == GRAPH_MAX_CACHE_GROUPS)
        return NULL;
    struct tensor *q = projection(g, d, layer, "attn_q", h, heads), *k = projection(g, d, layer, "attn_k", h, kv_heads);
    struct tensor *v = projection(g, d, layer, "attn_v", h, kv_heads);
    q = rotated(g, d, layer, "attn_q_norm", q, angles, &attr);
    k = rotated(g, d, layer, "attn_k_norm", k, angles, &attr);
    struct tensor *a = graph_attention(g, q, graph_kv_store(g, k, v, &attr), &attr);
    return layer_matmul(g, d, layer, "attn_output", a, DIM(d->n_embd), heads);
}

static struct tensor *experts(struct graph *g, const struct decoder *d, uint32_t layer, struct tensor *h)
{
    struct node_attr attr = { .n_used = d->n_used, .normalise = d->normalise_experts, .scale = d->expert_scale };
    struct dim embd = DIM(d->n_embd), ffn = DIM(d->n_expert_ffn), all = DIM_OF(d->n_experts, LABEL_EXPERTS, 1);
    struct tensor *logits = layer_matmul(g, d, layer, "ffn_gate_inp", h, DIM(d->n_experts), embd);
    return graph_experts(g, h, logits, model_expert_weight(g, d->file, all, ffn, embd, layer, "ffn_gate"),
                         model_expert_weight(g, d->file, all, ffn, embd, layer, "ffn_up"),
                         model_expert_weight(g, d->file, all, embd, ffn, layer, "ffn_down"), &attr);
}

struct tensor *decoder_feed_forward(struct graph *g, const struct decoder *d, uint32_t layer, struct tensor *h)
{
    struct dim embd = DIM(d->n_embd), ffn = DIM_OF(d->n_ffn, LABEL_FFN, 1);
    if (has_experts(d, layer))
        return experts(g, d, layer, h);
    struct tensor *gate = layer_matmul(g, d, layer, "ffn_gate", h, ffn, embd), *up = layer_matmul(g, d, layer, "ffn_up", h, ffn, embd);
    return layer_matmul(g, d, layer, "ffn_down", d->gated(g, gate, up), embd, ffn);
}

struct tensor *decoder_head(struct graph *g, const struct decoder *d, struct tensor *x, struct tensor *rows, bool hidden_output)
{
    struct dim embd = DIM(d->n_embd);
    x = graph_rms_norm(g, graph_rows(g, x, rows), model_weight(g, d->file, WEIGHT_VECTOR, DIM(1), embd, "output_norm.weight"), d->eps);
    if (hidden_output)
        graph_output(x, "hidden");
    const char *head = model_has(d->file, "output.weight") ? "output.weight" : "token_embd.weight";
    return graph_matmul(g, x, model_weight(g, d->file, WEIGHT_MATMUL, DIM_OF(d->n_vocab, LABEL_VOCAB, 1), embd, "%s", head));
}

int decoder_build(struct graph *g, const struct decoder *d, const struct model_options *options)
{
    struct decoder_inputs in = decoder_begin(g, d);
    struct tensor *angles = decoder_angles(g, d, in.positions, &d->rope, true);
    g->layer = 0;
    struct tensor *x = decoder_embed(g, d, in.tokens);
    for (uint32_t i = 0; i < d->n_layers; i++) {
        g->layer = (int)i;
        if (options->hidden_outputs)
            graph_output(x, "hidden");
        x = graph_add(g, x, decoder_attention(g, d, i, decoder_norm(g, d, i, "attn_norm", x), angles, 0));
        x = graph_add(g, x, decoder_feed_forward(g, d, i, decoder_norm(g, d, i, "ffn_norm", x)));
        if (!x)
            return ERR_BAD_FILE;
    }
    struct tensor *logits = decoder_head(g, d, x, in.rows, options->hidden_outputs);
    graph_output(logits, "logits");
    return logits ? 0 : ERR_BAD_FILE;
}
