/* llama.c: the Llama family (also SmolLM2): RMSNorm, RoPE, grouped-query attention, SwiGLU.
 *
 *   x = embed(token)
 *   for each layer:   x += Wo attention(rope(Wq h), rope(Wk h), Wv h)     with h = rms_norm(x)
 *                     x += Wdown (silu(Wgate h) * Wup h)                  with h = rms_norm(x)
 *   logits = Whead rms_norm(x)                                            Whead is the embedding where the file has none
 *
 * Source: Touvron et al., "LLaMA: Open and Efficient Foundation Language Models" (2023); tensor names and key names of
 * GGUF.  Rows of Wq and Wk are stored so that RoPE rotates neighbours (2i, 2i + 1). */
#include "model/model.h"

#include "base/base.h"
#include "base/error.h"

#include <math.h>
#include <string.h>

struct llama {
    uint32_t n_layers, n_vocab, n_embd, n_ffn, n_heads, n_kv_heads, head_dim, n_rotated;
    float eps, rope_base;
};

/* Scaled positions would change every answer.  A factor without a type is linear scaling, as older files say it. */
static int check_rope_scaling(const struct model_file *file)
{
    static const char *const factors[] = { "llama.rope.scaling.factor", "llama.rope.scale_linear" };
    static const char type_key[] = "llama.rope.scaling.type";
    const char *type = "none";
    float factor = 1;
    int err = model_file_has(file, type_key) ? model_file_require_string(file, type_key, &type, NULL) : 0;
    if (err < 0)
        return err;
    if (strcmp(type, "none"))
        return error_set(ERR_BAD_FILE, "llama.rope.scaling.type: \"%s\" is not supported", type);
    for (size_t i = 0; i < COUNT_OF(factors); i++)
        if (model_file_get_f32(file, factors[i], &factor) && factor != 0 && factor != 1)
            return error_set(ERR_BAD_FILE, "%s: a factor of %g is not supported", factors[i], (double)factor);
    return 0;
}

/* Keys of relatives that would change the answer, and that this family does not know. */
static int check_strangers(const struct model_file *file, const struct llama *m)
{
    uint32_t value = m->head_dim, none = 0;
    bool causal = true;
    int err;
    if ((err = model_optional_u32(file, "expert_count", 0, 0, &none)) < 0 ||
        (err = model_optional_u32(file, "attention.sliding_window", 0, 0, &none)) < 0 ||
        (err = model_optional_u32(file, "attention.value_length", m->head_dim, m->head_dim, &value)) < 0)
        return err;
    if (model_file_get_bool(file, "llama.attention.causal", &causal) && !causal)
        return error_set(ERR_BAD_FILE, "llama.attention.causal: false is not supported");
    return 0;
}

static int read_hyperparameters(struct llama *m, const struct model_file *file)
{
    struct model_info info;
    int err;
    *m = (struct llama){ .rope_base = 10000.0f };
    if ((err = model_info_read(&info, file)) < 0 || (err = model_u32(file, "embedding_length", 1, 1 << 20, &m->n_embd)) < 0 ||
        (err = model_u32(file, "feed_forward_length", 1, 1 << 20, &m->n_ffn)) < 0 ||
        (err = model_u32(file, "attention.head_count", 1, 4096, &m->n_heads)) < 0 ||
        (err = model_f32(file, "attention.layer_norm_rms_epsilon", &m->eps)) < 0 || (err = check_rope_scaling(file)) < 0)
        return err;
    m->n_layers = info.n_layers;
    m->n_vocab = info.n_vocab;
    m->n_kv_heads = m->n_heads;
    m->head_dim = m->n_embd / m->n_heads;
    if ((err = model_optional_u32(file, "attention.head_count_kv", 1, m->n_heads, &m->n_kv_heads)) < 0 ||
        (err = model_optional_u32(file, "attention.key_length", 1, 256, &m->head_dim)) < 0)
        return err;
    m->n_rotated = m->head_dim;
    if ((err = model_optional_u32(file, "rope.dimension_count", 1, m->head_dim, &m->n_rotated)) < 0 ||
        (err = model_optional_f32(file, "rope.freq_base", &m->rope_base)) < 0)
        return err;
    if (!m->n_kv_heads || m->n_kv_heads > m->n_heads || m->n_heads % m->n_kv_heads)
        return error_set(ERR_BAD_FILE, "llama.attention.head_count_kv: %u does not divide %u heads", m->n_kv_heads, m->n_heads);
    if (!m->head_dim || m->head_dim > 256 || !m->n_rotated || m->n_rotated % 2 || m->n_rotated > m->head_dim)
        return error_set(ERR_BAD_FILE, "heads of %u dims with %u rotated are not supported", m->head_dim, m->n_rotated);
    if ((err = check_strangers(file, m)) < 0)
        return err;
    if (!(m->eps >= 0 && m->eps < 1) || !(m->rope_base > 1 && m->rope_base < 1e12f))
        return error_set(ERR_BAD_FILE, "llama.attention.layer_norm_rms_epsilon or llama.rope.freq_base is out of range");
    return 0;
}

static struct tensor *attention(struct graph *g, const struct model_file *file, const struct llama *m, uint32_t i, struct tensor *h,
                                struct tensor *angles)
{
    struct dim embd = DIM(m->n_embd), heads = DIM_OF(m->n_heads, LABEL_HEADS, m->head_dim);
    struct dim kv_heads = DIM_OF(m->n_kv_heads, LABEL_KV_HEADS, m->head_dim);
    struct node_attr attr = {
        .head_dim = m->head_dim, .n_rotated = m->n_rotated, .interleaved = true, .cache_group = graph_cache_group(g, 0, m->head_dim),
        .scale = 1.0f / sqrtf((float)m->head_dim), .heads_per_kv = m->n_heads / m->n_kv_heads,
    };
    struct tensor *q = graph_matmul(g, h, model_weight(g, file, WEIGHT_MATMUL, heads, embd, "blk.%u.attn_q.weight", i));
    struct tensor *k = graph_matmul(g, h, model_weight(g, file, WEIGHT_MATMUL, kv_heads, embd, "blk.%u.attn_k.weight", i));
    struct tensor *v = graph_matmul(g, h, model_weight(g, file, WEIGHT_MATMUL, kv_heads, embd, "blk.%u.attn_v.weight", i));
    q = graph_rope(g, q, angles, &attr);
    k = graph_rope(g, k, angles, &attr);
    struct tensor *a = graph_attention(g, q, graph_kv_store(g, k, v, &attr), &attr);
    return graph_matmul(g, a, model_weight(g, file, WEIGHT_MATMUL, embd, heads, "blk.%u.attn_output.weight", i));
}

static struct tensor *feed_forward(struct graph *g, const struct model_file *file, const struct llama *m, uint32_t i, struct tensor *h)
{
    struct dim embd = DIM(m->n_embd), ffn = DIM_OF(m->n_ffn, LABEL_FFN, 1);
    struct tensor *gate = graph_matmul(g, h, model_weight(g, file, WEIGHT_MATMUL, ffn, embd, "blk.%u.ffn_gate.weight", i));
    struct tensor *up = graph_matmul(g, h, model_weight(g, file, WEIGHT_MATMUL, ffn, embd, "blk.%u.ffn_up.weight", i));
    return graph_matmul(g, graph_swiglu(g, gate, up), model_weight(g, file, WEIGHT_MATMUL, embd, ffn, "blk.%u.ffn_down.weight", i));
}

static int build(struct graph *g, const struct model_file *file, const struct model_options *options)
{
    struct llama m;
    int err = read_hyperparameters(&m, file);
    if (err < 0)
        return err;
    struct dim one = DIM(1), embd = DIM(m.n_embd), vocab = DIM_OF(m.n_vocab, LABEL_VOCAB, 1);
    graph_label(g, LABEL_HEADS, m.n_heads, m.head_dim, 1);
    graph_label_follows(g, LABEL_KV_HEADS, m.n_kv_heads, LABEL_HEADS, m.n_heads / m.n_kv_heads);
    graph_label(g, LABEL_FFN, m.n_ffn, 1, 1);
    graph_label(g, LABEL_VOCAB, m.n_vocab, 1, 16);
    g->n_layers = m.n_layers;

    struct tensor *tokens = graph_input(g, "tokens", DTYPE_I32, DIM_T), *positions = graph_input(g, "positions", DTYPE_I32, DIM_T);
    struct tensor *rows = graph_input(g, "rows", DTYPE_I32, DIM_R), *factors = NULL;
    struct node_attr rope = { .n_rotated = m.n_rotated, .rope_base = m.rope_base };
    if (model_has(file, "rope_freqs.weight") &&
        !(factors = model_weight(g, file, WEIGHT_VECTOR, one, DIM(m.n_rotated / 2), "rope_freqs.weight")))
        return ERR_BAD_FILE;
    struct tensor *angles = graph_rope_angles(g, positions, factors, &rope);
    g->layer = 0;
    struct tensor *x = graph_embed(g, tokens, model_weight(g, file, WEIGHT_LOOKUP, DIM(m.n_vocab), embd, "token_embd.weight"));
    for (uint32_t i = 0; i < m.n_layers; i++) {
        g->layer = (int)i;
        if (options->hidden_outputs)
            graph_output(x, "hidden");
        struct tensor *h = graph_rms_norm(g, x, model_weight(g, file, WEIGHT_VECTOR, one, embd, "blk.%u.attn_norm.weight", i), m.eps);
        x = graph_add(g, x, attention(g, file, &m, i, h, angles));
        h = graph_rms_norm(g, x, model_weight(g, file, WEIGHT_VECTOR, one, embd, "blk.%u.ffn_norm.weight", i), m.eps);
        x = graph_add(g, x, feed_forward(g, file, &m, i, h));
        if (!x)
            return ERR_BAD_FILE;
    }
    x = graph_rms_norm(g, graph_rows(g, x, rows), model_weight(g, file, WEIGHT_VECTOR, one, embd, "output_norm.weight"), m.eps);
    if (options->hidden_outputs)
        graph_output(x, "hidden");
    const char *head = model_has(file, "output.weight") ? "output.weight" : "token_embd.weight";
    struct tensor *logits = graph_matmul(g, x, model_weight(g, file, WEIGHT_MATMUL, vocab, embd, "%s", head));
    graph_output(logits, "logits");
    return logits ? 0 : ERR_BAD_FILE;
}

const struct model_family model_llama = { "llama", build };
