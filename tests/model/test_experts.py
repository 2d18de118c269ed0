#!/usr/bin/env python3
"""Mixtures of experts: the weights of the chosen (MM-04) against a plain router in numpy, and experts that ranks do not divide (PL-14)."""
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from test_windows import TOLERANCE, answer, distance, gf, have_all, ids_of, logits, references, t


def variant(folder, base="golden-mixtral", used=2, normalise=None):
    f = gf.read(t.tiny(base)).set(".expert_used_count", gf.U32, used)
    if normalise is not None:
        f.set(".expert_weights_norm", gf.BOOL, normalise)
    return f.write(os.path.join(folder, "experts.gguf"))


def test_weights_of_experts():
    """MM-04: top 2 and top 1, normalised or not; also spread over ranks."""
    if not have_all("MM-04"):
        return
    ids, seen = ids_of(24), {}
    with tempfile.TemporaryDirectory() as folder:
        for base, used, normalise, layout in (
                ("golden-mixtral", 2, True, "ep=2"), ("golden-mixtral", 2, False, "dp=2,ep=2"), ("golden-mixtral", 1, True, "ep=2"),
                ("golden-mixtral", 1, False, None), ("golden-mixtral", 2, None, None), ("golden-mixtral", 8, True, None),
                ("golden-qwen3_moe", 4, True, None), ("golden-qwen3_moe", 4, False, "ep=2"), ("golden-qwen3_moe", 4, None, None)):
            name = f"MM-04: {base}, top {used}, normalised: {normalise}"
            path = variant(folder, base, used, normalise)
            got = logits(path, ids)
            near = distance(got, references().Model(path).logits(ids))
            t.check(name, near < TOLERANCE, near)
            seen[base, used, normalise] = got
            if layout:
                t.equal(f"{name}, {layout}", answer(path, ids, "--layout", layout), answer(path, ids))
    for base, used in (("golden-mixtral", 2), ("golden-mixtral", 1), ("golden-qwen3_moe", 4)):
        t.check(f"MM-04: {base}, top {used}: the key matters", distance(seen[base, used, True], seen[base, used, False]) > 100 * TOLERANCE)
    for base, used in (("golden-mixtral", 2), ("golden-qwen3_moe", 4)):
        t.equal(f"MM-04: {base}: without the key they are normalised", seen[base, used, None], seen[base, used, True])


def test_uneven_experts():
    """PL-14: 8 experts on 3 ranks are 2 + 3 + 3; 16 on 3; also with attention cut otherwise than experts."""
    if not t.have_tiny("PL-14"):
        return
    ids = ids_of(24, 301)
    for model, layouts in (("tiny-mixtral", ("ep=3", "dp=3,ep=3", "ep=7")), ("tiny-qwen3moe-q8_0", ("ep=3", "dp=3,ep=3"))):
        want = answer(t.tiny(model), ids)
        for layout in layouts:
            t.equal(f"PL-14: {model} on {layout}", answer(t.tiny(model), ids, "--layout", layout, "--batch", "3"), want)
    parts = [r["weight_bytes"] for r in t.stoa_json("inspect", t.tiny("tiny-mixtral"), "--layout", "ep=3")["ranks"]]
    t.check("PL-14: no rank holds all experts", max(parts) < 0.6 * sum(parts), parts)


if __name__ == "__main__":
    t.run(globals())
