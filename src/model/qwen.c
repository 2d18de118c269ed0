/* qwen.c: the Qwen families: Llama's layers (llama.c) but for
 *
 *   qwen2       biases of query, key and value
 *   qwen3       no biases; RMS norms of every query and key head, before RoPE
 *   qwen3moe    the same with experts: 128 of which 8 are chosen, their weights made to sum to 1
 *
 * and RoPE rotates halves (i, i + n / 2).  Sources: "Qwen2 Technical Report" (2024), "Qwen3 Technical Report" (2025). */
#include "model/decoder.h"

#include "base/error.h"

/* Files of Qwen2 may name a window that the models were not made to use; GGUF says so with 0 or not at all. */
static int read(struct decoder *d, const struct model_file *file)
{
    uint32_t none = 0;
    int err = decoder_read(d, file);
    return err < 0 ? err : model_optional_u32(file, "attention.sliding_window", 0, 0, &none);
}

static int build_qwen2(struct graph *g, const struct model_file *file, const struct model_options *options)
{
    struct decoder d;
    int err = read(&d, file);
    d.has_qkv_bias = true;
    return err < 0 ? err : decoder_build(g, &d, options);
}

static int build_qwen3(struct graph *g, const struct model_file *file, const struct model_options *options)
{
    struct decoder d;
    int err = read(&d, file);
    d.has_head_norms = true;
    return err < 0 ? err : decoder_build(g, &d, options);
}

const struct model_family model_qwen2 = { "qwen2", build_qwen2 };
const struct model_family model_qwen3 = { "qwen3", build_qwen3 };
const struct model_family model_qwen3moe = { "qwen3moe", build_qwen3 };
