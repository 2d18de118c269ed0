"""A GGUF file as keys and tensors that a test may change before it writes the file again; the standard library is enough.

    f = read(path)
    f.set("llama.expert_count", U32, 8)             del f.keys["llama.expert_count"]
    f.set("x.pattern", (BOOL, [True, False]))       an array: (type of the elements, list)
    f.tensors["output.weight"] = Tensor(dims, type, bytes)
    f.write(path)

Dims are in the file's order, the contiguous one first.  What a test puts in is written as it is, however wrong.
"""
import struct
from dataclasses import dataclass

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
FORMAT = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q", I64: "q", F64: "d"}
TYPE_F32, TYPE_F16, TYPE_Q8_0 = 0, 1, 8
BLOCK = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 10: (256, 84), 11: (256, 110),
         12: (256, 144), 13: (256, 176), 14: (256, 210), 20: (32, 18), 23: (256, 136), 30: (1, 2)}       # elements, bytes


@dataclass
class Tensor:
    dims: tuple
    type: int
    bytes: bytes


def string(text):
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(data)) + data


def encoded(kind, value):
    if kind == STRING:
        return string(value)
    if kind == ARRAY:
        element, items = value
        return struct.pack("<IQ", element, len(items)) + b"".join(encoded(element, x) for x in items)
    return struct.pack("<" + FORMAT[kind], value)


def skip(data, at, kind):
    """Where the value of this kind ends."""
    if kind == STRING:
        return at + 8 + struct.unpack_from("<Q", data, at)[0]
    if kind == ARRAY:
        element, n = struct.unpack_from("<IQ", data, at)
        at += 12
        for _ in range(n if element == STRING else 0):
            at = skip(data, at, STRING)
        return at if element == STRING else at + n * struct.calcsize(FORMAT[element])
    return at + struct.calcsize(FORMAT[kind])


class File:
    def __init__(self):
        self.keys = {}          # name -> its type and value, encoded
        self.tensors = {}       # name -> Tensor

    @property
    def arch(self):
        kind, data = self.keys["general.architecture"]
        return data[8:].decode()

    def set(self, name, kind, value=None):
        """`kind` is a type, or (type of the elements, list) for an array.  A name with a dot before it belongs to the architecture."""
        name = self.arch + name if name.startswith(".") else name
        self.keys[name] = (ARRAY, encoded(ARRAY, kind)) if isinstance(kind, tuple) else (kind, encoded(kind, value))
        return self

    def without(self, *names):
        for name in names:
            self.keys.pop(self.arch + name if name.startswith(".") else name, None)
            self.tensors.pop(name, None)
        return self

    def put(self, name, dims, values):
        """A tensor of f32."""
        self.tensors[name] = Tensor(tuple(dims), TYPE_F32, struct.pack(f"<{len(values)}f", *values))
        return self

    def floats(self, name):
        t = self.tensors[name]
        assert t.type == TYPE_F32
        return list(struct.unpack(f"<{len(t.bytes) // 4}f", t.bytes))

    def bytes(self):
        head = [b"GGUF", struct.pack("<IQQ", 3, len(self.tensors), len(self.keys))]
        head += [string(name) + struct.pack("<I", kind) + data for name, (kind, data) in self.keys.items()]
        offset, data = 0, []
        for name, t in self.tensors.items():
            head.append(string(name) + struct.pack(f"<I{len(t.dims)}QIQ", len(t.dims), *t.dims, t.type, offset))
            data.append(t.bytes + b"\0" * (-len(t.bytes) % 32))
            offset += len(data[-1])
        head = b"".join(head)
        return head + b"\0" * (-len(head) % 32) + b"".join(data)

    def write(self, path):
        with open(path, "wb") as f:
            f.write(self.bytes())
        return path


def parse(data):
    """The keys of a file's bytes as File has them, and for each tensor (name, dims, type, where its bytes are)."""
    keys, at = {}, 24
    n_tensors, n_keys = struct.unpack_from("<QQ", data, 8)
    for _ in range(n_keys):
        end = skip(data, at, STRING)
        name, kind = data[at + 8:end].decode(), struct.unpack_from("<I", data, end)[0]
        at = skip(data, end + 4, kind)
        keys[name] = (kind, data[end + 4:at])
    table = []
    for _ in range(n_tensors):
        end = skip(data, at, STRING)
        n_dims = struct.unpack_from("<I", data, end)[0]
        dims = struct.unpack_from(f"<{n_dims}Q", data, end + 4)
        kind, offset = struct.unpack_from("<IQ", data, end + 4 + 8 * n_dims)
        table.append((data[at + 8:end].decode(), dims, kind, offset))
        at = end + 16 + 8 * n_dims
    first = (at + 31) // 32 * 32
    tensors = []
    for name, dims, kind, offset in table:
        elements, n_bytes = BLOCK[kind]
        for d in dims:
            n_bytes *= d
        tensors.append((name, dims, kind, slice(first + offset, first + offset + n_bytes // elements)))
    return keys, tensors


def read(path):
    with open(path, "rb") as f:
        data = f.read()
    file = File()
    file.keys, tensors = parse(data)
    for name, dims, kind, place in tensors:
        file.tensors[name] = Tensor(dims, kind, data[place])
    return file
