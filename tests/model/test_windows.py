#!/usr/bin/env python3
"""Sliding windows (MM-02, MM-03): which keys a query sees, by a plain forward pass in numpy and by equalities that hold bit for bit.

The models are tiny ones of Gemma 3 with other keys.  The tolerance of tests/golden: logits of the reference mode within 1e-4.
"""
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import gguf_file as gf
import stoa_test as t

TOLERANCE = 1e-4
N_LAYERS, WINDOW = 6, 8


def variant(folder, name, window, pattern=None, base="golden-gemma3"):
    """The tiny Gemma with this window and, when given, this list of which layers are local."""
    f = gf.read(t.tiny(base))
    f.set(".attention.sliding_window", gf.U32, window)
    if isinstance(pattern, list):
        f.set(".attention.sliding_window_pattern", (gf.BOOL, pattern))
    elif pattern is not None:
        f.set(".attention.sliding_window_pattern", gf.U32, pattern)
    return f.write(os.path.join(folder, name + ".gguf"))


def ids_of(n, vocab=512):
    return [(i * i * 7 + i * 31 + 5) % vocab for i in range(n)]


def logits(path, ids, *flags):
    """[position][id], exact: 9 digits are enough for a float."""
    r = t.stoa_json("logits", path, "--tokens", ",".join(map(str, ids)), "--all", "--top", "512", "--activations", "f32", *flags)
    rows = []
    for p in r["positions"]:
        row = [0.0] * len(p["top"])
        for entry in p["top"]:
            row[entry["id"]] = entry["logit"]
        rows.append(row)
    return rows


def answer(path, ids, *flags):
    return t.stoa_json("logits", path, "--tokens", ",".join(map(str, ids)), "--all", "--top", "1", *flags)["hash"]


def distance(a, b):
    return max(abs(x - y) for row, other in zip(a, b) for x, y in zip(row, other))


def references():
    """numpy and gguf are in the Python of scripts/test-python."""
    try:
        import reference
        return reference
    except ImportError as e:
        t.skip("the reference", f"run it by $(scripts/test-python): {e}")
        return None


def have_all(name):
    return t.have_tiny(name) and references() is not None


def test_seen_keys():
    """MM-02: prompts around a window of 8, and 30 tokens; one key more or fewer is seen to be another answer."""
    if not have_all("MM-02: seen keys"):
        return
    with tempfile.TemporaryDirectory() as folder:
        path = variant(folder, "window", WINDOW)
        right = references().Model(path)
        counts = right.sees(30, True).sum(1).tolist()
        t.equal("MM-02: the reference counts its keys", counts, [min(i + 1, WINDOW) for i in range(30)])
        t.equal("MM-02: every sixth layer sees all", right.local, [True] * 5 + [False])
        got = logits(path, ids_of(30))
        for n in (7, 8, 9, 30):
            near = distance(got[:n], right.logits(ids_of(n)))
            t.check(f"MM-02: {n} tokens behind a window of {WINDOW}", near < TOLERANCE, near)
        for window in (WINDOW - 1, WINDOW + 1):
            other = references().Model(path)
            other.window = window
            far = distance(got, other.logits(ids_of(30)))
            t.check(f"MM-02: a window of {window} is another answer", far > 100 * TOLERANCE, far)


def test_prefill_and_decode():
    """MM-02: the same bits whole, in chunks of 5, and token by token; then 20 decoded tokens are what a prefill of them says."""
    if not t.have_tiny("MM-02: prefill and decode"):
        return
    with tempfile.TemporaryDirectory() as folder:
        path = variant(folder, "window", WINDOW)
        for flags in ((), ("--activations", "f32")):
            for n in (7, 8, 9, 30):
                want = answer(path, ids_of(n), *flags)
                for more in (("--chunk", "5"), ("--chunk", "1"), ("--chunk", "5", "--layout", "pp=2,tp=2")) if n == 30 else (("--chunk", "5"),):
                    t.equal(f"MM-02: {n} tokens, {' '.join(more + flags)}", answer(path, ids_of(n), *flags, *more), want)
        for text in ("abc", "The river runs to the sea, and it is still day; the house is here."):
            prompt = t.stoa_json("tokenize", path, text)["tokens"]
            prompt = prompt if prompt[:1] == [0] else [0] + prompt
            for flags in ((), ("--chunk", "5")):
                r = t.stoa_json("run", path, "--raw", "-p", text, "-n", "20", "--ignore-eos", "--activations", "f32", *flags)
                t.equal(f"MM-02: {text[:9]!r}: tokens of the prompt", r["prompt_tokens"], len(prompt))
                rows = logits(path, prompt + r["tokens"])[len(prompt) - 1:-1]
                best = [max(range(len(row)), key=lambda i: row[i]) for row in rows]
                t.equal(f"MM-02: {text[:9]!r} {' '.join(flags)}: decoded is what a prefill says", r["tokens"], best)
                t.equal("MM-02: 20 tokens", len(r["tokens"]), 20)


def test_windows_that_cover_everything():
    """A window of at least the whole prompt hides nothing; with a RoPE of one base that is a model of full attention."""
    if not t.have_tiny("MM-02: windows that cover everything"):
        return
    with tempfile.TemporaryDirectory() as folder:
        def same_rope(name, window, pattern=None):
            f = gf.read(variant(folder, name, window, pattern))
            return f.set(".rope.freq_base_swa", gf.F32, 1e6).write(os.path.join(folder, name + ".gguf"))

        ids = ids_of(40)
        want = answer(same_rope("none", 0), ids)
        for window in (40, 41, 1024, 1 << 30):
            t.equal(f"MM-02: a window of {window} over 40 tokens", answer(same_rope("wide", window), ids), want)
        t.check("MM-02: a window of 39 over 40 tokens hides one key", answer(same_rope("narrow", 39), ids) != want)
        t.equal("MM-03: no layer is local", answer(same_rope("all", WINDOW, [False] * N_LAYERS), ids), want)


def test_patterns():
    """MM-03: the list of layers wins over the window; what lies beyond the window is seen where a layer is full."""
    if not have_all("MM-03: patterns"):
        return
    ids, window = ids_of(60), 16
    moved = [*ids[:3], (ids[3] + 100) % 512, *ids[4:]]      # another fact at token 3
    with tempfile.TemporaryDirectory() as folder:
        for name, pattern, last_sees in (
                ("all full", [False] * N_LAYERS, True), ("every second full", [True, False] * (N_LAYERS // 2), True),
                ("all local but the first", [False] + [True] * (N_LAYERS - 1), True), ("by number: every third full", 3, True),
                ("by number: each full", 1, True), ("none full, three local layers", [True] * N_LAYERS, None)):
            path = variant(folder, "pattern", window, pattern)
            model = references().Model(path)
            got = logits(path, ids)
            near = distance(got, model.logits(ids))
            t.check(f"MM-03: {name}: as the reference", near < TOLERANCE, near)
            t.equal(f"MM-03: {name}: chunks of 5", answer(path, ids, "--chunk", "5"), answer(path, ids))
            if last_sees is not None:
                t.check(f"MM-03: {name}: the last token sees the third", distance(logits(path, moved)[-1:], got[-1:]) > TOLERANCE)
        path = variant(folder, "near", 8, [True] * N_LAYERS)        # 6 layers reach back 6 * 7 positions
        a, b = logits(path, ids), logits(path, moved)
        t.equal("MM-02: nothing reaches further than its windows", a[3 + 6 * 7 + 1:], b[3 + 6 * 7 + 1:])
        t.check("MM-02: and all layers together reach as far", a[3 + 6 * 7] != b[3 + 6 * 7])


def test_caps():
    """Soft-caps with a window, against the reference: Q8_0 weights are exact in both."""
    if not have_all("caps"):
        return
    path, ids = t.tiny("tiny-gemma3-caps"), ids_of(40, 301)
    near = distance(logits(path, ids), references().Model(path).logits(ids))
    t.check("caps of attention and of logits: as the reference", near < TOLERANCE, near)


if __name__ == "__main__":
    t.run(globals())
