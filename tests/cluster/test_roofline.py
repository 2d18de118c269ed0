#!/usr/bin/env python3
"""What `stoa bench --roofline` counts, against what follows from a model's shapes: bytes and operations of every kind of work, on one rank
and on several."""
import collections
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import stoa_test as t

N_PROMPT, N_NEW = 40, 30
KINDS = (("attn_output.", "attn_out"), ("gate_inp", "router"), ("attn_", "qkv"), ("ffn_gate", "gate_up"), ("ffn_up", "gate_up"),
         ("ffn_down", "down"))

Attention = collections.namedtuple("Attention", "heads kv_heads head_dim windows")        # a window for each layer, 0 for none
MODELS = {
    "tiny-mixed": Attention(6, 2, 16, [0] * 7),
    "tiny-gemma3": Attention(4, 1, 16, [0 if i % 6 == 5 else 24 for i in range(8)]),
    "tiny-wide": Attention(8, 2, 8, [0] * 3),                   # two ranks of tp share nothing
    "tiny-qwen3moe": Attention(6, 2, 16, [0] * 5),
}
N_USED = 4                      # experts of a token of tiny-qwen3moe


def kind_of(name):
    return next((kind for part, kind in KINDS if part in name), "head")


def packed_bytes(tensor, n_rows):
    """16 rows together, rounded up to 64 bytes."""
    return -(-n_rows // 16) * -(-16 * (tensor["bytes"] // (tensor["parameters"] // tensor["shape"][0])) // 64) * 64


def matmuls(model):
    """(kind, rows, columns, bytes of a matrix, experts that a token uses, whether its input is in int8) of each matrix."""
    tensors = t.stoa_json("inspect", t.tiny(model))["tensors"]
    names = [x["name"] for x in tensors]
    for x in tensors:
        x["parameters"] = 1
        for n in x["shape"]:
            x["parameters"] *= n
        if len(x["shape"]) < 2 or x["name"] == "token_embd.weight" and "output.weight" in names:
            continue
        n_used = N_USED if len(x["shape"]) == 3 else 1
        yield kind_of(x["name"]), x["shape"][1], x["shape"][0], packed_bytes(x, x["shape"][1]), n_used, x["type"][0] in "QI"


def wanted(model, n_steps, n_rows):
    """Counters of n_steps steps of n_rows tokens of one sequence from its begin on: of one row the head."""
    want = collections.defaultdict(lambda: {"weight_bytes": 0, "kv_bytes": 0, "int_ops": 0, "float_ops": 0})
    for kind, n, k, n_bytes, n_used, is_int in matmuls(model):
        rows = 1 if kind == "head" else n_rows
        want[kind]["weight_bytes"] += n_steps * n_used * n_bytes        # of a mixture, when each row is a step of its own
        want[kind]["int_ops" if is_int else "float_ops"] += n_steps * 2 * rows * n_used * n * k
    a = MODELS[model]
    for window in a.windows:
        for step in range(n_steps):
            seen = [min(p, window or p) for p in range(step * n_rows + 1, (step + 1) * n_rows + 1)]
            first, last = step * n_rows + 1 - seen[0], (step + 1) * n_rows
            want["attention"]["kv_bytes"] += (last - first) * a.kv_heads * a.head_dim * 2 * 2       # keys and values in f16
            want["attention"]["float_ops"] += 4 * sum(seen) * a.heads * a.head_dim
    return dict(want)


def counted(result):
    """Sums over ranks; rows and messages read no weights and have no operations that are counted."""
    got = {}
    for w in result["roofline"]["work"]:
        sums = got.setdefault(w["work"], {"weight_bytes": 0, "kv_bytes": 0, "int_ops": 0, "float_ops": 0})
        for key in sums:
            sums[key] += w[key]
    for kind in ("rows", "comm"):
        t.equal(f"nothing is counted in {kind}", set(got.pop(kind, {"": 0}).values()), {0})
    return got


def bench(model, *flags):
    return t.stoa_json("bench", t.tiny(model), "--prompt", N_PROMPT, "--generate", N_NEW, "--repeat", 1, "--roofline", *flags)


def look_at(model, *flags):
    what = f"{model} {' '.join(map(str, flags))}"
    b = bench(model, *flags)
    prefill, decode = b["results"]
    want = wanted(model, 1, N_PROMPT)
    got = counted(prefill)
    if model == "tiny-qwen3moe":        # which experts the rows share is not known here
        for kind in ("gate_up", "down"):
            most, n = want[kind].pop("weight_bytes"), got[kind].pop("weight_bytes")
            t.check(f"{what}: bytes of {kind}", most <= n <= most // N_USED * 16, f"{n}, of {most} for a row")
    if "tp=2" in flags:                 # parts of a matrix are rounded up
        for counters in want, got:
            for kind in counters.values():
                kind.pop("weight_bytes", None)
    t.equal(f"{what}: prefill", got, want)
    if "tp=2" not in flags:
        t.equal(f"{what}: decode", counted(decode), wanted(model, N_NEW, 1))
    look_at_times(what, b)


def look_at_times(what, b):
    for r in b["results"]:
        roofline, n_ranks = r["roofline"], len(b["ranks"])
        regions = sum(w["wall_s"] for w in roofline["work"])
        t.check(f"{what}: {r['test']}: regions are a part of the time", 0 < regions <= roofline["wall_s"] * n_ranks, f"{regions} of {roofline['wall_s']}")
        t.check(f"{what}: {r['test']}: shares", roofline["read_share"] > 0 and roofline["compute_share"] > 0, roofline)
    for rank in b["ranks"]:
        t.check(f"{what}: peaks", all(v > 0 for v in rank["peaks"].values()), rank["peaks"])


def test_one_rank():
    if t.have_tiny("counters of one rank"):
        t.each(lambda job: look_at(*job), [(m, "--threads", n) for m in MODELS if m != "tiny-wide" for n in (1, 2)] + [("tiny-mixed", "--threads", 2, "--without", "fuse")])


def test_many_ranks():
    if t.have_tiny("counters of many ranks"):
        t.each(lambda job: look_at(*job, "--threads", 1), [("tiny-wide", "--layout", "tp=2"), ("tiny-gemma3", "--layout", "pp=2"),
                                                           ("tiny-qwen3moe", "--layout", "pp=2")])


def test_text():
    if not t.have_tiny("the table"):
        return
    r = t.stoa("bench", t.tiny("tiny-mixed"), "--prompt", 8, "--generate", 8, "--repeat", 1, "--roofline", "--layout", "tp=2", "--threads", 1)
    lines = r.out.splitlines()
    t.check("the peaks of each rank", sum("peaks: reads" in x for x in lines) == 2, r)
    for work in ("qkv", "attn_out", "gate_up", "down", "head", "attention", "rows", "comm", "between", "all"):
        t.equal(f"a line of {work} for each test", sum(x.split()[:1] == [work] for x in lines), 2)
    plain = t.stoa("bench", t.tiny("tiny-mixed"), "--prompt", 8, "--generate", 8, "--repeat", 1)
    t.check("nothing of it without --roofline", plain.code == 0 and "peak" not in plain.out.replace("peak ", "", 1), plain)


t.run(globals())
