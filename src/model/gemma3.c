/* gemma3.c: Gemma 3 (text): local layers, which see a window, and global ones, each with a RoPE of its own.
 *
 *   x = sqrt(n_embd) embed(token)
 *   for each layer:   x += norm(Wo attention(rope(norm(Wq h)), rope(norm(Wk h)), Wv h))      with h = norm(x); norms of each head
 *                     x += norm(Wdown (gelu(Wgate h) * Wup h))                               with h = norm(x)
 *   logits = cap * tanh(Whead norm(x) / cap)                                                 where the file has a cap
 *
 * Every sixth layer is global unless the file has another pattern.  Norm weights are stored with Gemma's + 1.
 * Source: "Gemma 3 Technical Report" (2025); tensor names and key names of GGUF. */
#include "model/decoder.h"

#include "base/base.h"
#include "base/error.h"

#include <math.h>

struct gemma3 {
    struct decoder d;
    uint32_t window, pattern;
    const int32_t *is_local;        /* [n_layers], or NULL: by pattern */
    struct rope_scaling local_rope;
    float logit_softcap;
};

static int read_pattern(struct gemma3 *m, const struct model_file *file)
{
    size_t n;
    int err = model_u32(file, "attention.sliding_window", 0, 1u << 30, &m->window);
    m->pattern = 6;
    if (err == 0 && model_i32s(file, "attention.sliding_window_pattern", &m->is_local, &n))
        return n == m->d.n_layers ? 0 : error_set(ERR_BAD_FILE, "attention.sliding_window_pattern: wanted one for each of %u layers, "
                                                  "found %zu", m->d.n_layers, n);
    return err < 0 ? err : model_optional_u32(file, "attention.sliding_window_pattern", 1, 1024, &m->pattern);
}

/* 0, or no key, is no cap. */
static int read_cap(float *cap, const struct model_file *file, const char *suffix)
{
    int err = model_optional_f32(file, suffix, cap);
    return err < 0 || *cap >= 0 ? err : error_set(ERR_BAD_FILE, "%s: %g is negative", suffix, (double)*cap);
}

static int read(struct gemma3 *m, const struct model_file *file)
{
    int err;
    *m = (struct gemma3){ .local_rope = { .base = 10000, .magnitude = 1 } };
    if ((err = decoder_read(&m->d, file)) < 0 || (err = read_pattern(m, file)) < 0 ||
        (err = rope_read_base(&m->local_rope.base, file, "rope.freq_base_swa")) < 0 ||
        (err = read_cap(&m->d.attention_softcap, file, "attn_logit_softcapping")) < 0 ||
        (err = read_cap(&m->logit_softcap, file, "final_logit_softcapping")) < 0)
        return err;
    if (!model_has_key(file, "rope.freq_base"))
        m->d.rope.base = 1000000;
    m->d.has_head_norms = true;
    m->d.gated = graph_geglu;
    if (m->d.n_layers == 62)        /* the 27B model alone is scaled by this, which no key says */
        m->d.attention_scale = 1.0f / sqrtf((float)(m->d.n_embd / m->d.n_heads));
    return 0;
}

static bool is_local(const struct gemma3 *m, uint32_t layer)
{
    return m->window && (m->is_local ? m->is_local[layer] != 0 : (layer + 1) % m->pattern != 0);
}

static int build(struct graph *g, const struct model_file *file, const struct model_options *options)
{
    struct gemma3 m;
    int err = read(&m, file);
    if (err < 0)
        return err;
    const struct decoder *d = &m.d;
    struct decoder_inputs in = decoder_begin(g, d);
    struct tensor *local = decoder_angles(g, d, in.positions, &m.local_rope, false);
    struct tensor *global = decoder_angles(g, d, in.positions, &d->rope, true);
    g->layer = 0;
    struct tensor *x = graph_scale(g, decoder_embed(g, d, in.tokens), sqrtf((float)d->n_embd));
    for (uint32_t i = 0; i < d->n_layers; i++) {
        bool windowed = is_local(&m, i);
        g->layer = (int)i;
        if (options->hidden_outputs)
            graph_output(x, "hidden");
        struct tensor *h = decoder_norm(g, d, i, "attn_norm", x);
        h = decoder_attention(g, d, i, h, windowed ? local : global, windowed ? m.window : 0);
        x = graph_add(g, x, decoder_norm(g, d, i, "post_attention_norm", h));
        h = decoder_feed_forward(g, d, i, decoder_norm(g, d, i, "ffn_norm", x));
        x = graph_add(g, x, decoder_norm(g, d, i, "post_ffw_norm", h));
        if (!x)
            return ERR_BAD_FILE;
    }
    struct tensor *logits = decoder_head(g, d, x, in.rows, options->hidden_outputs);
    if (m.logit_softcap > 0)
        logits = graph_softcap(g, logits, m.logit_softcap);
    graph_output(logits, "logits");
    return logits ? 0 : ERR_BAD_FILE;
}

const struct model_family model_gemma3 = { "gemma3", build };
