#!/usr/bin/env python3
"""Real models and tiny ones of every family against an independent implementation; golden.py says how near is near enough.

SmolLM2 answers every record here, as it is quick.  Of the larger models some records are asked; long_golden.py asks all.
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import golden as g
from golden import t

TINY = ("llama", "llama-kv2", "llama-mha7", "llama-rope3", "qwen2", "qwen3", "gemma3", "mixtral", "qwen3_moe")


def each_real(what):
    for name, step, longest in (("smollm2", 1, 700), ("gemma3-270m", 2, 700), ("qwen2.5-coder-0.5b", 3, 60)):
        if t.have_model(f"{what} of {name}", name):
            model = g.real_model(name)
            model.records = [record for record in model.records[::step] if len(record["ids"]) <= longest]
            yield model


def each_tiny(what):
    if t.have_tiny(what):
        yield from map(g.tiny_model, TINY)


# ---- tiny models ----
def test_tiny_tokens():
    t.each(g.check_tokens, each_tiny("tokens of tiny models"))


def test_tiny_logits():
    t.each(g.check_logits, each_tiny("logits of tiny models"))


def test_tiny_logits_over_ranks():
    """A short prompt and the long one."""
    for model in each_tiny("logits of tiny models over ranks"):
        model.records = model.records[::4]
        t.each(lambda m: g.check_logits(m, "--layout", "pp=2,tp=2", "--chunk", "64"), [model])


def test_tiny_mean_loss():
    t.each(lambda model: g.check_mean_loss(model, longest=20), each_tiny("mean loss of tiny models"))


def test_tiny_greedy():
    t.each(g.check_greedy, each_tiny("greedy text of tiny models"))


def test_tiny_default_mode():
    t.each(lambda model: g.check_default_mode(model, at_least=1), each_tiny("default mode of tiny models"))


# ---- real models ----
def test_tokens():
    t.each(g.check_tokens, each_real("tokens"))


def test_logits():
    t.each(g.check_logits, each_real("logits"))


def test_mean_loss():
    t.each(lambda model: g.check_mean_loss(model, longest=9), each_real("mean loss"))


def test_cache_of_blocks():
    t.each(g.check_cache_of_blocks, each_real("a cache of q8_0"))


def test_norms_over_ranks():
    t.each(lambda model: g.check_norms_over_ranks(model, "pp=2,tp=2"), each_real("norms over ranks"))


def test_greedy():
    t.each(g.check_greedy, each_real("greedy text"))


def test_chat_prompt():
    t.each(g.check_chat_prompt, each_real("chat prompt"))


def test_default_mode():
    t.each(lambda model: g.check_default_mode(model, at_least=3), each_real("default mode"))


if __name__ == "__main__":
    t.run(globals())
