"""Just enough of GGUF to damage a file on purpose, and to write one that claims to be large."""
import struct

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY = 8, 9


def skip_value(data, at, kind):
    if kind == STRING:
        return at + 8 + struct.unpack_from("<Q", data, at)[0]
    if kind == ARRAY:
        element, n = struct.unpack_from("<IQ", data, at)
        at += 12
        for _ in range(n):
            at = skip_value(data, at, element)
        return at
    return at + SIZES[kind]


def tensor_offset(data, wanted):
    """Where the tensor's bytes begin in the file."""
    n_tensors, n_keys = struct.unpack_from("<QQ", data, 8)
    at, found = 24, None
    for _ in range(n_keys):
        at = skip_value(data, at, STRING)
        at = skip_value(data, at + 4, struct.unpack_from("<I", data, at)[0])
    for _ in range(n_tensors):
        end = skip_value(data, at, STRING)
        name = data[at + 8:end].decode()
        n_dims = struct.unpack_from("<I", data, end)[0]
        at = end + 4 + 8 * n_dims
        offset = struct.unpack_from("<Q", data, at + 4)[0]
        at += 12
        if name == wanted:
            found = offset
    return (at + 31) // 32 * 32 + found


def string(text):
    return struct.pack("<Q", len(text.encode())) + text.encode()


def key(name, kind, value):
    return string(name) + struct.pack("<I", kind) + value


def with_u32(data, name, value):
    """The bytes of the file with one more key."""
    n_tensors, n_keys = struct.unpack_from("<QQ", data, 8)
    at = 24
    for _ in range(n_keys):
        at = skip_value(data, at, STRING)
        at = skip_value(data, at + 4, struct.unpack_from("<I", data, at)[0])
    end_of_keys = at
    for _ in range(n_tensors):
        at = skip_value(data, at, STRING)
        at += 4 + 8 * struct.unpack_from("<I", data, at)[0] + 12
    head = data[:16] + struct.pack("<Q", n_keys + 1) + data[24:end_of_keys] + key(name, 4, struct.pack("<I", value)) + data[end_of_keys:at]
    return head + b"\0" * (-len(head) % 32) + data[(at + 31) // 32 * 32:]


def write_giant(path, dim=8192, layers=80, heads=64, ffn=28672, vocab=256):
    """A model of 70 billion weights of f32: a file of 256 GB that takes no room, as nothing is written into it."""
    plain = [chr(b) if 33 <= b < 127 or 161 <= b < 173 or 174 <= b else None for b in range(256)]
    others = iter(range(256, 512))
    pieces = [p or chr(next(others)) for p in plain]
    strings = lambda list_: struct.pack("<IQ", STRING, len(list_)) + b"".join(map(string, list_))
    keys = [key("general.architecture", STRING, string("llama")), key("tokenizer.ggml.model", STRING, string("gpt2")),
            key("tokenizer.ggml.pre", STRING, string("smollm")), key("tokenizer.ggml.tokens", ARRAY, strings(pieces)),
            key("tokenizer.ggml.merges", ARRAY, strings([])), key("llama.attention.layer_norm_rms_epsilon", 6, struct.pack("<f", 1e-5))]
    for name, value in {"block_count": layers, "context_length": 1024, "embedding_length": dim, "feed_forward_length": ffn,
                        "attention.head_count": heads, "attention.head_count_kv": heads}.items():
        keys.append(key("llama." + name, 4, struct.pack("<I", value)))
    tensors = [("token_embd.weight", (dim, vocab)), ("output_norm.weight", (dim,)), ("output.weight", (dim, vocab))]
    for i in range(layers):
        tensors += [(f"blk.{i}.{name}.weight", shape) for name, shape in
                    {"attn_norm": (dim,), "attn_q": (dim, dim), "attn_k": (dim, dim), "attn_v": (dim, dim), "attn_output": (dim, dim),
                     "ffn_norm": (dim,), "ffn_gate": (dim, ffn), "ffn_up": (dim, ffn), "ffn_down": (ffn, dim)}.items()]
    head, offset = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(keys)), *keys], 0
    for name, shape in tensors:
        head.append(string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, offset))
        n = 4
        for d in shape:
            n *= d
        offset += n
    data = b"".join(head)
    with open(path, "wb") as f:
        f.write(data)
        f.truncate((len(data) + 31) // 32 * 32 + offset)
