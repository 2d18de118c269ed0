#!/usr/bin/env python3
"""One answer (docs/architecture.md): layouts, threads, chunks, batches, instruction sets and passes do not change a bit.

    each value of each axis once on a tiny model; what is hard for each family and type; all pairs of a few values of each
    axis; 512 tokens in portable C; seeded mixes of everything on SmolLM2; generated text

long_exact.py has the wide products.
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from exact import (AHEAD, AXES, DEFAULTS, SUBJECT, affordable, all_pairs, answer, check_run, check_runs, command, is_ahead, seeded_mixes,
                   t, values_once)

# What is hard, the model, the layout, and what else differs from the default.
ROWS = (
    ("F16 in thirds of heads", "tiny-f16", "tp=3", {}),
    ("BF16 on more ranks than units", "tiny-bf16", "tp=8", {}),
    ("Q8_0 in stages and slices", "tiny-q8_0", "pp=3,tp=2", {}),
    ("Q4_0 in uneven shares", "tiny-q4_0", "tp=2 --shares 5,3", {}),
    ("Q4_1 on 8 ranks", "tiny-q4_1", "pp=2,tp=4", {}),
    ("100 heads in thirds", "tiny-group", "tp=3", {}),
    ("100 heads in portable C", "tiny-group", "tp=1", {"isa": "c"}),
    ("100 heads in small chunks", "tiny-group", "tp=1", {"chunk": 5, "threads": 3}),
    ("Q5_0 and Q5_1 in fifths", "tiny-fives", "tp=5", {}),
    ("K types: two units of FFN for four ranks", "tiny-kquants", "tp=4", {}),
    ("K types in portable C", "tiny-kquants", "pp=3", {"isa": "c", "batch": 3}),
    ("K types, f32", "tiny-kquants", "tp=3", {"activations": "f32"}),
    ("biases in thirds", "tiny-qwen2", "tp=3", {}),
    ("biases in stages, a tied head", "tiny-qwen2", "pp=2,tp=2", {"chunk": 5}),
    ("norms of heads", "tiny-qwen3", "pp=5", {}),
    # few rows: every thread makes the input of a product for itself
    ("a rank without heads, token by token", "tiny-3heads", "tp=4,sp=1", {"chunk": 1, "threads": 2}),
    ("sums that others want too, token by token", "tiny-q8_0", "tp=2,sp=1", {"chunk": 1, "threads": 3}),
    ("experts, token by token", "tiny-qwen3moe-q8_0", "tp=2,ep=2", {"chunk": 1, "threads": 3}),
    ("three sequences, token by token", "tiny-wide", "tp=1", {"batch": 3, "threads": 3, "chunk": 1}),
    ("norms of heads in uneven shares", "tiny-qwen3", "tp=3 --shares 1,6,1", {"batch": 3}),
    # mixtures
    ("experts cut by nothing but tp", "tiny-qwen3moe", "tp=4", {}),
    ("experts that no block divides, portable C", "tiny-qwen3moe", "tp=2", {"isa": "c", "chunk": 5}),
    ("16 experts on 8 ranks", "tiny-qwen3moe-q8_0", "ep=8", {"batch": 16}),
    ("16 experts in thirds", "tiny-qwen3moe-q8_0", "tp=3,ep=3", {}),
    ("a dense layer between stages", "tiny-qwen3moe-q4_0", "pp=2,ep=2", {"chunk": 5}),
    ("one expert a rank", "tiny-mixtral", "ep=8", {}),
    ("more ranks than experts", "tiny-kquants-moe", "ep=8", {}),
    ("a tensor for each expert", "tiny-legacy-mixtral", "ep=4", {"chunk": 64}),
    ("uneven shares of experts", "tiny-mixtral", "tp=2,ep=2 --shares 5,3", {}),
    ("two groups, one set of experts", "tiny-qwen3moe-q8_0", "dp=2,ep=2", {"batch": 3}),
    ("one sequence, a group has no token", "tiny-mixtral", "dp=2,ep=2", {}),
    ("two sets of experts", "tiny-qwen3moe-q4_0", "dp=4,ep=2", {"batch": 16}),
    ("experts over tp and dp", "tiny-qwen3moe", "dp=2,tp=2,ep=4", {"batch": 16, "chunk": 5}),
    ("each group its own experts", "tiny-mixtral", "dp=2,tp=2,ep=2", {"batch": 3, "threads": 3}),
    ("experts, groups and stages", "tiny-qwen3moe-q8_0", "dp=2,pp=2,ep=2", {"batch": 16}),
    ("experts, f32", "tiny-qwen3moe-q8_0", "ep=4", {"activations": "f32", "kv": "f32", "batch": 3}),
    # windows and caps; every prompt is longer than the window of 24
    ("a window, one KV head on three ranks", "tiny-gemma3", "tp=3", {}),
    ("a window that ends inside a chunk", "tiny-gemma3", "tp=1", {"chunk": 5}),
    ("a window, token by token", "tiny-gemma3", "pp=2", {"chunk": 1}),
    ("a window behind two spans", "tiny-gemma3", "pp=2,tp=2", {"length": 512, "chunk": 64}),
    ("a window in portable C", "tiny-gemma3", "tp=2", {"isa": "c", "length": 300}),
    ("the global layers in stages of their own", "tiny-gemma3", "pp=5", {"batch": 3}),
    ("caps in portable C", "tiny-gemma3-caps", "tp=2", {"isa": "c"}),
    ("caps, split vocabulary", "tiny-gemma3-caps", "tp=8", {"batch": 16}),
    # long contexts in runs of spans; the question itself is asked with as many threads as there are cores, and whole chunks
    ("runs of spans, one token a step", "tiny-mixed", "tp=1", {"length": 1000, "chunk": 1, "threads": 3}),
    ("runs of spans and one thread", "tiny-mixed", "tp=1", {"length": 1000, "chunk": 5, "threads": 1}),
    ("runs of spans at the end of a window", "tiny-gemma3", "tp=1", {"length": 600, "chunk": 5, "threads": 2}),
    ("runs of spans, 100 heads", "tiny-group", "tp=2", {"length": 700, "chunk": 5, "threads": 2, "isa": "c"}),
    # a cache in blocks
    ("q8_0, a KV head on three ranks", "tiny-3heads", "tp=3", {"kv": "q8_0", "length": 300}),
    ("q8_0, token by token", "tiny-3heads", "pp=2,tp=2", {"kv": "q8_0", "chunk": 1}),
    ("q8_0 in portable C", "tiny-qwen3", "tp=1", {"kv": "q8_0", "isa": "c", "length": 300}),
    ("q8_0 and f32 activations", "tiny-kquants", "tp=2", {"kv": "q8_0", "activations": "f32", "batch": 3}),
    ("q8_0, experts and groups", "tiny-kquants-moe", "dp=2,ep=2", {"kv": "q8_0", "batch": 3, "chunk": 5}),
    ("q8_0, runs of spans", "tiny-3heads", "tp=1", {"kv": "q8_0", "length": 1000, "chunk": 5, "threads": 3}),
    # rows split along tp, sequences along dp, weights that come when they are used
    ("rows of 5 on 4 ranks", "tiny-mixed", "tp=4,sp=4", {"chunk": 5}),
    ("one row on 4 ranks", "tiny-mixed", "tp=4,sp=4", {"chunk": 1}),
    ("never split rows", "tiny-mixed", "tp=4,sp=1", {"batch": 16}),
    ("split rows between stages", "tiny-3heads", "pp=2,tp=2,sp=2", {"batch": 3}),
    ("split rows of experts", "tiny-qwen3moe-q8_0", "dp=2,tp=2,ep=4,sp=2", {"batch": 3}),
    ("split rows behind a window", "tiny-gemma3", "dp=2,tp=2,sp=2", {"batch": 3}),
    ("three sequences in two groups", "tiny-mixed", "dp=2", {"batch": 3}),
    ("16 sequences in three groups, f32", "tiny-3heads", "dp=3", {"batch": 16, "activations": "f32"}),
    ("groups, stages and slices", "tiny-mixed", "dp=2,pp=2,tp=2", {"batch": 16, "chunk": 5}),
    ("gathered weights", "tiny-mixed", "dp=2", {"weights": "gathered", "batch": 3}),
    ("gathered weights of slices", "tiny-q4_0", "dp=2,tp=2", {"weights": "gathered"}),
    ("gathered weights of stages, K types", "tiny-kquants", "dp=2,pp=2", {"weights": "gathered", "batch": 16}),
    ("gathered experts", "tiny-mixtral", "dp=2,ep=2", {"weights": "gathered", "batch": 3}),
    ("gathered biases", "tiny-qwen2", "dp=3", {"weights": "gathered"}),
)


def test_the_hash_can_differ():
    """Or the equalities below would prove nothing."""
    if not t.have_tiny("the hash can differ"):
        return
    asked = [{**DEFAULTS, "activations": a, "kv": kv} for a in SUBJECT["activations"] for kv in SUBJECT["kv"] if kv != "q8_0"]
    asked += [{**DEFAULTS, "model": "tiny-3heads", "activations": a, "kv": "q8_0"} for a in SUBJECT["activations"]]
    same = ("tiny-mixed", "tiny-split", "tiny-legacy-mixtral")      # the default, and those that have a twin
    asked += [{**DEFAULTS, "length": 31}, *({**DEFAULTS, "model": model} for model in SUBJECT["model"] if model not in same)]
    t.equal("modes, caches, lengths and models have hashes of their own", len({answer(run) for run in asked}), len(asked))
    args = command(DEFAULTS)
    ids = args[args.index("--tokens") + 1]
    one_off = ids.rsplit(",", 1)[0] + ",300"
    hashes = {t.stoa_json(*[one_off if a == ids else a for a in args])["hash"], t.stoa_json(*[a for a in args if a != "--all"])["hash"]}
    t.check("another last token, and the last position alone, have hashes of their own", len(hashes | {answer(DEFAULTS)}) == 3)


def test_the_same_model_in_another_file():
    if not t.have_tiny("the same model in another file"):
        return
    for twin, model in (("tiny-split", "tiny-q4_0"), ("tiny-legacy-mixtral", "tiny-mixtral")):
        if not is_ahead(model=model) and not is_ahead(model=twin):
            t.equal(f"{twin} answers like {model}", answer({**DEFAULTS, "model": twin}), answer({**DEFAULTS, "model": model}))


def test_each_value_once():
    if t.have_tiny("each value of each axis"):
        check_runs(values_once("tiny-mixed", 32), "one axis")


def test_rows():
    if not t.have_tiny("what is hard"):
        return
    for what, model, layout, more in ROWS:
        run = {**DEFAULTS, "model": model, "layout": layout, **more}
        if not is_ahead(**run):
            check_run(run, what)


def test_pairs():
    """Few values of each axis, so that all pairs of them are some sixty runs."""
    if not t.have_tiny("all pairs"):
        return
    axes = {
        "layout": ("tp=1", "tp=3", "tp=5", "pp=3,tp=2", "pp=2 --stages UNEVEN", "tp=2 --shares 5,3", "tp=4,sp=4", "dp=2,tp=2", "dp=2,ep=2"),
        "threads": (0, 1, 3), "chunk": (0, 5, 64), "batch": (1, 16), "isa": AXES["isa"], "without": ("", "simplify,fuse,overlap,place"),
        "weights": AXES["weights"],
        "model": ("tiny-mixed", "tiny-f32", "tiny-3heads", "tiny-wide", "tiny-gemma3", "tiny-qwen3moe-q8_0"),
        "activations": SUBJECT["activations"], "kv": ("f16", "f32", "q8_0"), "length": (32, 300),
    }
    axes = {axis: tuple(x for x in values if not is_ahead(**{axis: x})) for axis, values in axes.items()}
    for run in all_pairs(axes, seed=3):
        check_run(run, "pairs")


def test_512_tokens_in_portable_c():
    if not t.have_tiny("512 tokens"):
        return
    check_run({**DEFAULTS, "length": 512, "isa": "c", "layout": "pp=2,tp=2", "chunk": 64}, "512 tokens")


def test_mixes_on_the_real_model():
    if not t.have_model("mixes on SmolLM2"):
        return
    for run in seeded_mixes(6, seed=20, model="smollm2", length=32):
        check_run(affordable({**run, "batch": min(run["batch"], 3)}), "mixes")


def test_what_is_ahead():
    for kind, names in AHEAD.items():
        for name in names:
            t.skip(f"{kind}: {name}", "this version does not have it yet (AHEAD in exact.py)")


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


def test_text_of_families():
    """Generated well past the window of gemma3, and with a rank that has no sequence."""
    if not t.have_tiny("generated text of families"):
        return
    rows = (("tiny-gemma3", "tp=2"), ("tiny-gemma3", "pp=3"), ("tiny-qwen3moe-q8_0", "ep=4"), ("tiny-qwen3moe-q8_0", "dp=2,ep=2"),
            ("tiny-mixed", "tp=4,sp=4"))
    sampler = ("--temp", "1.5", "--top-p", "0.9", "--seed", "7")
    for model, layout in rows:
        if not is_ahead(model=model, layout=layout):
            want = generate(t.tiny(model), *sampler, n=64)
            t.equal(f"{model}: the text with {layout}", generate(t.tiny(model), *sampler, "--layout", layout, n=64), want)


def test_text_of_the_real_model():
    if not t.have_model("generated text of SmolLM2"):
        return
    sampler = ("--temp", "0.8", "--top-p", "0.95", "--seed", "7")
    want = generate(t.MODEL, *sampler)
    for layout in ("tp=2", "pp=2,tp=2"):
        t.equal(f"SmolLM2: the text with {layout}", generate(t.MODEL, *sampler, "--layout", layout), want)


if __name__ == "__main__":
    t.run(globals())
