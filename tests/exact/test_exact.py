#!/usr/bin/env python3
"""One answer (docs/architecture.md): layouts, threads, chunks, batches, instruction sets and passes do not change a bit.

    each value of each axis once on a tiny model; all pairs of values over a few tiny models; 20 seeded mixes of everything on
    SmolLM2; 512 tokens in portable C on a tiny model; generated text
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from exact import AXES, DEFAULTS, SUBJECT, affordable, all_pairs, answer, check_run, command, each_value_once, seeded_mixes, t


def test_the_hash_can_differ():
    """Or the equalities below would prove nothing."""
    if not t.have_tiny("the hash can differ"):
        return
    asked = [{**DEFAULTS, "activations": a, "kv": kv} for a in SUBJECT["activations"] for kv in SUBJECT["kv"]]
    asked += [{**DEFAULTS, "length": 31}, {**DEFAULTS, "model": "tiny-q4_0"}, {**DEFAULTS, "model": "tiny-q4_1"}]
    t.equal("modes, caches, lengths and models have hashes of their own", len({answer(run) for run in asked}), len(asked))
    args = command(DEFAULTS)
    ids = args[args.index("--tokens") + 1]
    one_off = ids.rsplit(",", 1)[0] + ",300"
    hashes = {t.stoa_json(*[one_off if a == ids else a for a in args])["hash"], t.stoa_json(*[a for a in args if a != "--all"])["hash"]}
    t.check("another last token, and the last position alone, have hashes of their own", len(hashes | {answer(DEFAULTS)}) == 3)


def test_split_file_is_the_same_model():
    if t.have_tiny("a split file"):
        t.equal("three parts answer like one file", answer({**DEFAULTS, "model": "tiny-split"}), answer({**DEFAULTS, "model": "tiny-q4_0"}))


def test_each_value_once():
    if t.have_tiny("each value of each axis"):
        each_value_once("tiny-mixed", 32)


def test_every_model():
    """The models that the pairs below leave out, each on the layout that is hardest for it."""
    if not t.have_tiny("every model"):
        return
    layouts = {"tiny-f16": "tp=3", "tiny-bf16": "tp=8", "tiny-q8_0": "pp=3,tp=2", "tiny-q4_0": "tp=2 --shares 5,3", "tiny-q4_1": "pp=2,tp=4"}
    for model, layout in layouts.items():
        check_run({**DEFAULTS, "model": model, "layout": layout}, "every model")
    for more in ({"layout": "tp=3"}, {"isa": "c"}, {"chunk": 5, "threads": 3}):
        check_run({**DEFAULTS, "model": "tiny-group", **more}, "every model")


def test_all_pairs():
    if not t.have_tiny("all pairs"):
        return
    subject = {**SUBJECT, "model": ("tiny-mixed", "tiny-f32", "tiny-3heads", "tiny-wide", "tiny-split"), "length": (32, 300)}
    for run in all_pairs({**AXES, **subject}, seed=3):
        check_run(run, "pairs")


def test_512_tokens_in_portable_c():
    if not t.have_tiny("512 tokens"):
        return
    for more in ({"isa": "c"}, {"isa": "c", "layout": "pp=2,tp=2", "chunk": 64}, {"chunk": 1}, {"activations": "f32", "kv": "f32", "isa": "c", "chunk": 5}):
        check_run({**DEFAULTS, "length": 512, **more}, "512 tokens")


def test_mixes_on_the_real_model():
    if not t.have_model("mixes on SmolLM2"):
        return
    for run in seeded_mixes(20, seed=20, model="smollm2", length=32):
        check_run(affordable(run), "mixes")


# ---- text ----
SAMPLERS = {
    "greedy": (),
    "temperature": ("--temp", "0.8"),
    "top-k": ("--temp", "0.8", "--top-k", "20"),
    "top-p": ("--temp", "1.5", "--top-p", "0.9"),
    "top-k and top-p": ("--temp", "1.2", "--top-k", "40", "--top-p", "0.7"),
}


def generate(model, *flags, n=32):
    return t.stoa_json("run", model, "--raw", "-p", "The sea and the sky", "-n", n, "--ignore-eos", *flags)["tokens"]


def test_text():
    if not t.have_tiny("generated text"):
        return
    model = t.tiny("tiny-mixed")
    how = [("--layout", layout) for layout in ("tp=2", "pp=3,tp=2", "tp=5")] + [("--threads", "3"), ("--chunk", "1"), ("--isa", "c")]
    for n, (name, sampler) in enumerate(SAMPLERS.items()):
        want = generate(model, *sampler, "--seed", 7)
        t.equal(f"{name}: the number of tokens", len(want), 32)
        for flags in how if n == 3 else how[n % 3::3]:          # top-p over all of them: it is the one with most to go wrong
            t.equal(f"{name}: the text with {' '.join(flags)}", generate(model, *sampler, "--seed", 7, *flags), want)
        other = generate(model, *sampler, "--seed", 8)
        t.check(f"{name}: what another seed does", (other == want) == (name == "greedy"), f"{other} and {want}")


def test_text_of_the_real_model():
    if not t.have_model("generated text of SmolLM2"):
        return
    sampler = ("--temp", "0.8", "--top-p", "0.95", "--seed", "7")
    want = generate(t.MODEL, *sampler)
    for layout in ("tp=2", "pp=2,tp=2"):
        t.equal(f"SmolLM2: the text with {layout}", generate(t.MODEL, *sampler, "--layout", layout), want)


if __name__ == "__main__":
    t.run(globals())
