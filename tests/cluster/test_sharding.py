#!/usr/bin/env python3
"""Faults of sharding seen in the field (PL-*, NM-*): shapes that ranks do not divide, padding, ties, stages, what each rank holds."""
import importlib.util
import math
import os
import signal
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from job import Job, t

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models"))
import gguf_file as gf

PROMPT = "The river runs to the sea"


def makers():
    """tests/models/make_models.py, where gguf and numpy are: in the Python of scripts/test-python."""
    if importlib.util.find_spec("gguf") is None:
        t.skip("made models", "run it by $(scripts/test-python)")
        return None
    import make_models
    return make_models


def make(folder, **shape):
    m = makers()
    path = os.path.join(folder, "made.gguf")
    m.write(path, "made", m.Shape(**shape), m.T.F16, 1)
    return path


def ids_of(n, vocab=301):
    return ",".join(str((i * i * 7 + i * 31 + 5) % vocab) for i in range(n))


def answer(path, *flags, ids=None):
    return t.stoa_json("logits", path, "--tokens", ids or ids_of(24), "--all", "--top", "1", *flags)["hash"]


def tokens(path, *flags, n=20):
    return t.stoa_json("run", path, "--raw", "-p", PROMPT, "-n", n, "--ignore-eos", *flags)["tokens"]


# ---- shapes ----
def test_heads_that_ranks_do_not_divide():
    """PL-01: 6 heads on 4 ranks, 12 on 8: an uneven split works and is the answer of one rank."""
    if not t.have_tiny("PL-01") or not makers():
        return
    t.equal("PL-01: 6 heads on 4 ranks", answer(t.tiny("tiny-q8_0"), "--layout", "tp=4"), answer(t.tiny("tiny-q8_0")))
    with tempfile.TemporaryDirectory() as folder:
        path = make(folder, dim=64, heads=12, head_dim=8, kv_heads=4, ffn=172, layers=2)
        t.equal("PL-01: 12 heads on 8 ranks", answer(path, "--layout", "tp=8"), answer(path))


def padded(path, n_ids, n_rows=320):
    """A tokenizer of n_ids for n_rows of the vocabulary.  The rows beyond have the largest logits, so only a rule keeps them out."""
    f, dim = gf.read(t.tiny("tiny-f32")), 64
    _, data = f.keys["tokenizer.ggml.tokens"]
    pieces, at = [], 12
    for _ in range(n_ids):
        end = gf.skip(data, at, gf.STRING)
        pieces.append(data[at + 8:end])
        at = end
    f.set("tokenizer.ggml.tokens", (gf.STRING, pieces))
    f.set("tokenizer.ggml.token_type", (gf.I32, [3, 3, 3] + [1] * (n_ids - 3)))
    f.set("tokenizer.ggml.merges", (gf.STRING, ["\u0120 t"] if n_ids > 259 else []))
    f.set(".vocab_size", gf.U32, n_rows)
    for name in ("token_embd.weight", "output.weight"):
        rows = f.floats(name)
        rows = rows[:n_ids * dim] + [3 * x for x in rows[:(n_rows - n_ids) * dim]]
        f.put(name, (dim, n_rows), rows)
    return f.write(path)


def test_padded_vocabulary():
    """PL-05: 290 ids for 320 rows; and 200, where the last of four ranks has none that can be picked."""
    if not t.have_tiny("PL-05"):
        return
    samplers = ((), ("--temp", "1"), ("--temp", "3", "--top-k", "150"), ("--temp", "2", "--top-p", "0.95"))
    with tempfile.TemporaryDirectory() as folder:
        for n_ids, layouts in ((290, ("tp=1", "tp=2")), (200, ("tp=1", "tp=4"))):
            path, want = padded(os.path.join(folder, "padded.gguf"), n_ids), {}
            for layout in layouts:
                name = f"PL-05: {n_ids} ids for 320 rows, {layout}"
                r = t.stoa_json("logits", path, "--tokens", ids_of(24, n_ids), "--all", "--top", "320", "--layout", layout)
                for p in r["positions"]:
                    t.equal(f"{name}: every id that there is", sorted(e["id"] for e in p["top"]), list(range(n_ids)))
                t.equal(f"{name}: the hash of all rows", r["hash"], want.setdefault("hash", r["hash"]))
                mass = [sum(math.exp(e["logit"] - p["logsumexp"]) for e in p["top"]) for p in r["positions"]]
                t.check(f"{name}: the rows beyond have most of the mass", min(mass) < 0.1 and sum(mass) / len(mass) < 0.5, mass)
                for flags in samplers:
                    r = t.stoa_json("run", path, "--raw", "-p", "=>>", "-n", "40", "--ignore-eos", "--layout", layout, *flags)
                    t.check(f"{name} {' '.join(flags)}: no id beyond", len(r["tokens"]) == 40 and max(r["tokens"]) < n_ids, r["tokens"])
                    t.equal(f"{name} {' '.join(flags)}: the same", r["tokens"], want.setdefault(flags, r["tokens"]))


def test_ties():
    """NM-06: the largest logits are exactly equal, in slices of different ranks: the lowest id, on every number of ranks."""
    if not t.have_tiny("NM-06"):
        return
    f, dim = gf.read(t.tiny("tiny-f32")), 64
    rows = f.floats("output.weight")
    kept = {low: rows[low * dim:(low + 1) * dim] for low in (17, 99)}
    kept[60], kept[40] = [-x for x in kept[17]], [-x for x in kept[99]]         # one of the four is always above 0
    rows = [0.01 * x for x in rows]     # and nobody else is near
    for low in kept:
        for at in (low, low + 101, low + 200):          # where other ranks are
            rows[at * dim:(at + 1) * dim] = kept[low]
    f.put("output.weight", (dim, 301), rows)
    with tempfile.TemporaryDirectory() as folder:
        path, want = f.write(os.path.join(folder, "ties.gguf")), None
        for layout, seed in (("tp=1", 0), ("tp=1", 5), ("tp=2", 1), ("tp=4", 2), ("tp=8", 3), ("dp=2,tp=2", 4)):
            got = tokens(path, "--temp", "0", "--seed", seed, "--layout", layout, n=40)
            want = want or got
            t.equal(f"NM-06: {layout}, seed {seed}", got, want)
        t.check("NM-06: only the lowest of equals", set(want) <= set(kept) and len(set(want)) > 1, want)
        top = t.stoa_json("logits", path, "--tokens", "1,2,3", "--top", "3", "--layout", "tp=4")["positions"][0]["top"]
        t.check("NM-06: three are equal", len({e["logit"] for e in top}) == 1 and [e["id"] - top[0]["id"] for e in top] == [0, 101, 200], top)


# ---- stages ----
def test_stages():
    """PL-07: more stages than layers are refused with both numbers.  PL-08: 38 layers on 8 stages differ by at most one.
    PL-09: a tied embedding on several stages."""
    if not t.have_tiny("stages") or not makers():
        return
    with tempfile.TemporaryDirectory() as folder:
        path = make(folder, dim=64, heads=8, head_dim=8, ffn=172, layers=2)
        r = t.stoa("logits", path, "--tokens", "1,2", "--layout", "pp=3")
        t.check("PL-07: 2 layers on 3 stages", r.code == 2 and r.err.count("\n") == 1 and "pp=3" in r.err and "2" in r.err.replace("pp=3", "") and not r.out, r)
        t.equal("PL-07: 2 layers on 2 stages", answer(path, "--layout", "pp=2"), answer(path))
        path = make(folder, dim=32, heads=4, head_dim=8, ffn=32, layers=38)
        ranks = t.stoa_json("inspect", path, "--layout", "pp=8")["ranks"]
        layers = [r["kv_bytes_per_token"] // (2 * 2 * 8 * 2) for r in ranks]
        t.check("PL-08: 38 layers on 8 stages", sum(layers) == 38 and max(layers) - min(layers) == 1, layers)
    f = gf.read(t.tiny("tiny-mixed"))
    t.check("PL-09: the file has no output matrix", "output.weight" not in f.tensors)
    for layout in ("pp=2", "pp=3"):
        t.equal(f"PL-09: a tied embedding, {layout}", answer(t.tiny("tiny-mixed"), "--layout", layout), answer(t.tiny("tiny-mixed")))
    for flags in ((), ("--temp", "1", "--seed", "3")):
        t.equal(f"PL-18: 20 tokens on 2 stages {' '.join(flags)}", tokens(t.tiny("tiny-mixed"), "--layout", "pp=2", *flags), tokens(t.tiny("tiny-mixed"), *flags))


def test_large_activations():
    """PL-17: 4 MB go from stage to stage, several plans at once, while results and plans go the other ways."""
    if not t.have_tiny("PL-17") or not makers():
        return
    with tempfile.TemporaryDirectory() as folder:
        path = make(folder, dim=2048, heads=2, head_dim=8, kv_heads=1, ffn=32, layers=4)
        flags = ("--batch", "6", "--chunk", "512", "--context", "1024")
        t.equal("PL-17: 4 stages", answer(path, "--layout", "pp=4", *flags, ids=ids_of(512)), answer(path, "--chunk", "512", ids=ids_of(512)))


# ---- memory ----
def private_bytes(pid):
    with open(f"/proc/{pid}/smaps_rollup") as f:
        return sum(int(line.split()[1]) << 10 for line in f if line.startswith(("Private_Clean", "Private_Dirty")))


def test_memory_of_each_rank():
    """PL-12: of 98 MB of weights each of 4 ranks has about a quarter in memory of its own; the embedding, which is tied, is in them as
    the head, and its rows are looked up in pages of the file that all share."""
    if not t.have_model("PL-12"):
        return
    size = os.path.getsize(t.MODEL)
    with Job("run", t.MODEL, "--raw", "-p", "Once upon a time", "-n", "5000", "--ignore-eos", "--layout", "tp=4", "--context", "512") as job:
        begun = job.process.stdout.read(20)
        ranks = [job.rank(i) for i in range(4)]
        if not t.check("PL-12: it runs", len(begun) == 20 and all(ranks), ranks):
            return
        private = [private_bytes(pid) for pid in ranks]
        job.process.send_signal(signal.SIGTERM)         # what is killed can not take away its shared memory
        job.end("PL-12", (128 + signal.SIGTERM, -signal.SIGTERM))
    t.check("PL-12: memory of each rank's own", all(0.15 * size < b < 0.5 * size for b in private), (private, size))
    t.check("PL-12: of all together", sum(private) < 1.8 * size, (private, size))


if __name__ == "__main__":
    t.run(globals())
