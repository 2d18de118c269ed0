#!/usr/bin/env python3
"""The formulas of docs/communication.md against what comm counts, to the byte: `bytes_sent` of every rank of `stoa bench --json`."""
import math
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import stoa_test as t

SPLIT_TOKENS = 32               # from here on sp splits rows
LARGE = 65536                   # bytes of all parts together: from here on more than two ranks sum a slice each


class Label:
    """A label's canonical tree: elements of `width` columns in units, units in groups."""
    def __init__(self, elements, width, block):
        self.elements, self.unit = elements, block // math.gcd(width, block)
        self.groups = 16 if elements * width >= 2048 else 8

    def n_elements(self, group):
        units = -(-self.elements // self.unit)
        first, last = group * units // self.groups, (group + 1) * units // self.groups
        return min(last * self.unit, self.elements) - min(first * self.unit, self.elements)

    def parts(self, first, last, lo=0, hi=None):
        """Maximal subtrees of groups [first, last) that hold something."""
        hi = self.groups if hi is None else hi
        if hi <= first or lo >= last:
            return 0
        if hi - lo == 1:
            return int(self.n_elements(lo) > 0)
        mid = (lo + hi) // 2
        n = self.parts(first, last, lo, mid) + self.parts(first, last, mid, hi)
        return min(n, 1) if first <= lo and hi <= last else n

    def parts_of(self, n, shares=None):
        shares = shares or [1] * n
        ends = [self.groups * sum(shares[:r]) // sum(shares) for r in range(n + 1)]
        return [self.parts(a, b) for a, b in zip(ends, ends[1:])]


class Shape:
    """What a model's formulas need, as `stoa inspect` and the file's making (tests/models/make_models.py) say it."""
    def __init__(self, name, layers, embd, heads, head_dim, ffn, block, experts=0, used=0, expert_ffn=0):
        self.name, self.layers, self.embd, self.block = name, layers, embd, block
        self.heads, self.ffn = Label(heads, head_dim, max(block, 32)), Label(ffn, 1, max(block, 32))
        self.experts, self.used = Label(experts, expert_ffn, 1) if experts else None, used
        # A matmul over weights in blocks takes int8: 32 quants, two scales and two corrections.
        self.row_bytes = embd // 32 * 48 if block > 1 else 4 * embd


WIDE = Shape("tiny-wide", 3, 64, 8, 8, 2080, 32)
PLAIN = Shape("tiny-f32", 7, 64, 8, 8, 172, 1)
EVERY = Shape("tiny-every", 7, 64, 8, 8, 64, 32, experts=8, used=8, expert_ffn=64)


def share(n_items, n, r):
    return n_items * (r + 1) // n - n_items * r // n


# ---- one step of n_tokens, as rank r of n along its axis sends it ----
def all_reduce(floats, parts, r):
    n, mine = len(parts), parts[r]
    if n <= 2 or 4 * floats * sum(parts) <= LARGE:
        return 4 * floats * mine * (n - 1)
    length = -(-(-(-floats // n)) // 16) * 16
    own = min(floats, (r + 1) * length) - min(floats, r * length)
    return 4 * ((floats - own) * mine + own * (n - 1))


def feed_forward(shape):
    return shape.experts or shape.ffn


def tensor_parallel(shape, tokens, tp, r, shares=None, sp=0):
    """Two reductions a layer; with split rows, what they leave is gathered before each matmul and before the last norm."""
    attention, ffn = shape.heads.parts_of(tp, shares), feed_forward(shape).parts_of(tp, shares)
    if sp == 1 or (sp == 0 and tokens < SPLIT_TOKENS) or tp == 1:
        return shape.layers * (all_reduce(tokens * shape.embd, attention, r) + all_reduce(tokens * shape.embd, ffn, r))
    own = share(tokens, tp, r)
    scattered = 4 * shape.embd * (tokens - own) * (attention[r] + ffn[r])
    # A router's matrix is f32, so a mixture's feed-forward gathers rows of both kinds.
    per_layer = [shape.row_bytes, shape.row_bytes + (4 * shape.embd if shape.experts and shape.block > 1 else 0)]
    gathered = shape.layers * sum(per_layer) - per_layer[0]        # the first layer's rows were never split
    return shape.layers * scattered + (tp - 1) * own * (gathered + 4 * shape.embd)


def pipeline(shape, tokens, pp, stage, tp=1, r=0, sp=0):
    split = tp > 1 and sp != 1 and (sp > 1 or tokens >= SPLIT_TOKENS)
    return 4 * shape.embd * (share(tokens, tp, r) if split else tokens) if stage + 1 < pp else 0


def split_stage(shape, tokens, pp, stage, tp, r):
    """One layer a stage, rows split all the way: only the first layer's input is whole already, and the last norm's is gathered."""
    own, parts = share(tokens, tp, r), shape.heads.parts_of(tp)[r] + shape.ffn.parts_of(tp)[r]
    gathered = shape.row_bytes * (1 if stage == 0 else 2) + (4 * shape.embd if stage + 1 == pp else 0)
    return 4 * shape.embd * (tokens - own) * parts + (tp - 1) * own * gathered


def split_experts(shape, tokens, group):
    """dp=2,ep=2 where every token goes to every expert.  tokens: of each group in the step."""
    parts = shape.experts.parts_of(2)
    there = tokens[group] * (shape.row_bytes + 8 * shape.used)
    back = tokens[1 - group] * 4 * shape.embd * parts[group]
    return shape.layers * (there + back)


def gathered_weights(shape, dp, r, steps):
    """Panels of 16 rows are dealt evenly; each rank sends its own to all others, every step."""
    n_bytes = 0
    for tensor in t.stoa_json("inspect", t.tiny(shape.name))["tensors"]:
        if len(tensor["shape"]) == 2 and tensor["name"] != "token_embd.weight":
            columns, rows = tensor["shape"]
            per_block, block = {"F32": (4, 1), "Q8_0": (34, 32)}[tensor["type"]]
            panel = -(-16 * columns // block * per_block // 64) * 64
            n_bytes += panel * share(-(-rows // 16), dp, r)
    return steps * n_bytes * (dp - 1)


# ---- what is counted ----
def bytes_sent(shape, layout, *flags):
    ranks = t.stoa_json("bench", t.tiny(shape.name), "--layout", *layout.split(), "--repeat", 1, "--threads", 1, *flags)["ranks"]
    return [rank["bytes_sent"] for rank in ranks]


def prefill(shape, layout, tokens, *flags):
    return bytes_sent(shape, layout, "--prompt", tokens, "--generate", 0, "--chunk", tokens, *flags)


def decode(shape, layout, n, batch, *flags):
    return bytes_sent(shape, layout, "--prompt", 0, "--generate", n, "--batch", batch, *flags)


def sizes(layout):
    named = {axis: int(n) for axis, n in re.findall(r"(\w\w)=(\d+)", layout)}
    shares = re.search(r"--shares (\S+)", layout)
    return named.get("pp", 1), named.get("tp", 1), named.get("sp", 0), [int(x) for x in shares[1].split(",")] if shares else None


def test_tensor_parallel():
    if not t.have_tiny("bytes of tp and sp"):
        return
    for shape in (WIDE, PLAIN, EVERY):
        for layout in ("tp=2", "tp=4", "tp=3", "tp=8,sp=8", "tp=2,sp=2", "tp=4,sp=1", "tp=2 --shares 5,3"):
            _, tp, sp, shares = sizes(layout)
            for tokens in (8, 100):
                t.equal(f"{shape.name}, {layout}: {tokens} tokens of a prompt", prefill(shape, layout, tokens),
                        [tensor_parallel(shape, tokens, tp, r, shares, sp) for r in range(tp)])
        t.equal(f"{shape.name}, tp=4: 5 tokens each of 3 sequences", decode(shape, "tp=4", 5, 3),
                [5 * tensor_parallel(shape, 3, 4, r) for r in range(4)])


def test_pipeline():
    if not t.have_tiny("bytes of pp"):
        return
    for layout in ("pp=3", "pp=2,sp=1", "pp=3,tp=1"):
        pp = sizes(layout)[0]
        t.equal(f"{layout}: 100 tokens of a prompt", prefill(WIDE, layout, 100), [pipeline(WIDE, 100, pp, stage) for stage in range(pp)])
    # All a stage's ranks send, each to its like in the next stage; layers are 1 + 2, so what tp sends differs.
    for tokens in (8, 100):
        got = prefill(PLAIN, "pp=7,tp=2,sp=1", tokens)
        a_layer = [tensor_parallel(PLAIN, tokens, 2, r, sp=1) // PLAIN.layers for r in range(2)]
        t.equal(f"pp=7,tp=2,sp=1: {tokens} tokens of a prompt", got,
                [a_layer[r] + pipeline(PLAIN, tokens, 7, stage, 2, r, 1) for stage in range(7) for r in range(2)])


def test_split_rows_between_stages():
    if not t.have_tiny("bytes of split rows between stages"):
        return
    for tokens in (8, 100):
        t.equal(f"pp=7,tp=2,sp=2: {tokens} tokens of a prompt", prefill(PLAIN, "pp=7,tp=2,sp=2", tokens),
                [split_stage(PLAIN, tokens, 7, stage, 2, r) + pipeline(PLAIN, tokens, 7, stage, 2, r, 2) for stage in range(7) for r in range(2)])


def test_split_experts():
    if not t.have_tiny("bytes of experts over groups"):
        return
    t.equal("dp=2,ep=2: 100 tokens of one group's prompt", prefill(EVERY, "dp=2,ep=2", 100), [split_experts(EVERY, (100, 0), g) for g in range(2)])
    t.equal("dp=2,ep=2: 5 tokens each of 3 sequences", decode(EVERY, "dp=2,ep=2", 5, 3), [5 * split_experts(EVERY, (2, 1), g) for g in range(2)])


def test_groups_alone_send_nothing():
    if not t.have_tiny("bytes of dp"):
        return
    t.equal("dp=3: 5 tokens each of 3 sequences", decode(WIDE, "dp=3", 5, 3), [0, 0, 0])


def test_gathered_weights():
    if not t.have_tiny("bytes of gathered weights"):
        return
    for shape, dp in ((WIDE, 2), (PLAIN, 3)):
        t.equal(f"{shape.name}, dp={dp}: weights gathered in each of 5 steps", decode(shape, f"dp={dp}", 5, 1, "--weights", "gathered"),
                [gathered_weights(shape, dp, r, 5) for r in range(dp)])


if __name__ == "__main__":
    t.run(globals())
