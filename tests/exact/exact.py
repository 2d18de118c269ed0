"""One answer: what may not change a bit, as axes, and the runs that vary them.  test_exact.py and long_exact.py are short.

A run is a dict with a value for each axis.  SUBJECT axes choose the question (model, mode, cache, length of the prompt); all
others only how it is computed, so the hash of a run must be that of the same question asked with every other axis at its default.
"""
import concurrent.futures
import itertools
import os
import random
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import stoa_test as t

# What this version cannot do yet: nothing that names these is run, and test_what_is_ahead() says so.  Delete a name when it is there.
AHEAD = {
    "axes": (),
    "weights": (),
    "model": (),
}

# ---- the axes ----
LAYOUTS = ("tp=1", "tp=2", "tp=3", "tp=4", "tp=5", "tp=8", "pp=2", "pp=3", "pp=5", "pp=2,tp=2", "pp=3,tp=2", "pp=2,tp=4",
           "tp=2 --shares 5,3", "tp=3 --shares 1,6,1", "pp=2 --stages UNEVEN", "pp=2,tp=2 --shares 3,5",
           # sp: unnamed where it is cheaper, =1 never, =tp always
           "tp=2,sp=2", "tp=3,sp=3", "tp=4,sp=4", "tp=4,sp=1", "pp=2,tp=2,sp=2", "tp=2,sp=2 --shares 5,3",
           # dp, whose groups have 0, 1 or several of a batch's sequences
           "dp=2", "dp=3", "dp=2,tp=2", "dp=2,pp=2", "dp=2,pp=2,tp=2", "dp=2,tp=2,sp=2")
# Of mixtures only.  ep=N alone is tp=N,ep=N; with dp, groups share a set of experts.
EXPERT_LAYOUTS = ("ep=2", "ep=4", "ep=8", "pp=2,ep=2", "tp=3,ep=3", "tp=2,ep=2 --shares 5,3", "dp=2,ep=2", "dp=4,ep=2", "dp=2,tp=2,ep=2",
                  "dp=2,tp=2,ep=4", "dp=2,pp=2,ep=2", "dp=2,tp=2,ep=4,sp=2")
WITHOUT = ("", "simplify", "fuse", "fuse_matmuls", "fuse_epilogues", "fuse_rows", "fuse_prologues", "fuse_matmuls,fuse_rows", "overlap", "place",
           "simplify,fuse,overlap,place")
MODELS = ("tiny-mixed", "tiny-f32", "tiny-f16", "tiny-bf16", "tiny-q8_0", "tiny-q4_0", "tiny-q4_1", "tiny-3heads", "tiny-group",
          "tiny-wide", "tiny-split", "tiny-fives", "tiny-kquants", "tiny-kquants-moe", "tiny-qwen2", "tiny-qwen3", "tiny-qwen3moe",
          "tiny-qwen3moe-q8_0", "tiny-qwen3moe-q4_0", "tiny-mixtral", "tiny-legacy-mixtral", "tiny-gemma3", "tiny-gemma3-caps")
LAYERS = {"tiny-wide": 3, "tiny-group": 3, "tiny-kquants": 3, "tiny-kquants-moe": 2, "tiny-qwen3": 5, "tiny-qwen3moe": 5,
          "tiny-qwen3moe-q8_0": 4, "tiny-qwen3moe-q4_0": 4, "tiny-gemma3": 8, "tiny-gemma3-caps": 8, "smollm2": 30, "gemma3-270m": 18,
          "qwen2.5-coder-0.5b": 24}        # else 7
MIXTURES = ("tiny-qwen3moe", "tiny-qwen3moe-q8_0", "tiny-qwen3moe-q4_0", "tiny-mixtral", "tiny-legacy-mixtral", "tiny-kquants-moe")
WHOLE_BLOCKS = ("tiny-3heads", "tiny-kquants", "tiny-kquants-moe", "tiny-qwen3", *t.REAL)      # of heads that --kv q8_0 can cut
REAL_VOCAB, TINY_VOCAB = 49152, 301         # real models have at least so many ids


def is_ahead(layout="", weights="", model="", **others):
    return model in AHEAD["model"] or weights in AHEAD["weights"] or any(axis + "=" in layout for axis in AHEAD["axes"])


# The first value of each is the default that all others are compared with.
AXES = {
    "layout": tuple(x for x in LAYOUTS + EXPERT_LAYOUTS if not is_ahead(layout=x)),
    "threads": (0, 1, 2, 3),            # 0: the flag is left out
    "chunk": (0, 1, 5, 64, 512),        # the last: the whole prompt
    "batch": (1, 3, 16),
    "isa": ("", *t.cpu_isas()),
    "without": WITHOUT,
    "weights": tuple(x for x in ("resident", "gathered") if not is_ahead(weights=x)),
}
SUBJECT = {
    "model": tuple(x for x in MODELS if not is_ahead(model=x)),
    "activations": ("int8", "f32"),
    "kv": ("f16", "bf16", "f32", "q8_0"),
    "length": (32, 300, 512),           # one span of attention, a piece of the second, two whole spans; all longer than the window
}
DEFAULTS = {name: values[0] for name, values in {**AXES, **SUBJECT}.items()}


# ---- runs ----
def prompt_ids(length, vocab):
    return ",".join(str((i * i * 7 + i * 31 + 5) % vocab) for i in range(length))


def n_layers(model):
    return LAYERS.get(model, 7)


def sizes(layout):
    """The axes that a layout names, and tp where ep alone stands for it."""
    named = {axis: int(n) for axis, n in re.findall(r"(\w\w)=(\d+)", layout.split()[0])}
    if "ep" in named and "tp" not in named and "dp" not in named:
        named["tp"] = named["ep"]
    return named


def n_ranks(layout):
    named = sizes(layout)
    return named.get("dp", 1) * named.get("pp", 1) * named.get("tp", 1)


def command(run):
    real, layers = run["model"] in t.REAL, n_layers(run["model"])
    layout = run["layout"].replace("UNEVEN", f"{layers // 3},{layers - layers // 3}").split()
    args = ["logits", t.real(run["model"]) if real else t.tiny(run["model"]), "--tokens",
            prompt_ids(run["length"], REAL_VOCAB if real else TINY_VOCAB), "--all", "--top", "1", "--activations", run["activations"],
            "--kv", run["kv"], "--layout", *layout]
    for axis in ("threads", "chunk", "batch", "isa", "without", "weights"):
        if run[axis] and run[axis] != DEFAULTS[axis]:
            args += ["--" + axis, str(run[axis])]
    return args


def affordable(run):
    """Portable f32 is slow on the real model, and the tiny models have it."""
    if run["isa"] == "c" and run["activations"] == "f32":
        return {**run, "isa": ""}
    return {**run, "batch": 1} if run["isa"] == "c" else run


answers = {}


def answer(run):
    """Hash of the run's question with everything else at its default, on one rank."""
    question = {**DEFAULTS, **{axis: run[axis] for axis in SUBJECT}}
    key = tuple(question[axis] for axis in SUBJECT)
    if key not in answers:
        answers[key] = t.stoa_json(*command(question))["hash"]
    return answers[key]


def name_of(run):
    return " ".join(f"{axis}={value}" for axis, value in run.items() if value != DEFAULTS[axis]) or "the default"


def check_run(run, group):
    r = t.stoa(*command(run), "--json")
    if r.code != 0:
        return t.check(f"{group}: {name_of(run)}", False, r)
    return t.equal(f"{group}: {name_of(run)}", r.json["hash"], answer(run))


def check_runs(runs, group):
    """Of tiny models, two at a time: half of what ranks take to start is waiting."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda run: t.each(lambda one: check_run(one, group), [run]), runs))


def values_once(model, length, **more):
    base = {**DEFAULTS, "model": model, "length": length, **more}
    return [run for axis, values in AXES.items() for run in ({**base, axis: value} for value in values[1:]) if possible(run)]


def possible(run):
    """What is not refused: a stage has a layer, a rank that shares experts has a mixture, gathered weights are spread over dp, heads
    are whole blocks of the cache.  A run may name some of the axes only."""
    layout, model = run.get("layout", ""), run.get("model")
    if run.get("kv") == "q8_0" and model and model not in WHOLE_BLOCKS:
        return False
    if not layout:
        return True
    if model and (sizes(layout).get("pp", 1) > n_layers(model) or "UNEVEN" in layout and n_layers(model) < 3):
        return False
    if model and layout in EXPERT_LAYOUTS and model not in MIXTURES:
        return False
    return run.get("weights") != "gathered" or sizes(layout).get("dp", 1) > 1


def allowed(run):
    """Leaves out what cannot be, and what would only take time: long prompts go through big chunks, on few ranks, alone."""
    if not possible(run):
        return False
    many = run.get("layout") and n_ranks(run["layout"]) >= 8
    if run.get("length", 0) > 100 and (run.get("chunk") in (1, 5) or run.get("batch", 1) > 1 or many):
        return False
    return True


def all_pairs(axes, seed):
    """A greedy covering array: every pair of values of two axes that allowed() permits, with some model, is in some run."""
    rng = random.Random(seed)
    names = list(axes)
    missing = {frozenset(((a, x), (b, y))) for a, b in itertools.combinations(names, 2) for x in axes[a] for y in axes[b]
               if any(allowed({"model": m, a: x, b: y}) for m in axes["model"])}
    runs = []
    while missing:
        best, best_gain = None, -1
        for _ in range(12):
            run = dict(rng.choice(sorted(missing, key=sorted_key)))
            for name in sorted(rng.sample(names, len(names)), key=lambda name: name != "model"):
                if name in run:
                    continue
                values = [v for v in rng.sample(axes[name], len(axes[name])) if allowed({**run, name: v})]
                run[name] = max(values, key=lambda v: sum(frozenset(((name, v), pair)) in missing for pair in run.items()))
            gain = sum(frozenset(pair) in missing for pair in itertools.combinations(run.items(), 2))
            if gain > best_gain:
                best, best_gain = run, gain
        missing -= {frozenset(pair) for pair in itertools.combinations(best.items(), 2)}
        runs.append({name: best[name] for name in names})
    return runs


def sorted_key(pair):
    return sorted((a, str(x)) for a, x in pair)


def seeded_mixes(n, seed, **fixed):
    rng = random.Random(seed)
    runs = []
    while len(runs) < n:
        run = {**DEFAULTS, **{axis: rng.choice(values) for axis, values in {**AXES, **SUBJECT}.items()}, **fixed}
        if allowed(run):
            runs.append(run)
    return runs
