#!/usr/bin/env python3
"""test_exact.py at length, for scripts/check-long: all pairs over every tiny model, twice as many mixes on SmolLM2, 8 ranks and
512 tokens on it, and each value of each axis once on every kind of model."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from exact import AXES, DEFAULTS, SUBJECT, affordable, all_pairs, check_run, each_value_once, seeded_mixes, t


def test_all_pairs():
    if not t.have_tiny("all pairs"):
        return
    for seed in (1, 2):
        for run in all_pairs({**AXES, **SUBJECT}, seed):
            check_run(run, f"pairs {seed}")


def test_each_value_once():
    if not t.have_tiny("each value of each axis"):
        return
    each_value_once("tiny-3heads", 70)
    each_value_once("tiny-wide", 70, activations="f32", kv="f32")
    each_value_once("tiny-split", 512, kv="bf16")


def test_each_value_once_on_the_real_model():
    if t.have_model("each value of each axis on SmolLM2"):
        each_value_once("smollm2", 32)


def test_mixes_on_the_real_model():
    if not t.have_model("mixes on SmolLM2"):
        return
    for run in seeded_mixes(40, seed=40, model="smollm2", length=32):
        check_run(affordable(run), "mixes")


def test_512_tokens_on_the_real_model():
    if not t.have_model("512 tokens of SmolLM2"):
        return
    for layout in ("tp=8", "pp=2,tp=4", "pp=5", "tp=2 --shares 5,3"):
        check_run({**DEFAULTS, "model": "smollm2", "length": 512, "layout": layout}, "512 tokens")
    check_run({**DEFAULTS, "model": "smollm2", "length": 512, "layout": "tp=2", "activations": "f32", "kv": "f32", "isa": "avx2" if "avx2" in AXES["isa"] else ""},
              "512 tokens")


if __name__ == "__main__":
    t.run(globals())
