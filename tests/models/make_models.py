#!/usr/bin/env python3
"""Writes the tiny models that tests run: random weights in the shapes of each family, the same bytes every time.

    make_models.py OUT_DIR

Needs the `gguf` and `numpy` packages.  Each model is there for one way in which a shape can be awkward; see MODELS.
A tensor depends on its name and shape alone, so models that differ in type hold the same weights up to rounding; but for types
that the gguf package cannot write, whose blocks are random bytes.
"""
import hashlib
import os
import sys
from dataclasses import dataclass, replace

import gguf
import numpy as np

T = gguf.GGMLQuantizationType
MIXED = (T.Q4_1, T.F16, T.Q8_0, T.F32, T.Q4_0, T.BF16)
FIVES = (T.Q5_0, T.Q5_1)
K_TYPES = (T.Q4_K, T.Q6_K, T.Q5_K, T.Q3_K, T.Q2_K, T.IQ4_XS)
FILE_TYPE = {T.F32: "ALL_F32", T.F16: "MOSTLY_F16", T.BF16: "MOSTLY_BF16", T.Q8_0: "MOSTLY_Q8_0", T.Q4_0: "MOSTLY_Q4_0",
             T.Q4_1: "MOSTLY_Q4_1"}


@dataclass(frozen=True)
class Shape:
    dim: int = 96
    heads: int = 6
    head_dim: int = 16
    kv_heads: int = 2
    ffn: int = 224
    layers: int = 7
    vocab: int = 301            # no multiple of 16, the rows of a packed panel
    ids: int = 0                # that the tokenizer has, if not as many as there are rows
    broken: int = -1            # a token whose embedding is no number
    tied: bool = False
    arch: str = "llama"
    biases: bool = False        # of Q, K and V
    head_norms: bool = False    # of each head of Q and K
    experts: int = 0
    used: int = 0
    expert_ffn: int = 0
    dense_layer: int = -1       # the one without experts
    legacy: bool = False        # a tensor for each expert
    window: int = 0             # of all but each sixth layer
    attention_cap: float = 0.0
    final_cap: float = 0.0


PLAIN = Shape(dim=64, heads=8, head_dim=8, ffn=172)     # an FFN that no block divides
BLOCKS = Shape()                # units of 2 heads, of which one needs both KV heads; 7 units of FFN for 8 groups
QWEN3MOE = Shape(arch="qwen3moe", heads=6, head_dim=16, head_norms=True, layers=4, experts=16, used=4, expert_ffn=64, dense_layer=1)
MIXTRAL = Shape(dim=64, heads=8, head_dim=8, ffn=64, experts=8, used=2, expert_ffn=64)
GEMMA3 = Shape(arch="gemma3", heads=4, kv_heads=1, layers=8, tied=True, head_norms=True, window=24)

# name: shape, type of the matrices (or several, taken in turn), number of parts
MODELS = {
    "tiny-f32": (PLAIN, T.F32, 1),
    "tiny-f16": (PLAIN, T.F16, 1),
    "tiny-bf16": (PLAIN, T.BF16, 1),
    "tiny-q8_0": (BLOCKS, T.Q8_0, 1),
    "tiny-q4_0": (BLOCKS, T.Q4_0, 1),
    "tiny-q4_1": (BLOCKS, T.Q4_1, 1),
    "tiny-mixed": (Shape(tied=True), MIXED, 1),
    "tiny-3heads": (Shape(heads=3, head_dim=32, kv_heads=1), T.Q8_0, 1),            # on 4 ranks one holds no head
    "tiny-group": (Shape(dim=64, heads=100, head_dim=8, kv_heads=1, layers=3), T.F32, 1),     # more queries of a token than a call takes
    "tiny-wide": (Shape(dim=64, heads=8, head_dim=8, ffn=2080, layers=3), T.Q8_0, 1),   # K >= 2048: 16 groups of 65 units
    "tiny-split": (BLOCKS, T.Q4_0, 3),
    "tiny-fives": (BLOCKS, FIVES, 1),
    "tiny-kquants": (Shape(dim=256, heads=8, head_dim=32, ffn=512, layers=3, tied=True), K_TYPES, 1),   # 2 units of FFN for 8 groups
    "tiny-qwen2": (Shape(arch="qwen2", tied=True, biases=True), MIXED, 1),
    "tiny-qwen3": (Shape(arch="qwen3", head_dim=32, head_norms=True, layers=5), T.Q8_0, 1),             # heads wider than the stream
    "tiny-qwen3moe": (replace(QWEN3MOE, dim=64, layers=5, expert_ffn=24, dense_layer=2), T.BF16, 1),    # experts that no block divides
    "tiny-qwen3moe-q8_0": (QWEN3MOE, T.Q8_0, 1),
    "tiny-qwen3moe-q4_0": (QWEN3MOE, T.Q4_0, 1),
    "tiny-kquants-moe": (Shape(dim=256, heads=8, head_dim=32, ffn=256, layers=2, tied=True, experts=4, used=2, expert_ffn=256), K_TYPES, 1),
    "tiny-mixtral": (MIXTRAL, T.Q8_0, 1),
    "tiny-legacy-mixtral": (replace(MIXTRAL, legacy=True), T.Q8_0, 1),      # the same weights
    "tiny-every": (replace(MIXTRAL, used=8), T.Q8_0, 1),        # every token goes to every expert: what travels is known
    "tiny-gemma3": (GEMMA3, MIXED, 1),
    "tiny-vocab": (replace(PLAIN, layers=3, vocab=4400, ids=4003, broken=7), T.F32, 1),     # more ids than a list of candidates takes
    "tiny-broken-moe": (replace(QWEN3MOE, layers=3, broken=7), T.F32, 1),
    "tiny-gemma3-caps": (replace(GEMMA3, attention_cap=5.0, final_cap=4.0), T.Q8_0, 1),     # caps that bend most logits
}


def random_bytes(name, shape, n):
    key = hashlib.sha256(f"{name} {shape}".encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(key[:16], "little"))).bytes(n)


def random_normal(name, shape):
    """Nearly normal with variance 1: sums of four 16-bit numbers, as raw bits are the same in every numpy."""
    raw = random_bytes(name, shape, 8 * int(np.prod(shape)))
    sums = np.frombuffer(raw, dtype="<u2").reshape(*shape, 4).sum(axis=-1, dtype=np.int64)
    return (sums - 2 * 65535) / (65536 / 3 ** 0.5)


# Where the f16 scale of a block is, that of its minimum, and how many scales the minimum is that puts the mean of random bits at 0.
SCALES = {T.Q2_K: (80, 82, 1.5), T.Q3_K: (108, None, 0), T.Q4_K: (0, 2, 7.5), T.Q5_K: (0, 2, 15.5), T.Q6_K: (208, None, 0),
          T.IQ4_XS: (0, None, 0)}


def random_blocks(name, shape, kind, deviation):
    """Blocks of random bits under scales that differ by up to 3 and give the wanted standard deviation."""
    at, at_minimum, ratio = SCALES[kind]
    n_elements, n_bytes = gguf.GGML_QUANT_SIZES[kind]
    row = shape[-1] // n_elements * n_bytes
    raw = np.frombuffer(random_bytes(name, shape, int(np.prod(shape[:-1])) * row), np.uint8).reshape(-1, n_bytes).copy()
    uneven = 0.5 + raw[:, at] / 255

    def put_scales(unit):
        for offset, scales in ((at, uneven * unit), (at_minimum, uneven * unit * ratio)):
            if offset is not None:
                raw[:, offset:offset + 2] = scales.astype("<f2").view(np.uint8).reshape(-1, 2)

    put_scales(2.0 ** -8)
    put_scales(2.0 ** -8 * deviation / gguf.quants.dequantize(raw, kind).std(dtype=np.float64))
    return raw.reshape(*shape[:-1], row)


def tensors(s):
    """(name, numpy shape, standard deviation or None for a norm), in file order."""
    def matrix(name, rows, cols, gain=1.0):
        return name, (rows, cols), gain * cols ** -0.5

    def experts(name, rows, cols, gain=1.0):
        return name, (s.experts, rows, cols), gain * cols ** -0.5

    q, kv, back = s.heads * s.head_dim, s.kv_heads * s.head_dim, (2 * s.layers) ** -0.5
    gemma = s.arch == "gemma3"
    yield "token_embd.weight", (s.vocab, s.dim), 2 * s.dim ** -0.5 if s.tied else 1.0
    for i in range(s.layers):
        b = f"blk.{i}."
        yield b + "attn_norm.weight", (s.dim,), None
        yield matrix(b + "attn_q.weight", q, s.dim, 1.5)        # scores wide enough that attention chooses
        yield matrix(b + "attn_k.weight", kv, s.dim, 1.5)
        yield matrix(b + "attn_v.weight", kv, s.dim)
        yield matrix(b + "attn_output.weight", s.dim, q, 2 * back)
        if s.biases:
            yield from ((f"{b}attn_{x}.bias", (rows,), 0.5) for x, rows in (("q", q), ("k", kv), ("v", kv)))
        if s.head_norms:
            yield from ((f"{b}attn_{x}_norm.weight", (s.head_dim,), None) for x in "qk")
        if gemma:
            yield b + "post_attention_norm.weight", (s.dim,), None
        yield b + "ffn_norm.weight", (s.dim,), None
        if s.experts and i != s.dense_layer:
            yield matrix(b + "ffn_gate_inp.weight", s.experts, s.dim, 2.0)      # experts of unlike weight
            yield experts(b + "ffn_gate_exps.weight", s.expert_ffn, s.dim)
            yield experts(b + "ffn_up_exps.weight", s.expert_ffn, s.dim)
            yield experts(b + "ffn_down_exps.weight", s.dim, s.expert_ffn, 2 * back)
        else:
            yield matrix(b + "ffn_gate.weight", s.ffn, s.dim)
            yield matrix(b + "ffn_up.weight", s.ffn, s.dim)
            yield matrix(b + "ffn_down.weight", s.dim, s.ffn, 2 * back)
        if gemma:
            yield b + "post_ffw_norm.weight", (s.dim,), None
    yield "output_norm.weight", (s.dim,), None
    if not s.tied:
        yield matrix("output.weight", s.vocab, s.dim, 2.0)      # logits with a deviation of 2


def byte_characters():
    """GPT-2's printable stand-in for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return {**{b: chr(b) for b in plain}, **{b: chr(256 + i) for i, b in enumerate(others)}}


MERGES = ("Ġ t|h e|i n|Ġ a|r e|e r|o n|Ġt he|Ġ s|a t|e n|o u|i s|o r|Ġ w|n d|i t|Ġ c|e s|l l|Ġ b|Ġ f|in g|a n|Ġ p|e d|a r|a l|"
          "Ġ o|Ġt o|Ġ m|Ġo f|Ġ in|Ġa nd|Ġ d|Ġ h|i c|a s|l e|e l|1 0|Ā Ā").split("|")
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHATML = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
          "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")


def add_tokenizer(writer, n_vocab):
    pieces = [*SPECIALS, *byte_characters().values(), *(m.replace(" ", "") for m in MERGES)]
    pieces += [f"<{i}>" for i in range(len(pieces), n_vocab)]
    assert len(set(pieces)) == len(pieces) == n_vocab, (len(pieces), n_vocab)
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(pieces)
    writer.add_token_types([control] * len(SPECIALS) + [normal] * (n_vocab - len(SPECIALS)))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(CHATML)


def add_shape(writer, s):
    writer.add_block_count(s.layers)
    writer.add_context_length(1024)
    writer.add_embedding_length(s.dim)
    writer.add_feed_forward_length(s.ffn)
    writer.add_head_count(s.heads)
    writer.add_head_count_kv(s.kv_heads)
    writer.add_key_length(s.head_dim)
    writer.add_value_length(s.head_dim)
    writer.add_rope_dimension_count(s.head_dim)
    writer.add_rope_freq_base(1e6 if s.window else 10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(s.vocab)
    if s.experts:
        writer.add_expert_count(s.experts)
        writer.add_expert_used_count(s.used)
    if s.arch == "qwen3moe":
        writer.add_expert_feed_forward_length(s.expert_ffn)
    if s.window:
        writer.add_sliding_window(s.window)
    if s.attention_cap:
        writer.add_attn_logit_softcapping(s.attention_cap)
        writer.add_final_logit_softcapping(s.final_cap)


def encoded(name, shape, kind, deviation):
    if kind in SCALES:
        return random_blocks(name, shape, kind, deviation)
    return gguf.quants.quantize((random_normal(name, shape) * deviation).astype(np.float32), kind)


def add_tensors(writer, s, kind):
    n_matrices = 0
    for name, shape, deviation in tensors(s):
        if deviation is None:
            writer.add_tensor(name, (1 + 0.1 * random_normal(name, shape)).astype(np.float32))
            continue
        if len(shape) == 1 or "ffn_gate_inp" in name:       # biases and routers stay F32, as in every file
            writer.add_tensor(name, (random_normal(name, shape) * deviation).astype(np.float32))
            continue
        own = kind
        if isinstance(kind, tuple):
            own = (T.Q6_K if kind is K_TYPES else T.Q8_0) if name.startswith("token_embd") else kind[n_matrices % len(kind)]
        n_matrices += 1
        values = encoded(name, shape, own, deviation)
        if s.broken >= 0 and name.startswith("token_embd"):
            values[s.broken] = np.nan
        if s.legacy and len(shape) == 3:
            for e in range(s.experts):
                writer.add_tensor(name.replace("_exps.", f".{e}."), values[e].copy(), raw_dtype=own)
        else:
            writer.add_tensor(name, values, raw_dtype=own)


def write(path, name, shape, kind, n_parts):
    n_tensors = sum(1 for _ in tensors(shape))
    writer = gguf.GGUFWriter(path, shape.arch, split_max_tensors=-(-n_tensors // n_parts) if n_parts > 1 else 0)
    writer.add_name(name)
    if not isinstance(kind, tuple):
        writer.add_file_type(gguf.LlamaFileType[FILE_TYPE[kind]])
    add_shape(writer, shape)
    add_tokenizer(writer, shape.ids or shape.vocab)
    add_tensors(writer, shape, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    os.makedirs(sys.argv[1], exist_ok=True)
    for name, (shape, kind, n_parts) in MODELS.items():
        write(os.path.join(sys.argv[1], name + ".gguf"), name, shape, kind, n_parts)


if __name__ == "__main__":
    main()
