#!/usr/bin/env python3
"""test_golden.py at length, for scripts/check-long: every record of the larger models, and Qwen2.5-Coder 1.5B."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import golden as g
from golden import t

MODELS = ("gemma3-270m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b")


def each_model(what):
    return (g.real_model(name) for name in MODELS if t.have_model(f"{what} of {name}", name))


def test_tokens():
    t.each(g.check_tokens, each_model("tokens"))


def test_logits():
    t.each(g.check_logits, each_model("logits"))


def test_mean_loss():
    t.each(lambda model: g.check_mean_loss(model, longest=13), each_model("mean loss"))


def test_norms_over_ranks():
    for layout in ("tp=8", "pp=3"):
        t.each(lambda model: g.check_norms_over_ranks(model, layout), each_model("norms over ranks"))


def test_greedy():
    t.each(g.check_greedy, each_model("greedy text"))


def test_chat_prompt():
    t.each(g.check_chat_prompt, each_model("chat prompt"))


def test_default_mode():
    t.each(lambda model: g.check_default_mode(model, at_least=6), each_model("default mode"))


if __name__ == "__main__":
    t.run(globals())
