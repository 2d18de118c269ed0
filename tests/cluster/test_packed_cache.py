#!/usr/bin/env python3
"""--packed-cache: the second start maps what the first has packed, on every layout and with the same answer; what is stale, damaged or
cannot be written is noticed, said in a line, and changes no answer.  (tests/run/test_packed_file.c flips every byte.)"""
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from job import stoa_lines, t

IDS = "1,2,3,4,5,6,7"
MODELS = ("tiny-mixed", "tiny-fives", "tiny-kquants", "tiny-split", "tiny-qwen3moe", "tiny-mixtral", "tiny-gemma3", "tiny-bf16")


def run(model, folder, layout="tp=1", *more, **how):
    """What each rank's weights come from, and the tokens."""
    cache = ("--packed-cache", folder) if folder else ()
    r = t.stoa("run", model, "-p", "to be or not", "--raw", "-n", 6, "--ignore-eos", "--context", 64, "--threads", 1, "--layout", *layout.split(),
               *cache, *more, "--json", **how)
    if r.code != 0:
        raise AssertionError(str(r))
    return [rank["weights_mapped"] for rank in r.json["ranks"]], r.json["tokens"], stoa_lines(r.err)


def logits(model, *more):
    return t.stoa_json("logits", model, "--tokens", IDS, "--all", "--context", 64, *more)["hash"]


def files(folder):
    return sorted(os.listdir(folder))


@contextlib.contextmanager
def place():
    with tempfile.TemporaryDirectory(prefix="stoa-packed-") as parent:
        yield os.path.join(parent, "cache")


# ---- it serves ----
def second_start(job):
    model, layout = job
    n_ranks = 1
    for axis in layout.split()[0].split(","):
        name, size = axis.split("=")
        n_ranks *= int(size) if name in ("tp", "pp", "dp") else 1
    with place() as folder:
        want = run(t.tiny(model), None, layout)[1]
        first, second = run(t.tiny(model), folder, layout), run(t.tiny(model), folder, layout)
        t.equal(f"{model}, {layout}: packed at first, and no word of it", first, ([False] * n_ranks, want, []))
        t.equal(f"{model}, {layout}: mapped then", second, ([True] * n_ranks, want, []))
        t.check(f"{model}, {layout}: nothing but packed files", all(f.endswith(".packed") for f in files(folder)), files(folder))


def test_one_rank():
    if t.have_tiny("packed cache"):
        t.each(second_start, [(model, "tp=1") for model in MODELS])


def test_layouts():
    if t.have_tiny("packed cache of layouts"):
        t.each(second_start, [("tiny-mixed", "pp=2,tp=2"), ("tiny-3heads", "tp=4"), ("tiny-mixed", "dp=2 --weights gathered"),
                              ("tiny-qwen3moe", "tp=2,ep=2"), ("tiny-mixtral", "dp=2,ep=2")])


def test_answers():
    if not t.have_tiny("answers out of the packed cache"):
        return
    with place() as folder:
        model = t.tiny("tiny-kquants")
        for mode in ("int8", "f32"):
            want = logits(model, "--activations", mode)
            for layout in ("tp=1", "tp=2", "tp=2"):
                t.equal(f"{mode}, {layout}", logits(model, "--activations", mode, "--layout", layout, "--packed-cache", folder), want)


def test_who_shares():
    """Groups along dp hold the same, whatever is asked of them.  Other slices have other files."""
    if not t.have_tiny("who shares a packed file"):
        return
    with place() as folder:
        model = t.tiny("tiny-mixed")
        run(model, folder)
        one = files(folder)
        t.equal("a file", len(one), 1)
        t.equal("dp=2", run(model, folder, "dp=2")[0], [True, True])
        t.equal("another cache of keys", run(model, folder, "tp=1", "--kv", "f32", "--chunk", 3)[0], [True])
        t.equal("no other file", files(folder), one)
        t.equal("tp=2", run(model, folder, "tp=2")[0], [False, False])
        t.equal("two more files", len(files(folder)), 3)
        t.equal("another model", run(t.tiny("tiny-fives"), folder)[0], [False])
        t.equal("one rank again", run(model, folder)[0], [True])


def test_many_at_once():
    if not t.have_tiny("many processes and a packed cache"):
        return
    with place() as folder:
        model = t.tiny("tiny-mixed")
        want = run(model, None)[1]
        command = [t.STOA, "run", model, "-p", "to be or not", "--raw", "-n", "6", "--ignore-eos", "--context", "64", "--threads", "1",
                   "--packed-cache", folder, "--json"]
        for turn in range(4):
            jobs = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(8)]
            out = [job.communicate(timeout=t.TIMEOUT_S) for job in jobs]
            t.equal(f"turn {turn}: nobody complains", [err for _, err in out if err], [])
            t.check(f"turn {turn}: one answer", all(f'"tokens": {want}'.encode() in answer for answer, _ in out), out)
            t.equal(f"turn {turn}: one file", len(files(folder)), 1)
            if turn % 2:
                os.remove(os.path.join(folder, files(folder)[0]))


# ---- it is noticed ----
def noticed(name, model, folder, word, want):
    """A line at the next start, with the word; mapped again, without one, at the start after."""
    mapped, tokens, lines = run(model, folder)
    t.check(f"{name}: said in one line", len(lines) == 1 and word in lines[0] and ".packed" in lines[0], lines)
    t.equal(f"{name}: not used", (mapped, tokens), ([False], want))
    t.equal(f"{name}: made anew", run(model, folder), ([True], want, []))


def change(path, at, size=1):
    with open(path, "r+b") as f:
        f.seek(at)
        old = f.read(size)
        f.seek(at)
        f.write(bytes(b ^ 0x11 for b in old))


def keep_times(path, change_it):
    before = os.stat(path)
    change_it()
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    t.equal("size and mtime as before", (os.stat(path).st_size, os.stat(path).st_mtime_ns), (before.st_size, before.st_mtime_ns))


def test_stale():
    if not t.have_tiny("a stale packed cache"):
        return
    with place() as folder:
        model = folder + "-model.gguf"
        shutil.copy(t.tiny("tiny-q8_0"), model)
        size = os.path.getsize(model)
        run(model, folder)
        # The last tensor's last bytes, which no sample meets.
        keep_times(model, lambda: change(model, size - 700, 600))
        noticed("written into, times set back", model, folder, "stale", run(model, None)[1])
        os.utime(model)
        noticed("touched", model, folder, "stale", run(model, None)[1])
        t.equal("one file all the while", len(files(folder)), 1)

        def replace():
            shutil.copy(t.tiny("tiny-q8_0"), model + ".new")
            change(model + ".new", size // 2, size // 2)
            os.rename(model + ".new", model)
        keep_times(model, replace)
        want = run(model, None)[1]
        mapped, tokens, _ = run(model, folder)
        t.equal("replaced by one of the same size and time", (mapped, tokens), ([False], want))
        t.equal("and then mapped", run(model, folder)[:2], ([True], want))


def test_damaged():
    if not t.have_tiny("a damaged packed cache"):
        return
    with place() as folder:
        model = t.tiny("tiny-mixed")
        want = run(model, folder)[1]
        path = os.path.join(folder, files(folder)[0])
        size = os.path.getsize(path)
        for at in (0, 20, 100, 4000, 4096, size // 2, size - 1):
            change(path, at)
            noticed(f"byte {at}", model, folder, "damaged", want)
        for length in (0, 100, size // 2, size - 1, size + 1):
            os.truncate(path, length)
            noticed(f"{length} of {size} bytes", model, folder, "damaged", want)
        os.chmod(path, 0o666)
        noticed("a file that all may write", model, folder, "not trusted", want)
        if os.geteuid() == 0:
            os.chown(path, 65534, 65534)
            noticed("a file of somebody else", model, folder, "not trusted", want)


def test_damaged_rank():
    """The line comes from the rank whose file it is, be it the leader's or not."""
    if not t.have_tiny("a damaged packed cache of two ranks"):
        return
    with place() as folder:
        model = t.tiny("tiny-mixed")
        want = run(model, folder, "tp=2")[1]
        for path in (os.path.join(folder, f) for f in files(folder)):
            change(path, 5000)
            mapped, tokens, lines = run(model, folder, "tp=2")
            t.equal("one of two is packed again", (sorted(mapped), tokens), ([False, True], want))
            t.check("and names its file", len(lines) == 1 and path in lines[0] and "damaged" in lines[0], lines)
        t.equal("both again", run(model, folder, "tp=2"), ([True, True], want, []))


# ---- it cannot be written ----
def warned(name, got, want):
    mapped, tokens, lines = got
    t.equal(f"{name}: answered all the same", (mapped, tokens), ([False], want))
    t.check(f"{name}: one warning", len(lines) == 1 and "warning: --packed-cache" in lines[0], lines)


def test_unwritable():
    if not t.have_tiny("a packed cache that cannot be written"):
        return
    with place() as folder:
        model = t.tiny("tiny-mixed")
        want = run(model, None)[1]
        warned("no such parent", run(model, os.path.join(folder, "a")), want)
        with open(folder, "w"):
            pass
        mapped, tokens, lines = run(model, folder)
        t.equal("a file in its place", (mapped, tokens), ([False], want))
        t.check("a file in its place: said", lines and all("Not a directory" in line for line in lines), lines)
        os.remove(folder)
        os.mkdir(folder)
        small = ("prlimit", f"--fsize={20000}")
        warned("no room", run(model, folder, command=small), want)
        t.equal("no room: nothing is left", files(folder), [])
        t.check("no folder at all", t.stoa("run", model, "-p", "x", "--packed-cache", "").code == 2)


if __name__ == "__main__":
    t.run(globals())
