/* llama.c: the Llama family (also SmolLM2, Mistral), and Mixtral's mixtures: RMSNorm, RoPE, grouped-query attention, SwiGLU.
 *
 *   x = embed(token)
 *   for each layer:   x += Wo attention(rope(Wq h), rope(Wk h), Wv h)     with h = rms_norm(x)
 *                     x += Wdown (silu(Wgate h) * Wup h)                  with h = rms_norm(x), or the same for the chosen experts
 *   logits = Whead rms_norm(x)                                            Whead is the embedding where the file has none
 *
 * Sources: Touvron et al., "LLaMA: Open and Efficient Foundation Language Models" (2023); Jiang et al., "Mixtral of Experts"
 * (2024); tensor names and key names of GGUF.  Rows of Wq and Wk are stored so that RoPE rotates neighbours (2i, 2i + 1). */
#include "model/decoder.h"

static int build(struct graph *g, const struct model_file *file, const struct model_options *options)
{
    struct decoder d;
    int err = decoder_read(&d, file);
    uint32_t none = 0;
    if (err < 0 || (err = model_optional_u32(file, "attention.sliding_window", 0, 0, &none)) < 0)
        return err;
    d.interleaved = true;
    return decoder_build(g, &d, options);
}

const struct model_family model_llama = { "llama", build };
