"""Frames of wire.proto in Python, and a front that speaks them: just enough of Protocol Buffers for tests."""
import socket
import struct
import time

PROTOCOL = 1
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

# name: (field, kind) of each message; a kind is a wire type's reader, a message, or a list of one of these.
RANK_TIME = {"rank": (1, "u"), "compute_s": (2, "d"), "wait_s": (3, "d"), "wire_s": (4, "d")}
PROCESS = {"host": (1, "s"), "pid": (2, "u"), "start_time": (3, "u")}
HELLO = {"protocol": (1, "u"), "numerics": (2, "s"), "model": (3, "s"), "context": (4, "u"), "n_vocab": (5, "u"),
         "block_tokens": (7, "u"), "max_sequences": (8, "u"), "processes": (9, [PROCESS])}
BIAS = {"id": (1, "u"), "add": (2, "f")}
SAMPLING = {"temperature": (1, "f"), "top_p": (2, "f"), "min_p": (3, "f"), "top_k": (4, "u"), "repetition_penalty": (5, "f"),
            "frequency_penalty": (6, "f"), "presence_penalty": (7, "f"), "seed": (8, "u"), "choice": (9, "u"), "bias": (10, [BIAS])}
SUBMIT = {"request": (1, "u"), "prompt": (2, ["u"]), "so_far": (3, ["u"]), "max_tokens": (4, "u"), "min_tokens": (5, "u"), "stop_ids": (6, ["u"]),
          "sampling": (7, SAMPLING), "logprobs": (8, "u"), "top_logprobs": (9, "u"), "client": (10, "u"), "priority": (11, "z"),
          "cache_salt": (12, "b"), "queue_ms": (13, "u")}
CANCEL = {"request": (1, "u")}
TOP = {"id": (1, "u"), "logprob": (2, "f")}
TOKEN = {"request": (1, "u"), "index": (2, "u"), "id": (3, "u"), "logprob": (4, "f"), "top": (5, [TOP]), "queue_us": (6, "u"),
         "prefill_us": (7, "u")}
TOKENS = {"token": (1, [TOKEN])}
FINISH = {"request": (1, "u"), "reason": (2, "u"), "stop_id": (3, "u"), "cached_tokens": (4, "u"), "preemptions": (5, "u"), "error": (6, "s"),
          "is_full": (7, "u")}
PROGRESS = {"steps": (1, "u"), "predicted_us": (2, "u"), "running": (3, "u"), "waiting": (4, "u"), "free_blocks": (5, "u"), "preemptions": (6, "u"),
            "prefix_queries": (7, "u"), "prefix_hits": (8, "u"), "prompt_tokens": (9, "u"), "generated_tokens": (10, "u"), "ranks": (11, [RANK_TIME]), "step_tokens": (12, "u"), "n_blocks": (14, "u")}
FRAME = {"epoch": (1, "u"), "hello": (2, HELLO), "submit": (3, SUBMIT), "cancel": (4, CANCEL), "tokens": (5, TOKENS), "finish": (6, FINISH),
         "progress": (7, PROGRESS)}
STOP, LENGTH, CANCELLED, TIMEOUT, REFUSED, FAILED = range(6)


# ---- bytes ----
def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def encode_one(number, kind, value):
    if isinstance(kind, dict):
        value = encode(kind, value)
    elif kind == "u":
        return varint(number << 3 | VARINT) + varint(int(value))
    elif kind == "z":
        return varint(number << 3 | VARINT) + varint(value << 1 ^ value >> 63)
    elif kind == "f":
        return varint(number << 3 | FIXED32) + struct.pack("<f", value)
    elif kind == "d":
        return varint(number << 3 | FIXED64) + struct.pack("<d", value)
    elif kind == "s":
        value = value.encode()
    return varint(number << 3 | BYTES) + varint(len(value)) + value


def encode(message, values):
    out = b""
    for name, value in values.items():
        number, kind = message[name]
        if not isinstance(kind, list):
            out += encode_one(number, kind, value)
        elif kind == ["u"]:
            out += encode_one(number, "b", b"".join(map(varint, value)))
        else:
            out += b"".join(encode_one(number, kind[0], x) for x in value)
    return out


def take_varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def fields(data):
    """(number, value) of each field, whatever it means."""
    at = 0
    while at < len(data):
        tag, at = take_varint(data, at)
        kind = tag & 7
        if kind == VARINT:
            value, at = take_varint(data, at)
        else:
            n, at = take_varint(data, at) if kind == BYTES else ({FIXED64: 8, FIXED32: 4}[kind], at)
            value, at = data[at:at + n], at + n
        yield tag >> 3, value


def decode_one(kind, value):
    if isinstance(kind, dict):
        return decode(kind, value)
    if kind in "fd":
        return struct.unpack("<" + kind, value)[0]
    return value.decode() if kind == "s" else value


def decode(message, data):
    names = {number: (name, kind) for name, (number, kind) in message.items()}
    out = {name: [] if isinstance(kind, list) else {"s": "", "b": b"", "f": 0.0, "d": 0.0, "u": 0, "z": 0}.get(kind)
           for name, (_, kind) in message.items() if isinstance(kind, (str, list))}
    for number, value in fields(data):
        name, kind = names.get(number, (None, None))
        if isinstance(kind, list):
            out[name].append(decode_one(kind[0], value))
        elif name:
            out[name] = decode_one(kind, value)
    return out


def frame(epoch, **body):
    """The bytes of a frame with its length; body: one of hello=, submit=, cancel= ..."""
    data = encode(FRAME, {"epoch": epoch, **body})
    return struct.pack("<I", len(data)) + data


# ---- a front ----
class Gone(Exception):
    """The replica has closed the connection."""


class Front:
    """A connection to a replica.  It keeps what comes: tokens and the Finish of each request, the last Progress."""

    def __init__(self, address, epoch=0, hello=True, timeout=30):
        family = socket.AF_UNIX if address.startswith("unix:") else socket.AF_INET
        self.socket = socket.socket(family)
        self.socket.settimeout(timeout)
        if family == socket.AF_UNIX:
            self.socket.connect(address[5:])
        else:
            host, port = address.rsplit(":", 1)
            self.socket.connect((host, int(port)))
        self.epoch, self.timeout, self.bytes = epoch, timeout, b""
        self.tokens, self.finished, self.progress, self.n_progress = {}, {}, None, 0
        self.hello = self.read()["hello"]
        if hello:
            self.send(hello={"protocol": PROTOCOL})

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def close(self):
        self.socket.close()

    def send_bytes(self, data):
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as e:
            raise Gone() from e

    def send(self, **body):
        self.send_bytes(frame(self.epoch, **body))

    def submit(self, request, prompt, max_tokens, sampling=None, **more):
        self.send(submit={"request": request, "prompt": prompt, "max_tokens": max_tokens, "sampling": {"top_p": 1.0, **(sampling or {})}, **more})

    def cancel(self, request):
        self.send(cancel={"request": request})

    def take(self, n):
        while len(self.bytes) < n:
            try:
                piece = self.socket.recv(65536)
            except ConnectionResetError:
                piece = b""
            if not piece:
                raise Gone()
            self.bytes += piece
        out, self.bytes = self.bytes[:n], self.bytes[n:]
        return out

    def read(self):
        """The next frame."""
        got = decode(FRAME, self.take(struct.unpack("<I", self.take(4))[0]))
        for token in got.get("tokens", {}).get("token", []):
            self.tokens.setdefault(token["request"], []).append(token)
        if "finish" in got:
            self.finished[got["finish"]["request"]] = got["finish"]
        if "progress" in got:
            self.progress = got["progress"]
            self.n_progress += 1
        return got

    def until(self, condition):
        """Reads until it holds; an exception after the time-out."""
        end = time.monotonic() + self.timeout
        while not condition():
            if time.monotonic() > end:
                raise TimeoutError()
            self.read()

    def answer(self, request):
        """Waits for its end: the ids, and the Finish."""
        self.until(lambda: request in self.finished)
        return [token["id"] for token in self.tokens.get(request, [])], self.finished[request]

    def until_gone(self):
        """Reads until the replica has closed the connection."""
        try:
            self.until(lambda: False)
        except Gone:
            return True
        except TimeoutError:
            return False
