#!/usr/bin/env python3
"""Writes the tiny checkpoints whose golden results are in tests/golden/tiny, as GGUF files in F32.

    make_golden_models.py OUT_DIR

The project's reference scripts (make_tiny.py) draw their weights from torch's generator, and torch is 630 MB.  random_normal() below
is that generator: the same Mersenne twister, the same 24 bits, the same Box-Muller in rows of 16.  Five in six weights have torch's bits,
the others differ in the last one, since torch's vectors round log, sin and cos in their own way: logits move by 1e-6, the
tolerance is 1e-4.  So nothing is downloaded, and nothing big is kept in the repository.

Names and shapes first are those of Hugging Face checkpoints, as they decide the order of drawing; to_gguf() renames and reorders as
llama.cpp's convert_hf_to_gguf.py does.  Needs the `gguf` and `numpy` packages.
"""
import json
import os
import sys
import zlib
from dataclasses import dataclass

import gguf
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
VOCAB, DIM, HEADS = 512, 64, 8
F = np.float32


@dataclass(frozen=True)
class Checkpoint:
    arch: str                   # of GGUF
    tokenizer: str = "gpt-2"    # its pre-tokenizer; "default" is SentencePiece's kind
    layers: int = 6
    kv_heads: int = 4
    head_dim: int = 8
    ffn: int = 128
    tied: bool = False
    biases: bool = False        # of Q, K and V
    head_norms: bool = False    # of each head of Q and K
    gemma: bool = False         # four norms a layer, which multiply by 1 + weight
    window: int = 0
    experts: int = 0
    used: int = 0
    expert_ffn: int = 0
    dense_layers: tuple = ()    # without experts
    rope_base: float = 10000.0
    rope_scaling: tuple = ()    # llama3's: factor, low and high frequency factor, original context
    eps: float = 1e-6


CHECKPOINTS = {
    "llama": Checkpoint("llama", "default"),
    "llama-kv2": Checkpoint("llama", "default", kv_heads=2),
    "llama-mha7": Checkpoint("llama", "default", kv_heads=8, layers=7, tied=True),
    "llama-rope3": Checkpoint("llama", rope_base=500000.0, rope_scaling=(8.0, 1.0, 4.0, 64)),
    "qwen2": Checkpoint("qwen2", "qwen2", kv_heads=2, tied=True, biases=True),
    "qwen3": Checkpoint("qwen3", head_dim=16, head_norms=True),
    "gemma3": Checkpoint("gemma3", "default", head_dim=16, tied=True, head_norms=True, gemma=True, window=32, rope_base=1e6),
    "mixtral": Checkpoint("llama", "default", experts=8, used=2, expert_ffn=64, ffn=64, rope_base=1e6, eps=1e-5),
    "qwen3_moe": Checkpoint("qwen3moe", head_dim=16, head_norms=True, experts=16, used=4, expert_ffn=24, dense_layers=(2,)),
}


# ---- the weights, as make_tiny.py draws them ----
def random_normal(generator, shape):
    """torch.randn(shape, generator=...) on a CPU: pairs (i, i + 8) of 16 uniform numbers become a sine and a cosine."""
    words = np.frombuffer(generator.bytes(4 * int(np.prod(shape))), "<u4")
    u = ((words & 0xFFFFFF).astype(F) * F(2.0 ** -24)).reshape(-1, 2, 8)
    radius = np.sqrt(F(-2) * np.log((F(1) - u[:, 0]).astype(np.float64)).astype(F))
    angle = (F(2 * np.pi) * u[:, 1]).astype(np.float64)
    return np.stack([radius * np.cos(angle).astype(F), radius * np.sin(angle).astype(F)], 1).reshape(shape)


def shapes(c):
    q, kv = HEADS * c.head_dim, c.kv_heads * c.head_dim
    yield "lm_head.weight", (VOCAB, DIM)        # drawn even where it is tied
    yield "model.embed_tokens.weight", (VOCAB, DIM)
    yield "model.norm.weight", (DIM,)
    for i in range(c.layers):
        b = f"model.layers.{i}."
        norms = ["input_layernorm", "post_attention_layernorm"]
        norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"] if c.gemma else []
        yield from ((f"{b}{norm}.weight", (DIM,)) for norm in norms)
        for x, rows in (("q", q), ("k", kv), ("v", kv)):
            yield f"{b}self_attn.{x}_proj.weight", (rows, DIM)
            if c.biases:
                yield f"{b}self_attn.{x}_proj.bias", (rows,)
            if c.head_norms and x != "v":
                yield f"{b}self_attn.{x}_norm.weight", (c.head_dim,)
        yield f"{b}self_attn.o_proj.weight", (DIM, q)
        if c.experts and i not in c.dense_layers:
            yield f"{b}mlp.gate.weight", (c.experts, DIM)
            yield f"{b}mlp.experts.gate_up_proj", (c.experts, 2 * c.expert_ffn, DIM)
            yield f"{b}mlp.experts.down_proj", (c.experts, DIM, c.expert_ffn)
        else:
            yield f"{b}mlp.gate_proj.weight", (c.ffn, DIM)
            yield f"{b}mlp.up_proj.weight", (c.ffn, DIM)
            yield f"{b}mlp.down_proj.weight", (DIM, c.ffn)


def weights(name, c):
    """Hugging Face's name -> values, drawn in the order of the names."""
    generator = np.random.RandomState(zlib.crc32(name.encode()))
    out = {}
    for key, shape in sorted(shapes(c)):
        noise = random_normal(generator, shape)
        if key.endswith("norm.weight"):
            out[key] = F(0.2) * noise + F(0 if c.gemma else 1)
        elif key.endswith("embed_tokens.weight") and not c.gemma:
            out[key] = F(0.5) * noise
        elif key.endswith(".bias"):
            out[key] = F(0.1) * noise
        else:
            out[key] = noise / F(shape[-1] ** 0.5)
    return out


# ---- the same in GGUF ----
NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
}
GEMMA_NAMES = {**NAMES, "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
               "post_feedforward_layernorm": "post_ffw_norm"}
OUTSIDE = {"lm_head.weight": "output.weight", "model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}


def interleaved(values, n_heads):
    """Rows of each head from halves (i, i + n/2) to neighbours (2i, 2i + 1), as the RoPE of architecture llama rotates them."""
    return values.reshape(n_heads, 2, -1, values.shape[-1]).swapaxes(1, 2).reshape(values.shape)


def to_gguf(c, state):
    """(name, values), in the order of the file."""
    for key, values in state.items():
        if c.gemma and key.endswith("norm.weight"):
            values = values + F(1)
        if key in OUTSIDE:
            if not (c.tied and key == "lm_head.weight"):
                yield OUTSIDE[key], values
            continue
        _, _, layer, rest = key.split(".", 3)
        b = f"blk.{layer}."
        if rest == "mlp.experts.gate_up_proj":
            yield b + "ffn_gate_exps.weight", values[:, :c.expert_ffn]
            yield b + "ffn_up_exps.weight", values[:, c.expert_ffn:]
        elif rest == "mlp.experts.down_proj":
            yield b + "ffn_down_exps.weight", values
        else:
            stem, kind = rest.rsplit(".", 1)
            if c.arch == "llama" and stem in ("self_attn.q_proj", "self_attn.k_proj"):
                values = interleaved(values, HEADS if stem == "self_attn.q_proj" else c.kv_heads)
            yield f"{b}{(GEMMA_NAMES if c.gemma else NAMES)[stem]}.{kind}", values
    if c.rope_scaling:
        yield "rope_freqs.weight", rope_factors(c)


def rope_factors(c):
    """What the angle of each pair is divided by: 1 for short waves, the factor for long ones, smooth in between."""
    factor, low, high, original = c.rope_scaling
    waves = 2 * np.pi * c.rope_base ** (np.arange(0, c.head_dim, 2) / c.head_dim)
    smooth = np.clip((original / waves - low) / (high - low), 0, 1)
    return (1 / ((1 - smooth) / factor + smooth)).astype(F)


def add_tokenizer(writer, pre):
    spm = pre == "default"
    with open(os.path.join(HERE, "..", "golden", "tiny_tokenizers.json"), encoding="utf-8") as file:
        tokenizer = json.load(file)["sentencepiece" if spm else "bytelevel"]
    pieces, special = tokenizer["pieces"], 6
    T = gguf.TokenType
    types = [T.CONTROL] * special + [T.BYTE if p.startswith("<0x") else T.NORMAL for p in pieces[special:]]
    n_unused = VOCAB - len(pieces)
    writer.add_tokenizer_model("llama" if spm else "gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(pieces + [f"[PAD{len(pieces) + i}]" for i in range(n_unused)])
    writer.add_token_types(types + [T.UNUSED] * n_unused)
    if spm:
        writer.add_token_scores([float(-i) for i in range(VOCAB)])      # ids are in the order of the merges
        writer.add_add_space_prefix(True)
    else:
        writer.add_token_merges(tokenizer["merges"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(spm)


def write(path, name, c):
    writer = gguf.GGUFWriter(path, c.arch)
    writer.add_name(f"golden {name}")
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_block_count(c.layers)
    writer.add_context_length(1024)
    writer.add_embedding_length(DIM)
    writer.add_feed_forward_length(c.ffn)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(c.kv_heads)
    writer.add_key_length(c.head_dim)
    writer.add_value_length(c.head_dim)
    writer.add_rope_freq_base(c.rope_base)
    writer.add_layer_norm_rms_eps(c.eps)
    writer.add_vocab_size(VOCAB)
    if c.arch == "llama":
        writer.add_rope_dimension_count(c.head_dim)
    if c.window:
        writer.add_sliding_window(c.window)
    if c.experts:
        writer.add_expert_count(c.experts)
        writer.add_expert_used_count(c.used)
    if c.arch == "qwen3moe":
        writer.add_expert_feed_forward_length(c.expert_ffn)
    add_tokenizer(writer, c.tokenizer)
    for key, values in to_gguf(c, weights(name, c)):
        writer.add_tensor(key, np.ascontiguousarray(values, dtype=F))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    os.makedirs(sys.argv[1], exist_ok=True)
    for name, checkpoint in CHECKPOINTS.items():
        write(os.path.join(sys.argv[1], f"golden-{name}.gguf"), name, checkpoint)


if __name__ == "__main__":
    main()
