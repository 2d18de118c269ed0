#!/usr/bin/env python3
"""Writes the tiny models that tests run: random weights of the llama architecture, the same bytes every time.

    make_models.py OUT_DIR

Needs the `gguf` and `numpy` packages.  Each model is there for one way in which a shape can be awkward; see MODELS.
A tensor depends on its name and shape alone, so models that differ in type hold the same weights up to rounding.
"""
import hashlib
import os
import sys
from dataclasses import dataclass

import gguf
import numpy as np

T = gguf.GGMLQuantizationType
MIXED = (T.Q4_1, T.F16, T.Q8_0, T.F32, T.Q4_0, T.BF16)
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
    tied: bool = False


PLAIN = Shape(dim=64, heads=8, head_dim=8, ffn=172)     # an FFN that no block divides
BLOCKS = Shape()                # units of 2 heads, of which one needs both KV heads; 7 units of FFN for 8 groups

# name: shape, type of the matrices (None: each another), number of parts
MODELS = {
    "tiny-f32": (PLAIN, T.F32, 1),
    "tiny-f16": (PLAIN, T.F16, 1),
    "tiny-bf16": (PLAIN, T.BF16, 1),
    "tiny-q8_0": (BLOCKS, T.Q8_0, 1),
    "tiny-q4_0": (BLOCKS, T.Q4_0, 1),
    "tiny-q4_1": (BLOCKS, T.Q4_1, 1),
    "tiny-mixed": (Shape(tied=True), None, 1),
    "tiny-3heads": (Shape(heads=3, head_dim=32, kv_heads=1), T.Q8_0, 1),            # on 4 ranks one holds no head
    "tiny-group": (Shape(dim=64, heads=100, head_dim=8, kv_heads=1, layers=3), T.F32, 1),     # more queries of a token than a call takes
    "tiny-wide": (Shape(dim=64, heads=8, head_dim=8, ffn=2080, layers=3), T.Q8_0, 1),   # K >= 2048: 16 groups of 65 units
    "tiny-split": (BLOCKS, T.Q4_0, 3),
}


def random_normal(name, shape):
    """Nearly normal with variance 1: sums of four 16-bit numbers, as raw bits are the same in every numpy."""
    key = hashlib.sha256(f"{name} {shape}".encode()).digest()
    raw = np.random.Generator(np.random.PCG64(int.from_bytes(key[:16], "little"))).bytes(8 * int(np.prod(shape)))
    sums = np.frombuffer(raw, dtype="<u2").reshape(*shape, 4).sum(axis=-1, dtype=np.int64)
    return (sums - 2 * 65535) / (65536 / 3 ** 0.5)


def tensors(s):
    """(name, numpy shape, standard deviation or None for a norm), in file order."""
    def matrix(name, rows, cols, gain=1.0):
        return name, (rows, cols), gain * cols ** -0.5

    q, kv, back = s.heads * s.head_dim, s.kv_heads * s.head_dim, (2 * s.layers) ** -0.5
    yield "token_embd.weight", (s.vocab, s.dim), 2 * s.dim ** -0.5 if s.tied else 1.0
    for i in range(s.layers):
        b = f"blk.{i}."
        yield b + "attn_norm.weight", (s.dim,), None
        yield matrix(b + "attn_q.weight", q, s.dim, 1.5)        # scores wide enough that attention chooses
        yield matrix(b + "attn_k.weight", kv, s.dim, 1.5)
        yield matrix(b + "attn_v.weight", kv, s.dim)
        yield matrix(b + "attn_output.weight", s.dim, q, 2 * back)
        yield b + "ffn_norm.weight", (s.dim,), None
        yield matrix(b + "ffn_gate.weight", s.ffn, s.dim)
        yield matrix(b + "ffn_up.weight", s.ffn, s.dim)
        yield matrix(b + "ffn_down.weight", s.dim, s.ffn, 2 * back)
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
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(s.vocab)


def add_tensors(writer, s, kind):
    n_matrices = 0
    for name, shape, deviation in tensors(s):
        values = random_normal(name, shape)
        if deviation is None:
            writer.add_tensor(name, (1 + 0.1 * values).astype(np.float32))
            continue
        own = kind if kind is not None else T.Q8_0 if name.startswith("token_embd") else MIXED[n_matrices % len(MIXED)]
        n_matrices += 1
        values = (values * deviation).astype(np.float32)
        writer.add_tensor(name, gguf.quants.quantize(values, own), raw_dtype=own)


def write(path, name, shape, kind, n_parts):
    n_tensors = sum(1 for _ in tensors(shape))
    writer = gguf.GGUFWriter(path, "llama", split_max_tensors=-(-n_tensors // n_parts) if n_parts > 1 else 0)
    writer.add_name(name)
    if kind is not None:
        writer.add_file_type(gguf.LlamaFileType[FILE_TYPE[kind]])
    add_shape(writer, shape)
    add_tokenizer(writer, shape.vocab)
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
