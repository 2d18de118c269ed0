#!/usr/bin/env python3
"""test_exact.py at length, for scripts/check-long: all pairs of every value over every tiny model, every layout of mixtures, five
times as many mixes on SmolLM2, 8 ranks and 512 tokens on it, each value of each axis once on every kind of model, and mixes on
the other real models.

Runs alone: up to 8 ranks are slow enough on two cores without a neighbour."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from exact import (AXES, DEFAULTS, EXPERT_LAYOUTS, LAYOUTS, MIXTURES, SUBJECT, affordable, all_pairs, check_run, check_runs, is_ahead,
                   possible, seeded_mixes, t, values_once)

AVX2 = "avx2" if "avx2" in AXES["isa"] else ""


def test_all_pairs():
    if not t.have_tiny("all pairs"):
        return
    check_runs(all_pairs({**AXES, **SUBJECT}, seed=1), "pairs")


def test_each_value_once():
    if not t.have_tiny("each value of each axis"):
        return
    rows = (("tiny-3heads", 70, {}), ("tiny-wide", 70, {"activations": "f32", "kv": "f32"}), ("tiny-split", 512, {"kv": "bf16"}),
            ("tiny-qwen3moe-q8_0", 70, {"batch": 3}), ("tiny-gemma3", 300, {}), ("tiny-kquants", 70, {}))
    for model, length, more in rows:
        if not is_ahead(model=model):
            check_runs(values_once(model, length, **more), "one axis")


def test_layouts_of_mixtures():
    """The product that matters there: who has the experts, who has the tokens, and how many tokens there are."""
    if not t.have_tiny("layouts of mixtures"):
        return
    runs = []
    for model in MIXTURES:
        for n, layout in enumerate(EXPERT_LAYOUTS):
            run = {**DEFAULTS, "model": model, "layout": layout, "batch": (1, 3, 16)[n % 3], "chunk": (5, 0)[n % 2]}
            if possible(run) and not is_ahead(**run):
                runs += [run, {**run, "batch": (16, 1, 3)[n % 3], "activations": "f32", "threads": 2}]
    check_runs(runs, "mixtures")


def test_gathered_weights():
    if not t.have_tiny("gathered weights"):
        return
    runs = []
    for n, layout in enumerate(x for x in LAYOUTS + EXPERT_LAYOUTS if "dp=" in x):
        for model in ("tiny-mixed", "tiny-kquants", "tiny-qwen2", "tiny-gemma3-caps", "tiny-qwen3moe-q4_0", "tiny-legacy-mixtral"):
            run = {**DEFAULTS, "model": model, "layout": layout, "weights": "gathered", "batch": (1, 3, 16)[n % 3]}
            if possible(run) and not is_ahead(**run):
                runs.append(run)
    check_runs(runs, "gathered")


def test_512_tokens():
    if not t.have_tiny("512 tokens"):
        return
    for model in ("tiny-mixed", "tiny-gemma3", "tiny-qwen3moe-q4_0"):
        for more in ({"isa": "c"}, {"chunk": 1}, {"layout": "pp=3", "chunk": 5},
                     {"activations": "f32", "kv": "f32", "isa": "c", "chunk": 5}):
            if not is_ahead(model=model):
                check_run({**DEFAULTS, "model": model, "length": 512, **more}, "512 tokens")


# ---- real models ----
def test_each_value_once_on_the_real_model():
    if t.have_model("each value of each axis on SmolLM2"):
        for run in values_once("smollm2", 32):
            check_run(run, "one axis")


def test_mixes_on_the_real_model():
    if not t.have_model("mixes on SmolLM2"):
        return
    for run in seeded_mixes(40, seed=40, model="smollm2", length=32):
        check_run(affordable(run), "mixes")


def test_mixes_on_other_real_models():
    for model in ("gemma3-270m", "qwen2.5-coder-0.5b"):
        if not is_ahead(model=model) and t.have_model(f"mixes on {model}", model):
            for run in seeded_mixes(8, seed=8, model=model, length=32):
                check_run(affordable({**run, "batch": min(run["batch"], 3)}), "mixes")


def test_512_tokens_on_the_real_model():
    if not t.have_model("512 tokens of SmolLM2"):
        return
    for layout in ("tp=8", "pp=2,tp=4", "pp=5", "tp=2 --shares 5,3"):
        check_run({**DEFAULTS, "model": "smollm2", "length": 512, "layout": layout}, "512 tokens")
    check_run({**DEFAULTS, "model": "smollm2", "length": 512, "layout": "tp=2", "activations": "f32", "kv": "f32", "isa": AVX2},
              "512 tokens")


def test_a_window_of_512_on_the_real_model():
    """Gemma's own window is as long as two spans."""
    model = "gemma3-270m"
    if is_ahead(model=model) or not t.have_model("a prompt longer than Gemma's window", model):
        return
    for more in ({"layout": "tp=2", "chunk": 64}, {"layout": "pp=3"}, {"isa": AVX2, "chunk": 512}):
        check_run({**DEFAULTS, "model": model, "length": 600, **more}, "a window")


if __name__ == "__main__":
    t.run(globals())
