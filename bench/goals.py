"""goals.py: `bench/compare --goals`: the table of what Stoa is to reach against llama.cpp, measured.

A round measures a test with one engine and then with the other.  A figure is the ratio of what both show in the same round: Stoa's tokens
per second, seconds or bytes over llama.cpp's; its median is held against the goal.

decode      one sequence from one token on.  The goal counts as met, too, where Stoa reads at 92 % of the speed at which these cores
            read a buffer as large as the weights, as `stoa bench --roofline` finds right after: then the machine is the limit
together    16 sequences decode together, a token of each in a step
prefill     512 tokens, until the logits of the last are there
kept        what is left of decode while another process is busy on the first core; the peer's stands beside it
first       from the start of the process to the first token, file in the page cache (the peer's without Python and its imports)
again       first, where an earlier start has left its packed weights (--packed-cache)
memory      the most that this process holds, the peer's without Python and its imports; a context of CONTEXT tokens for both
quality     mean KL divergence from Stoa's f32 mode, as bench/quality measures it, over a few prompts

The machine's share is of the read bandwidth for decode, of the peak of operations for prefill."""
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

from measure import (CACHE, HERE, PROMPT, Others, log, machine, print_table, round_digits, stoa_bench, stoa_first_token,
                     wait_for_calm)
import files
import peer

CONTEXT = 2048
SEQUENCES = 16
BANDWIDTH_SHARE = 0.92

# figure: what the table calls it, and whether the goal is the least ratio or the greatest
FIGURES = {
    "decode":   ("decode, 1 sequence", "at least"),
    "together": (f"decode, {SEQUENCES} sequences", "at least"),
    "prefill":  ("prefill of 512", "at least"),
    "kept":     ("decode kept beside a busy core", "at least"),
    "first":    ("load to first token", "at most"),
    "again":    ("load to first token, packed cache", "at most"),
    "memory":   ("peak memory", "at most"),
    "quality":  ("KL divergence from f32", "at most"),
}
COMMON = {"first": 0.7, "memory": 1.0}


def random_of(kind, shape="tinyllama-1.1b"):
    return lambda: files.random_file(shape, kind)


def real(name):
    return lambda: files.real_file(name)


# model: its file, tokens of a decode test, and goals; None is measured without one
MODELS = {
    "SmolLM2-135M Q4_1": (real("smollm2"), 128,
                          {"decode": 2.0, "prefill": 4.0, "together": 2.5, "kept": 0.5, "quality": None, "again": None, **COMMON}),
    "Gemma 3 270M Q4_K_M": (real("gemma3-270m"), 64, {"decode": 1.5, "prefill": 2.5, **COMMON}),
    "1.1B Q4_0": (random_of("Q4_0"), 48, {"decode": 1.2, "prefill": 2.0, "together": 2.0, "kept": 0.5, "again": None, **COMMON}),
    "1.1B Q4_K": (random_of("Q4_K"), 48, {"decode": 1.2, "prefill": 2.0, **COMMON}),
    "1.1B Q8_0": (random_of("Q8_0"), 32, {"decode": 1.1, "prefill": 2.5, **COMMON}),
    "1.1B F16": (random_of("F16"), 24, {"decode": 1.05, "prefill": 1.05, "again": None, **COMMON}),
    "1.1B BF16": (random_of("BF16"), 24, {"decode": 1.2, "prefill": 1.4, **COMMON}),
    "mixture 7.6B Q4_0": (random_of("Q4_0", "qwen3-30b-a3b-quarter"), 32,
                          {"decode": None, "prefill": None, "together": None, "first": None, "memory": None}),
}


@contextlib.contextmanager
def busy_core(core):
    process = subprocess.Popen([sys.executable, "-c", f"import os\nos.sched_setaffinity(0, {{{core}}})\nwhile True: pass"])
    try:
        time.sleep(0.2)
        yield
    finally:
        process.kill()
        process.wait()


class Model:
    """A model with both engines; the peer's processes live as long as it."""

    def __init__(self, o, name):
        self.o, self.name = o, name
        make, self.n_tokens, self.goals = MODELS[name]
        self.path = make()
        files.warm(self.path)
        self.peers, self.packed = {}, None

    def close(self):
        for one in self.peers.values():
            one.close()
        if self.packed:
            self.packed.cleanup()

    def peer(self, sequences):
        if sequences not in self.peers:
            context = 768 if sequences == 1 else 256
            self.peers[sequences] = peer.Peer(self.path, self.o.threads, context, self.o.plain, sequences)
        return self.peers[sequences]

    def speed(self, figure, engine, n_tokens, sequences=1):
        """Tokens per second, and Stoa's share of what the machine can."""
        is_prefill = figure == "prefill"
        if engine == "peer":
            answer = self.peer(sequences).ask(test="prefill" if is_prefill else "decode", tokens=n_tokens)
            return {figure: n_tokens * sequences / answer["seconds"]}
        flags = ("--prompt", n_tokens, "--generate", 0) if is_prefill else ("--prompt", 0, "--generate", n_tokens, "--batch", sequences)
        answer = stoa_bench(self.o.stoa, self.path, *map(str, flags), "--threads", str(self.o.threads), "--roofline")["results"][0]
        return {figure: answer["tokens_per_s"]["median"], "share": answer["roofline"]["compute_share" if is_prefill else "read_share"]}

    # Each test gives its figures with one engine.
    def decode(self, engine):
        return self.speed("decode", engine, self.n_tokens)

    def together(self, engine):
        return self.speed("together", engine, max(self.n_tokens // 2, 16), SEQUENCES)

    def prefill(self, engine):
        return self.speed("prefill", engine, 512)

    def kept(self, engine):
        n_tokens = self.n_tokens // 2
        calm = self.speed("kept", engine, n_tokens)["kept"]
        with busy_core(min(os.sched_getaffinity(0))):
            return {"kept": self.speed("kept", engine, n_tokens)["kept"] / calm}

    def first_token(self, *flags):
        return stoa_first_token(self.o.stoa, self.path, "--threads", str(self.o.threads), "--context", str(CONTEXT), *flags)

    def first(self, engine):
        if engine == "peer":
            answer = peer.first_token(self.path, self.o.threads, PROMPT, self.o.plain, CONTEXT)
            return {"first": answer["seconds"], "memory": answer["peak_bytes"] - answer["import_bytes"]}
        seconds, peak = self.first_token()
        return {"first": seconds, "memory": peak}

    def again(self, engine):
        if engine == "peer":
            return {"again": self.first("peer")["first"]}
        if not self.packed:
            self.packed = tempfile.TemporaryDirectory(prefix="packed-", dir=CACHE)
            self.first_token("--packed-cache", self.packed.name)
        return {"again": self.first_token("--packed-cache", self.packed.name)[0]}

    def quality(self):
        flags = ("--json", "--prompts", str(self.o.prompts), "--threads", str(self.o.threads), "--stoa", self.o.stoa)
        answer = json.loads(files.output_of(os.path.join(HERE, "quality"), self.path, *flags))
        return {engine: {"quality": answer[engine]["mean"]} for engine in ("stoa", "peer")}


TESTS = {"decode": Model.decode, "together": Model.together, "prefill": Model.prefill, "kept": Model.kept, "first": Model.first,
         "again": Model.again}


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "n": len(values)}


def row_of(model, figure, rounds):
    """rounds: [{"stoa": figures, "peer": figures, "others": cores}]"""
    title, sense = FIGURES[figure]
    stoa, other = ([r[engine][figure] for r in rounds] for engine in ("stoa", "peer"))
    ratio = spread(stoa if figure == "kept" else [s / p for s, p in zip(stoa, other)])
    shares = [r["stoa"]["share"] for r in rounds if "share" in r["stoa"]]
    row = {"figure": figure, "title": title, "model": model.name, "goal": model.goals[figure], "sense": sense, "ratio": ratio,
           "stoa": spread(stoa), "peer": spread(other), "share": spread(shares) if shares else None,
           "others": statistics.median(r.get("others", 0) for r in rounds)}
    return {**row, "met": is_met(row)}


def is_met(row):
    if row["goal"] is None:
        return None
    if row["sense"] == "at most":
        return row["ratio"]["median"] <= row["goal"]
    at_the_limit = row["figure"] == "decode" and row["share"]["median"] >= BANDWIDTH_SHARE
    return row["ratio"]["median"] >= row["goal"] or at_the_limit


def measure_round(o, model, test, backwards):
    result = {}
    others = []
    for engine in ("peer", "stoa") if backwards else ("stoa", "peer"):
        time.sleep(o.pause)
        wait_for_calm(o.calm)
        before = Others(lambda: 0)              # just now: while it runs, its own work and the busy core's would count
        time.sleep(0.1)
        others.append(before.cores())
        result[engine] = TESTS[test](model, engine)
    return {**result, "others": max(others)}


def shown(result):
    return ", ".join(f"{engine} " + " ".join(f"{k} {v:.4g}" for k, v in result[engine].items()) for engine in ("stoa", "peer"))


def wanted_tests(o, name):
    """Tests whose figures --only asks for; memory comes with first."""
    figures = [f for f in FIGURES if f in MODELS[name][2] and re.search(o.only, f"{f} {name}", re.IGNORECASE)]
    return figures, [t for t in TESTS if t in figures or t == "first" and "memory" in figures]


def measure_model(o, name):
    figures, tests = wanted_tests(o, name)
    if not figures:
        return []
    rounds = {test: [] for test in tests}
    with contextlib.closing(Model(o, name)) as model:
        for i in range(o.rounds if tests else 0):
            for test in tests:
                rounds[test].append(measure_round(o, model, test, i % 2))
                log(f"{name}: round {i + 1} of {o.rounds}, {test}: {shown(rounds[test][-1])}")
    if "quality" in figures:
        rounds["quality"] = [model.quality()]
    rounds["memory"] = rounds.get("first")
    return [row_of(model, figure, rounds[figure]) for figure in figures]


def amount(row, engine):
    value = row[engine]["median"]
    seconds = f"{value:.3f} s"
    shapes = {"first": seconds, "again": seconds, "memory": f"{value / 1e6:.0f} MB", "quality": f"{value:.3g}", "kept": f"{value:.2f}"}
    return shapes.get(row["figure"], f"{value:.1f}/s")


def report(answer):
    table = [["figure", "model", "goal", "median", "least", "greatest", "met", "of the machine", "stoa", "llama.cpp", "others"]]
    for row in answer["rows"]:
        goal = "-" if row["goal"] is None else f"{row['sense']} {row['goal']:g}"
        met = {None: "-", True: "yes", False: "no"}[row["met"]]
        share = f"{100 * row['share']['median']:.0f} %" if row["share"] else "-"
        table.append([row["title"], row["model"], goal] + [f"{row['ratio'][k]:.2f}" for k in ("median", "min", "max")]
                     + [met, share, amount(row, "stoa"), amount(row, "peer"), f"{row['others']:.1f}"])
    plain = ", plain" if answer["plain"] else ""
    print(f"{answer['threads']} threads, {answer['machine']}, {answer['rounds']} rounds, {answer['peer']}{plain}\n")
    print_table(table)
    goals = [row["met"] for row in answer["rows"] if row["met"] is not None]
    print(f"\n{sum(goals)} of {len(goals)} goals are met.  Figures are Stoa's over llama.cpp's; \"kept\" is Stoa's own.")


def run(o):
    """Measures, writes o.out after each model, and reports."""
    answer = {"machine": machine(), "threads": o.threads, "rounds": o.rounds, "peer": peer.PACKAGE, "plain": o.plain, "rows": []}
    for name in MODELS:
        answer["rows"] += measure_model(o, name)
        if o.out:
            with open(o.out, "w") as f:
                json.dump(round_digits(answer), f)
    if o.json:
        print(json.dumps(round_digits(answer)))
    else:
        report(answer)
