#!/usr/bin/env python3
"""What `stoa inspect` predicts is what ranks take, to the byte: every family, over every axis and with gathered weights."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import stoa_test as t

DENSE = ("tiny-mixed", "tiny-3heads", "tiny-qwen2", "tiny-qwen3", "tiny-gemma3", "tiny-gemma3-caps")
MIXTURES = ("tiny-qwen3moe", "tiny-mixtral", "tiny-legacy-mixtral")
LAYOUTS = ("tp=3", "pp=3", "pp=2,tp=2", "dp=2,sp=1", "dp=2 --weights gathered", "dp=2,tp=2 --weights gathered")
EXPERT_LAYOUTS = ("ep=2", "pp=2,ep=2", "dp=2,ep=2", "dp=4,ep=2", "dp=2,ep=2 --weights gathered", "dp=2,ep=1 --weights gathered")


def predicted(model, layout):
    return [r["weight_bytes"] for r in t.stoa_json("inspect", t.tiny(model), "--layout", *layout.split())["ranks"]]


def taken(model, layout):
    ranks = t.stoa_json("bench", t.tiny(model), "--prompt", 4, "--generate", 0, "--repeat", 1, "--context", 64, "--threads", 1,
                        "--layout", *layout.split())["ranks"]
    return [r["weight_bytes"] for r in ranks]


def same_bytes(job):
    model, layout = job
    got, want = taken(model, layout), predicted(model, layout)
    t.equal(f"{model}, {layout}: bytes of weights", got, want)
    (whole,) = predicted(model, "tp=1")
    n_groups = int(layout.split("dp=")[1][0]) if "dp=" in layout else 1
    if "gathered" not in layout and "ep" not in layout:
        t.check(f"{model}, {layout}: each group holds the whole", sum(got) >= n_groups * whole, f"{got} of {whole}")
    else:
        t.check(f"{model}, {layout}: a rank holds less than its group would", max(got) < 0.8 * whole and sum(got) >= whole,
                f"{got} of {whole}")


def test_dense():
    if t.have_tiny("memory of dense models"):
        t.each(same_bytes, [(model, layout) for model in DENSE for layout in LAYOUTS])


def test_mixtures():
    if t.have_tiny("memory of mixtures"):
        t.each(same_bytes, [(model, layout) for model in MIXTURES for layout in LAYOUTS + EXPERT_LAYOUTS])


def test_cache():
    """tiny-gemma3: 8 layers, every sixth keeps all positions, the others a window of 24; one KV head of 16 in f16, on each rank that
    reads it.  A step of 5 tokens needs 28 positions, which touch at most 3 blocks of 16."""
    if not t.have_tiny("memory of windows"):
        return
    a_layer = 2 * 16 * 2
    for layout, kept, windows in (("tp=1", [1], [7]), ("tp=2", [1, 1], [7, 7]), ("pp=2", [0, 1], [4, 3])):
        ranks = t.stoa_json("inspect", t.tiny("tiny-gemma3"), "--layout", layout, "--chunk", 5)["ranks"]
        t.equal(f"{layout}: cache of a token", [r["kv_bytes_per_token"] for r in ranks], [n * a_layer for n in kept])
        t.equal(f"{layout}: windows of a sequence", [r["kv_window_bytes"] for r in ranks], [n * a_layer * 3 * 16 for n in windows])
    text = t.stoa("inspect", t.tiny("tiny-gemma3"), "--chunk", 5).out
    t.check("windows in the text", f" {7 * a_layer * 3 * 16} of windows a sequence," in text, text[-300:])
    t.check("none of a model without", "window" not in t.stoa("inspect", t.tiny("tiny-mixed")).out)


def test_cache_types():
    """tiny-3heads: 7 layers of one KV head of 32.  q8_0 keeps 34 bytes of 32 elements."""
    if not t.have_tiny("memory of cache types"):
        return
    for kv, a_head in (("f16", 64), ("f32", 128), ("q8_0", 34)):
        (rank,) = t.stoa_json("inspect", t.tiny("tiny-3heads"), "--kv", kv)["ranks"]
        t.equal(f"{kv}: cache of a token", rank["kv_bytes_per_token"], 7 * 2 * a_head)


if __name__ == "__main__":
    t.run(globals())
