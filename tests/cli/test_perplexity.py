#!/usr/bin/env python3
"""`stoa perplexity`: its windows and figures are those that `stoa logits` gives by hand."""
import array
import math
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import gguf_file as g
import stoa_test as t

TEXT = "".join(chr(32 + i * i * 7 % 90) for i in range(100))
FEW = ("--activations", "f32")


def model_and_text(folder):
    with open(os.path.join(folder, "text.txt"), "w") as f:
        f.write(TEXT)
    return t.tiny("tiny-f32"), f.name


def close(name, got, want):
    t.check(name, abs(got - want) <= 1e-7 * max(1, abs(want)), f"got {got}, wanted {want}")


def by_hand(model, text, window):
    """The losses of all predicted tokens, from `stoa tokenize` and `stoa logits`."""
    ids = t.stoa("tokenize", model, "--json", "-", input=text).json["tokens"]
    keys = g.read(model).keys
    begin = []
    if keys.get("tokenizer.ggml.add_bos_token", (0, b"\0"))[1] == b"\1":
        begin, ids = ids[:1], ids[1:]
    step, losses, n_windows = window - len(begin), [], 0
    for at in range(0, len(ids), step):
        part = begin + ids[at:at + step]
        if len(part) < 2:
            continue
        n_windows += 1
        positions = t.stoa("logits", model, "--tokens", ",".join(map(str, part)), "--all", "--top", 1 << 24, "--json", *FEW).json["positions"]
        for position, after in zip(positions, part[1:]):
            losses.append(position["logsumexp"] - next(x["logit"] for x in position["top"] if x["id"] == after))
    return losses, n_windows


def one_window(name, model, text, window):
    losses, n_windows = by_hand(model, TEXT, window)
    r = t.stoa_json("perplexity", model, text, "--window", window, *FEW)
    t.equal(f"{name}: what is predicted", (r["tokens"], r["windows"]), (len(losses), n_windows))
    mean = math.fsum(losses) / len(losses)
    close(f"{name}: mean loss", r["mean_loss"], mean)
    close(f"{name}: perplexity", r["perplexity"], math.exp(mean))
    variance = math.fsum((x - mean) ** 2 for x in losses) / len(losses)
    close(f"{name}: error of the mean", r["loss_error"], math.sqrt(variance / (len(losses) - 1)))
    again = t.stoa_json("perplexity", model, text, "--window", window, *FEW, "--threads", 3, "--chunk", 5)
    t.equal(f"{name}: the same for other threads and chunks", again, r)


def test_by_hand():
    if not t.have_tiny("perplexity"):
        return
    with tempfile.TemporaryDirectory() as d:
        model, text = model_and_text(d)
        for begin in (False, True):
            other = g.read(model).set("tokenizer.ggml.bos_token_id", g.U32, 1).set("tokenizer.ggml.add_bos_token", g.BOOL, begin)
            path = other.write(os.path.join(d, "model.gguf"))
            for window in (512, 33, 7):
                one_window(f"windows of {window}{', with a begin token' if begin else ''}", path, text, window)


def log_softmax(row):
    top = max(row)
    total = top + math.log(math.fsum(math.exp(x - top) for x in row))
    return [x - total for x in row]


def test_divergence():
    if not t.have_tiny("perplexity --against"):
        return
    with tempfile.TemporaryDirectory() as d:
        model, text = model_and_text(d)
        a, b = os.path.join(d, "a.bin"), os.path.join(d, "b.bin")
        other = os.path.join(d, "other.gguf")
        t.equal("another model", t.stoa("quantize", model, other, "--type", "Q4_0").code, 0)
        r = t.stoa_json("perplexity", model, text, *FEW, "--logits", a, "--window", 20)
        t.check("no divergence where none is asked for", not any("divergence" in key for key in r), r)
        same = t.stoa_json("perplexity", model, text, *FEW, "--against", a, "--window", 20)
        t.equal("from itself: nothing", [same[k] for k in ("mean_divergence", "max_divergence", "divergence_error", "same_likeliest")], [0, 0, 0, 1])
        got = t.stoa_json("perplexity", other, text, *FEW, "--against", a, "--logits", b, "--window", 20)
        rows = []
        for path in (a, b):
            with open(path, "rb") as f:
                values = array.array("f", f.read())
            n = len(values) // r["tokens"]
            rows.append([values[i * n:(i + 1) * n] for i in range(r["tokens"])])
        kl = [math.fsum(math.exp(q) * (q - p) for q, p in zip(log_softmax(x), log_softmax(y))) for x, y in zip(*rows)]
        t.check("the other differs", got["mean_divergence"] > 1e-6, got)
        close("mean divergence", got["mean_divergence"], math.fsum(kl) / len(kl))
        close("largest divergence", got["max_divergence"], max(kl))
        same = sum(max(range(n), key=x.__getitem__) == max(range(n), key=y.__getitem__) for x, y in zip(*rows))
        close("the same likeliest token", got["same_likeliest"], same / len(kl))
        os.symlink("a.bin", os.path.join(d, "link.bin"))
        for name in ("a.bin", "link.bin"):
            with open(a, "rb") as f:
                before = f.read()
            bad = t.stoa("perplexity", model, text, *FEW, "--against", a, "--logits", os.path.join(d, name), "--window", 20)
            with open(a, "rb") as f:
                t.check(f"--logits {name} is --against: refused, and it stays", bad.code == 2 and name in bad.err and f.read() == before, bad)
        absent = t.stoa("perplexity", model, text, *FEW, "--against", os.path.join(d, "absent"), "--logits", os.path.join(d, "c.bin"))
        t.check("no --against: no --logits is made", absent.code == 3 and not os.path.exists(os.path.join(d, "c.bin")), absent)
        for name, window, words in (("too few logits", 100, "fewer"), ("too many", 20, "more")):
            short = os.path.join(d, "short.bin")
            with open(a, "rb") as f, open(short, "wb") as out:
                out.write(f.read()[:-4] if words == "fewer" else f.read() + b"\0\0\0\0")
            bad = t.stoa("perplexity", model, text, *FEW, "--against", short, "--window", 20)
            t.check(f"{name}: refused", bad.code == 3 and words in bad.err and bad.out == "", bad)


def test_refused():
    if not t.have_tiny("perplexity of nothing"):
        return
    with tempfile.TemporaryDirectory() as d:
        model, text = model_and_text(d)
        empty = os.path.join(d, "empty.txt")
        open(empty, "w").close()
        for name, code, args in (("no text", 2, (model, empty)), ("no file", 3, (model, os.path.join(d, "absent"))), ("a folder", 3, (model, d)),
                                 ("no such --against", 3, (model, text, "--against", os.path.join(d, "absent"))),
                                 ("--logits where none can be", 1, (model, text, "--logits", "/nowhere/x"))):
            r = t.stoa("perplexity", *args)
            t.check(f"{name}: exit code {code}, one line", r.code == code and r.out == "" and r.err.count("\n") == 1, r)
        for name, target in (("the text", text), ("the model", os.path.join(d, "m.gguf"))):
            g.read(model).write(os.path.join(d, "m.gguf"))
            with open(target, "rb") as f:
                before = f.read()
            r = t.stoa("perplexity", os.path.join(d, "m.gguf"), text, "--logits", target)
            with open(target, "rb") as f:
                t.check(f"--logits is {name}: refused, and it stays", r.code == 2 and target in r.err and f.read() == before, r)
        noise = os.path.join(d, "noise.bin")
        with open(noise, "wb") as f:
            f.write(b"\xff" * (1 << 22))
        r = t.stoa("perplexity", model, text, "--against", noise)
        t.check("--against what is no logits: refused", r.code == 3 and "noise.bin" in r.err and r.out == "", r)
        full = t.stoa("perplexity", model, text, "--logits", "/dev/full")
        t.check("a full disk", full.code == 1 and "/dev/full" in full.err and full.out == "", full)


def test_a_step_that_fails():
    """One token of the text has an embedding that is not a number: no figure comes out of the other windows."""
    if not t.have_tiny("perplexity of a NaN"):
        return
    with tempfile.TemporaryDirectory() as d:
        model, text = model_and_text(d)
        ids = t.stoa("tokenize", model, "--json", "-", input=TEXT).json["tokens"]
        f, rare = g.read(model), next(x for x in ids[30:] if ids.count(x) == 1)
        embedding = f.tensors["token_embd.weight"]
        row = 4 * embedding.dims[0]
        data = bytearray(embedding.bytes)
        data[rare * row:rare * row + 4] = b"\0\0\xc0\x7f"
        f.tensors["token_embd.weight"] = g.Tensor(embedding.dims, embedding.type, bytes(data))
        f.write(os.path.join(d, "nan.gguf"))
        for layout in ("tp=1", "tp=2"):
            r = t.stoa("perplexity", os.path.join(d, "nan.gguf"), text, "--window", 16, "--layout", layout, *FEW)
            t.check(f"one window fails, {layout}: exit code 1 and why", r.code == 1 and "not a number" in r.err and r.out == "", r)


def test_layout():
    if not t.have_tiny("perplexity over ranks"):
        return
    with tempfile.TemporaryDirectory() as d:
        model, text = model_and_text(d)
        one, two = (t.stoa_json("perplexity", model, text, "--window", 40, "--layout", layout) for layout in ("tp=1", "pp=2,tp=2"))
        t.equal("the same on any layout", {**two, "layout": 0}, {**one, "layout": 0})


if __name__ == "__main__":
    t.run(globals())
