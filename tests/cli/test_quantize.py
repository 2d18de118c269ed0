#!/usr/bin/env python3
"""`stoa quantize`: which tensor gets which type, that nothing else changes, and that a run that fails leaves nothing."""
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import gguf_file as g
import stoa_test as t

NUMBER = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "Q2_K": 10, "Q3_K": 11, "Q4_K": 12, "Q5_K": 13, "Q6_K": 14,
          "IQ4_NL": 20, "IQ4_XS": 23, "BF16": 30}
FILE_TYPE = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q2_K": 10, "Q3_K": 11, "Q4_K": 14, "Q5_K": 16, "Q6_K": 18,
             "IQ4_NL": 25, "IQ4_XS": 30, "BF16": 32}
SMALL_BLOCKS = {"Q2_K": "IQ4_NL", "Q3_K": "IQ4_NL", "IQ4_XS": "IQ4_NL", "Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}
FEW_BITS = {"Q2_K", "Q3_K", "Q4_K", "Q5_K", "IQ4_XS", "IQ4_NL", "Q4_0", "Q4_1", "Q5_0", "Q5_1"}

# name: dims.  Those that stay come first.
KEPT = {"blk.0.attn_norm.weight": (512,), "blk.0.attn_q.bias": (512,), "blk.0.ffn_gate_inp.weight": (512, 4), "blk.0.two_norm.weight": (512, 2),
        "blk.0.row.weight": (512, 1)}
WIDE = {"blk.0.attn_q.weight": (512, 6), "blk.0.ffn_down_exps.weight": (256, 5, 3), "token_embd.weight": (512, 7)}
NARROW = {"blk.0.attn_k.weight": (96, 3)}
ODD = {"blk.0.attn_v.weight": (50, 3)}
HEAD = {"output.weight": (512, 7)}


class Folder:
    def __enter__(self):
        self.path = tempfile.mkdtemp(prefix="stoa-test-")
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.path)

    def __truediv__(self, name):
        return os.path.join(self.path, name)

    @property
    def files(self):
        return sorted(os.listdir(self.path))


def source(path, *shapes, seed=1):
    draw = random.Random(seed)
    f = g.File()
    f.set("general.architecture", g.STRING, "llama").set("words", (g.STRING, ["a", "", "b" * 300])).set("scores", (g.F32, [0.5, -1.0]))
    f.set("general.file_type", g.U32, 1).set("last", g.BOOL, True)
    for shape in shapes:
        for name, dims in shape.items():
            n = 1
            for d in dims:
                n *= d
            f.put(name, dims, [draw.gauss(0, 0.05) for _ in range(n)])
    f.write(path)
    return f


def everything(path):
    return source(path, KEPT, WIDE, NARROW, ODD, HEAD)


def quantize(*args, **more):
    return t.stoa("quantize", *args, **more)


def expected(name, dims, kind, pure):
    if name in KEPT:
        return "F32"
    kind = "Q6_K" if name in HEAD and kind in FEW_BITS and not pure else kind
    if dims[0] % g.BLOCK[NUMBER[kind]][0]:
        kind = SMALL_BLOCKS.get(kind, kind)
    return kind if dims[0] % g.BLOCK[NUMBER[kind]][0] == 0 else "F32"


def test_types():
    with Folder() as d:
        f = everything(d / "in.gguf")
        for kind in NUMBER:
            for pure in (False, True):
                name = f"{kind}{', pure' if pure else ''}"
                r = quantize(d / "in.gguf", d / "out.gguf", "--type", kind.lower(), "--force", *["--pure"] * pure)
                if not t.check(f"{name}: done", r.code == 0 and r.err == "", r):
                    continue
                out = g.read(d / "out.gguf")
                t.equal(f"{name}: tensors, in order", [(n, x.dims) for n, x in out.tensors.items()], [(n, x.dims) for n, x in f.tensors.items()])
                t.equal(f"{name}: types", {n: x.type for n, x in out.tensors.items()},
                        {n: NUMBER[expected(n, x.dims, kind, pure)] for n, x in f.tensors.items()})
                t.equal(f"{name}: what stays is the same", [n for n in f.tensors if out.tensors[n].type == 0 and out.tensors[n].bytes != f.tensors[n].bytes], [])
                f.set("general.file_type", g.U32, FILE_TYPE[kind]).set("general.quantization_version", g.U32, 2)
                t.equal(f"{name}: metadata, in order", list(out.keys.items()), list(f.keys.items()))
                t.check(f"{name}: the types are named", all(k in r.out for k in {expected(n, x.dims, kind, pure) for n, x in f.tensors.items()}), r.out)


def test_tied():
    with Folder() as d:
        source(d / "in.gguf", KEPT, WIDE)
        quantize(d / "in.gguf", d / "out.gguf", "--type", "Q4_K")
        out = g.read(d / "out.gguf")
        t.equal("without output.weight the embedding gives the logits", out.tensors["token_embd.weight"].type, NUMBER["Q6_K"])
        t.equal("other matrices", out.tensors["blk.0.attn_q.weight"].type, NUMBER["Q4_K"])


def test_columns():
    """Of an embedding that gives the logits too, columns with large weights lose less: they are large in every hidden state."""
    with Folder() as d:
        draw = random.Random(3)
        values = [draw.gauss(0, 1) + (4 if i % 256 == 37 else 0) for i in range(256 * 64)]
        errors = []
        for tied in (False, True):
            f = g.File().set("general.architecture", g.STRING, "llama").put("token_embd.weight", (256, 64), values)
            if not tied:
                f.put("output.weight", (256, 64), values)
            f.write(d / "in.gguf")
            quantize(d / "in.gguf", d / "out.gguf", "--type", "Q4_0", "--pure", "--force")
            quantize(d / "out.gguf", d / "plain.gguf", "--type", "F32", "--force")
            got = g.read(d / "plain.gguf").floats("token_embd.weight")
            errors.append(sum((x - y) ** 2 for i, (x, y) in enumerate(zip(got, values)) if i % 256 == 37))
        t.check("the large column", errors[1] < 0.7 * errors[0], errors)


def test_threads():
    with Folder() as d:
        everything(d / "in.gguf")
        for kind in ("Q4_K", "Q4_0", "F16"):
            files = []
            for n in (1, 2, 5):
                t.equal(f"{kind}, {n} threads", quantize(d / "in.gguf", d / f"{n}.gguf", "--type", kind, "--threads", n, "--force").code, 0)
                with open(d / f"{n}.gguf", "rb") as f:
                    files.append(f.read())
            t.check(f"{kind}: the same bytes for any number of threads", files[0] == files[1] == files[2])


def test_same_type():
    """A tensor that has its type already is copied; f16 and f32 hold every block type but for the rounding of f16."""
    with Folder() as d:
        everything(d / "in.gguf")
        quantize(d / "in.gguf", d / "a.gguf", "--type", "Q4_K", "--pure")
        quantize(d / "a.gguf", d / "b.gguf", "--type", "Q4_K", "--pure")
        a, b = g.read(d / "a.gguf"), g.read(d / "b.gguf")
        t.equal("copied", [n for n in a.tensors if a.tensors[n].type == NUMBER["Q4_K"] and a.tensors[n] != b.tensors[n]], [])
        r = quantize(d / "a.gguf", d / "c.gguf", "--type", "Q8_0")
        t.check("a second loss is told", r.code == 0 and "lose a second time" in r.err, r)
        r = quantize(d / "in.gguf", d / "d.gguf", "--type", "Q8_0")
        t.check("a first one is not", r.code == 0 and r.err == "", r)


def test_split():
    if not t.have_tiny("quantize a split model"):
        return
    with Folder() as d:
        r = quantize(t.tiny("tiny-split"), d / "out.gguf", "--type", "F32")
        t.equal("three parts become one file", (r.code, d.files), (0, ["out.gguf"]))
        t.check("it says nothing of parts", not any(k.startswith("split.") for k in g.read(d / "out.gguf").keys))
        ids = ("--tokens", "1,2,3,4,5", "--all", "--activations", "f32", "--json")
        want, got = (t.stoa("logits", m, *ids).json["hash"] for m in (t.tiny("tiny-split"), d / "out.gguf"))
        t.equal("the same logits", got, want)


def test_runs():
    """What was written is a model, for every type."""
    if not t.have_tiny("run what was quantized"):
        return
    with Folder() as d:
        for kind in NUMBER:
            r = quantize(t.tiny("tiny-f32"), d / "out.gguf", "--type", kind, "--force")
            got = t.stoa("logits", d / "out.gguf", "--tokens", "1,2,3", "--activations", "f32")
            t.check(f"{kind}: runs", r.code == 0 and got.code == 0, got)


def refused(name, d, code, words, *args, **more):
    before = d.files
    r = quantize(*args, **more)
    t.check(f"{name}: exit code {code}", r.code == code and r.out == "", r)
    t.check(f"{name}: says so in one line", r.err.count("\n") == 1 and all(w in r.err for w in words), r.err)
    t.equal(f"{name}: leaves nothing", d.files, before)


def start_of(path, n):
    with open(path, "rb") as f:
        return f.read(n)


def test_refused():
    with Folder() as d:
        source(d / "in.gguf", WIDE)
        model, out, kind = d / "in.gguf", d / "out.gguf", ("--type", "Q4_K")
        with open(model, "rb") as f:
            whole = f.read()
        refused("no type", d, 2, ["--type", "Q4_K", "Q6_K"], model, out)
        refused("no such type", d, 2, ["Q9_Z", "IQ4_NL"], model, out, "--type", "Q9_Z")
        refused("a type that is not written", d, 2, ["MXFP4"], model, out, "--type", "MXFP4")
        refused("no OUT", d, 2, ["OUT"], model, *kind)
        refused("no IN", d, 3, ["absent.gguf"], d / "absent.gguf", out, *kind)
        refused("OUT is IN", d, 2, [model], model, model, *kind, "--force")
        os.symlink("in.gguf", d / "symbolic.gguf")
        os.link(model, d / "hard.gguf")
        refused("OUT leads to IN", d, 2, ["symbolic.gguf"], model, d / "symbolic.gguf", *kind, "--force")
        refused("OUT is IN under another name", d, 2, ["hard.gguf"], model, d / "hard.gguf", *kind, "--force")
        refused("OUT is a folder", d, 2, [d.path], model, d.path, *kind, "--force")
        refused("OUT is in no folder", d, 1, ["nowhere"], model, d / "nowhere/out.gguf", *kind)
        refused("OUT is where nobody can write", d, 1, ["/proc/out.gguf"], model, "/proc/out.gguf", *kind)
        refused("no room", d, 1, ["no room", out], model, out, *kind, command=("bash", "-c", 'ulimit -f 1; exec "$0" "$@"'))
        with open(d / "cut.gguf", "wb") as f:
            f.write(whole[:-100])
        refused("IN is cut short", d, 3, ["cut.gguf"], d / "cut.gguf", out, *kind)
        with open(out, "w") as f:
            f.write("precious")
        refused("OUT is there", d, 2, [out], model, out, *kind)
        with open(out) as f:
            t.equal("OUT is as it was", f.read(), "precious")
        t.check("IN is as it was", start_of(model, len(whole) + 1) == whole)
        t.equal("--force", (quantize(model, out, *kind, "--force").code, start_of(out, 4)), (0, b"GGUF"))


def test_bad_weights():
    with Folder() as d:
        f = source(d / "in.gguf", WIDE, KEPT)
        for name, at, value, kind, words in (("not a number", 517, float("nan"), "Q4_K", ["not a number", "row 1", "column 5"]),
                                             ("infinite", 3, float("-inf"), "F32", ["infinite", "row 0", "column 3"]),
                                             ("too large", 0, 7e4, "F16", ["70000", "too large for F16"]),
                                             ("too large for blocks", 0, -1e30, "Q8_0", ["-1e+30", "too large for Q8_0"])):
            values = f.floats("blk.0.attn_q.weight")
            values[at] = value
            bad = g.read(d / "in.gguf").put("blk.0.attn_q.weight", (512, 6), values)
            bad.write(d / "bad.gguf")
            refused(name, d, 3, ["bad.gguf", "blk.0.attn_q.weight", *words], d / "bad.gguf", d / "out.gguf", "--type", kind)
        values = f.floats("blk.0.attn_norm.weight")
        values[7] = float("nan")
        g.read(d / "in.gguf").put("blk.0.attn_norm.weight", (512,), values).write(d / "bad.gguf")
        refused("in what stays", d, 3, ["blk.0.attn_norm.weight", "column 7"], d / "bad.gguf", d / "out.gguf", "--type", "Q8_0")
        values = f.floats("blk.0.attn_q.weight")
        values[0] = 1e30
        g.read(d / "in.gguf").put("blk.0.attn_q.weight", (512, 6), values).write(d / "big.gguf")
        t.equal("BF16 holds 1e30", quantize(d / "big.gguf", d / "out.gguf", "--type", "BF16").code, 0)


MEGABYTES = 96


def large(path):
    """Written piece by piece: a child's peak of memory begins with what this process holds."""
    f = g.File().set("general.architecture", g.STRING, "llama")
    block = struct.pack("<4096f", *(random.Random(1).gauss(0, 1) for _ in range(4096)))
    f.tensors["blk.0.ffn_up.weight"] = g.Tensor((4096, MEGABYTES * 64), 0, b"")
    f.write(path)
    with open(path, "ab") as out:
        for _ in range(MEGABYTES * 64):
            out.write(block)


def test_memory_and_end():
    with Folder() as d:
        large(d / "in.gguf")
        p = subprocess.Popen([t.STOA, "quantize", d / "in.gguf", d / "out.gguf", "--type", "Q8_0", "--threads", "2"], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(p.pid, 0)
        p.returncode = status
        t.equal("a large file: done", status, 0)
        t.check("memory of a few rows, not of the file", usage.ru_maxrss < MEGABYTES * 1024 // 2, f"{usage.ru_maxrss} KiB")
        os.unlink(d / "out.gguf")
        p = subprocess.Popen([t.STOA, "quantize", d / "in.gguf", d / "out.gguf", "--type", "Q4_K", "--threads", "1"], stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE)
        t.check("it tells how far it is", b"quantizing" in p.stderr.readline())
        p.kill()
        p.wait()
        t.equal("killed half-way, it leaves nothing", d.files, ["in.gguf"])


if __name__ == "__main__":
    t.run(globals())
