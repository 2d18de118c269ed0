#!/usr/bin/env python3
"""What goes wrong with a job: each ends with the right exit code, one clear line on standard error, soon, and leaves nothing."""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import gguf_bytes
from job import ALLOWED_S, Job, cpu_seconds, stoa_lines, t

IDS = "1,2,3,4,5,6,7"
MPI = ("--oversubscribe", "--bind-to", "none", "--allow-run-as-root")


def refused(name, r, code, *words):
    """Exit code, exactly one line of ours with these words, no answer."""
    ok = r.code == code and len(stoa_lines(r.err)) == 1 and all(w in stoa_lines(r.err)[0] for w in words) and not r.out
    t.check(name, ok, f"wanted exit code {code}, one line with {words} and no answer: {r}")


def mpi(launcher, n, *args):
    return t.stoa(*args, command=(launcher, *MPI, "-n", str(n)))


# ---- what the user asks for ----
def test_wrong_usage():
    if not t.have_tiny("wrong usage"):
        return
    m = t.tiny("tiny-q4_1")
    ask, mix = ("logits", m, "--tokens", IDS), ("logits", t.tiny("tiny-qwen3moe-q8_0"), "--tokens", IDS)
    for name, args, words in (
            ("a flag that is not there", (*ask, "--frobnicate"), ["--frobnicate"]),
            ("a flag of another command", (*ask, "--temp", "1"), ["--temp"]),
            ("a flag without its value", (*ask, "--layout"), ["--layout"]),
            ("a number that is none", (*ask, "--threads", "two"), ["--threads", "two"]),
            ("no threads", (*ask, "--threads", "0"), ["--threads", "0"]),
            ("a command that is not there", ("frobnicate", m), ["frobnicate"]),
            ("no model", ("logits",), ["MODEL"]),
            ("no prompt", ("logits", m), ["-p"]),
            ("two prompts", (*ask, "-p", "x"), ["--tokens"]),
            ("an unknown axis", (*ask, "--layout", "xp=2"), ["xp=2"]),
            ("a word for a size", (*ask, "--layout", "tp=two"), ["tp"]),
            ("no ranks", (*ask, "--layout", "tp=0"), ["tp"]),
            ("an axis twice", (*ask, "--layout", "tp=2,tp=2"), ["tp"]),
            ("a comma at the end", (*ask, "--layout", "tp=2,"), ["tp=2,"]),
            ("an axis of a later version", (*ask, "--layout", "cp=2"), ["cp"]),
            ("groups that do not divide", (*mix, "--layout", "dp=3,ep=2"), ["dp=3", "ep"]),
            ("experts over a part of tp", (*mix, "--layout", "tp=2,ep=3"), ["tp=2", "ep"]),
            ("experts over more groups than there are", (*mix, "--layout", "dp=2,ep=8"), ["dp=2", "ep"]),
            ("experts over groups, and no experts", (*ask, "--layout", "dp=2,ep=2"), ["ep=2", "none"]),
            ("more ranks than groups of experts", (*mix, "--layout", "dp=16,ep=16"), ["ep=16", "8"]),
            ("no groups", (*ask, "--layout", "dp=0"), ["dp"]),
            ("more ranks than anybody has", (*ask, "--layout", "dp=1024,pp=2"), ["1024"]),
            ("rows split among some of tp", (*ask, "--layout", "tp=4,sp=2"), ["sp", "tp=4"]),
            ("rows split among one", (*ask, "--layout", "dp=2,sp=2"), ["sp", "tp=1"]),
            ("gathered weights without groups", (*ask, "--weights", "gathered"), ["--weights", "dp"]),
            ("gathered weights of one group", (*ask, "--layout", "tp=2,dp=1", "--weights", "gathered"), ["--weights", "dp"]),
            ("weights that are somewhere else", (*ask, "--weights", "elsewhere"), ["elsewhere"]),
            ("shares that part a group of experts", (*mix, "--layout", "dp=2,tp=2,ep=4", "--shares", "5,3"), ["--shares", "5/16", "experts"]),
            ("shares for groups", (*ask, "--layout", "dp=2", "--shares", "1,1"), ["--shares", "tp"]),
            ("stages for groups", (*ask, "--layout", "dp=2", "--stages", "3,4"), ["--stages", "pp"]),
            ("the planner of a later version", (*ask, "--layout", "auto"), ["auto"]),
            ("more ranks than groups", (*ask, "--layout", "tp=16"), ["tp=16", "8"]),
            ("shares that are no whole groups", (*ask, "--layout", "tp=2", "--shares", "1,2"), ["--shares", "1/3"]),
            ("shares for other ranks", (*ask, "--layout", "tp=2", "--shares", "1,2,5"), ["--shares"]),
            ("shares of nothing", (*ask, "--layout", "tp=2", "--shares", "0,0"), ["--shares"]),
            ("stages that are not all layers", (*ask, "--layout", "pp=2", "--stages", "3,3"), ["6", "7"]),
            ("a stage without a layer", (*ask, "--layout", "pp=2", "--stages", "7,0"), ["--stages", "1"]),
            ("a temperature that is nearly 0", ("run", t.tiny("tiny-mixed"), "-p", "a", "--temp", "1e-40"), ["temperature"]),
            ("more stages than layers", (*ask, "--layout", "pp=9"), ["9", "7"]),
            ("an instruction set of another machine", (*ask, "--isa", "neon"), ["neon"]),
            ("a pass that is not there", (*ask, "--without", "frobnicate"), ["frobnicate"]),
            ("a cache type that is not there", (*ask, "--kv", "f64"), ["f64"]),
            ("heads that are no whole blocks of the cache", (*ask, "--kv", "q8_0"), ["--kv", "32", "16"]),
            ("activations that are not there", (*ask, "--activations", "f64"), ["f64"]),
            ("a context beyond the model", (*ask, "--context", "5000"), ["5000", "1024"]),
            ("a token that does not exist", ("logits", m, "--tokens", "1,301"), ["301"]),
            ("a negative token", ("logits", m, "--tokens", "1,-1"), ["-1"]),
            ("a token that is no number", ("logits", m, "--tokens", "1,x"), ["x"]),
            ("a prompt longer than the context", (*ask, "--context", "6"), ["7", "6"]),
            ("a prompt that leaves no room", ("run", m, "--raw", "-p", "abcdefgh", "--context", "4"), ["context"]),
            ("an empty prompt", ("run", m, "--raw", "-p", ""), ["empty"]),
            ("an empty standard input", ("run", m, "--raw"), ["prompt"]),
            ("a temperature under 0", ("run", m, "-p", "x", "--temp", "-1"), ["--temp"]),
            ("a temperature that is not a number", ("run", m, "-p", "x", "--temp", "nan"), ["--temp"]),
            ("top-p 0", ("run", m, "-p", "x", "--top-p", "0"), ["--top-p"]),
            ("top-p above 1", ("run", m, "-p", "x", "--top-p", "1.5"), ["--top-p"]),
            ("min-p above 1", ("run", m, "-p", "x", "--min-p", "1.5"), ["--min-p"]),
            ("a repetition penalty of nothing", ("run", m, "-p", "x", "--repeat-penalty", "0"), ["--repeat-penalty"]),
            ("a frequency penalty that is not a number", ("run", m, "-p", "x", "--frequency-penalty", "nan"), ["--frequency-penalty"]),
            ("a presence penalty beyond all", ("run", m, "-p", "x", "--presence-penalty", "1e9"), ["--presence-penalty"]),
            ("a negative seed", ("run", m, "-p", "x", "--seed", "-1"), ["--seed"])):
        refused(name, t.stoa(*args), 2, *words)
    for name, args, words in (
            ("a token that does not exist, on two ranks", ("logits", m, "--tokens", "1,301", "--layout", "tp=2"), ["301"]),
            ("a prompt longer than the context, on two ranks", (*ask, "--context", "6", "--layout", "tp=2"), ["7", "6"])):
        refused(name, t.stoa(*args), 2, *words)


def test_large_numbers_that_fit():
    """A chunk beyond the context is the whole prompt, and not memory that nobody uses."""
    if t.have_tiny("large numbers"):
        m = t.tiny("tiny-q4_1")
        want = t.stoa_json("logits", m, "--tokens", IDS, "--all")["hash"]
        for flags in (("--chunk", "1000000"), ("--chunk", "1000000", "--without", "place"), ("--top", "301"), ("--top", "16777216")):
            r = t.stoa("logits", m, "--tokens", IDS, "--all", "--json", *flags)
            t.check(" ".join(flags), r.code == 0 and r.json["hash"] == want, r)


def test_no_layout_needs_a_launcher():
    if not t.have_tiny("the launcher"):
        return
    args = ("logits", t.tiny("tiny-q4_1"), "--tokens", IDS)
    env = {**os.environ, "PATH": "/nonexistent"}
    refused("without a launcher", t.stoa(*args, "--layout", "tp=2", env=env), 1, "launcher", "openmpi")
    t.equal("one rank needs no launcher", t.stoa(*args, env=env).code, 0)


# ---- the world it is given ----
def test_worlds():
    if not t.have_tiny("worlds"):
        return
    if not shutil.which("mpirun.openmpi"):
        return t.skip("worlds", "mpirun.openmpi is not there")
    args = ("logits", t.tiny("tiny-q4_1"), "--tokens", IDS, "--all", "--json")
    want = t.stoa_json(*args[:-1])["hash"]
    for launcher, n, layout in (("mpirun.openmpi", 4, "pp=2,tp=2"), ("mpiexec", 2, "tp=2"), ("mpiexec", 1, "tp=1")):
        r = mpi(launcher, n, *args, "--layout", layout)
        t.check(f"{launcher} -n {n} with {layout}", r.code == 0 and r.json["hash"] == want, r)
    for n, layout, size in ((3, "tp=2", 2), (1, "tp=2", 2), (2, "tp=1", 1), (2, "pp=2,tp=2", 4)):
        r = mpi("mpirun.openmpi", n, *args, "--layout", layout)
        lines = stoa_lines(r.err)
        t.check(f"a world of {n} for {layout}", r.code == 2 and len(lines) == 1 and f"{size} rank" in lines[0] and str(n) in lines[0] and not r.out, r)


# ---- files ----
def test_damaged_files():
    if not t.have_tiny("damaged files"):
        return
    with open(t.tiny("tiny-q4_1"), "rb") as f:
        whole = f.read()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "damaged.gguf")
        for name, data, word in (("cut in the data", whole[:-1000], "output"), ("cut in the header", whole[:3000], "damaged"),
                                 ("empty", b"", "damaged"), ("no GGUF", b"<html>not found</html>" * 10, "damaged")):
            with open(path, "wb") as f:
                f.write(data)
            for layout in ("tp=1", "pp=2,tp=2"):
                r = t.stoa("logits", path, "--tokens", IDS, "--layout", layout)
                refused(f"a file {name}, {layout}", r, 3, word)
                t.check(f"a file {name}, {layout}: quickly", r.seconds < 5, r.seconds)
        for layout in ("tp=1", "tp=2"):
            r = t.stoa("logits", os.path.join(folder, "missing.gguf"), "--tokens", IDS, "--layout", layout)
            refused(f"a file that is not there, {layout}", r, 3, "missing.gguf")


def test_output_that_cannot_be_written():
    if not t.have_tiny("a full disk"):
        return
    for layout in ("tp=1", "tp=2"):
        for args in (("logits", t.tiny("tiny-f32"), "--tokens", IDS), ("run", t.tiny("tiny-f32"), "-p", "a", "-n", "2")):
            with open("/dev/full", "wb") as full:
                r = subprocess.run([t.STOA, *args, "--layout", layout], stdout=full, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=60)
            t.equal(f"stoa {args[0]} > /dev/full, {layout}: the exit code", r.returncode, 1)
            t.check(f"stoa {args[0]} > /dev/full, {layout}: one line", b"standard output cannot be written" in r.stderr, r.stderr)


def test_a_model_that_is_cut_while_it_is_used():
    if not t.have_model("a model that is cut"):
        return
    for layout in ("tp=1", "tp=2"):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "cut.gguf")
            shutil.copy(t.MODEL, path)
            p = subprocess.Popen([t.STOA, "run", path, "-p", "a", "-n", "2000", "--ignore-eos", "--layout", layout],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
            p.stdout.read(10)
            os.truncate(path, 3000000)
            _, err = p.communicate(timeout=60)
            t.equal(f"a model that is cut, {layout}: the exit code", p.returncode, 3)
            t.check(f"a model that is cut, {layout}: a line says so", b"cut short" in err, err)


def test_a_rank_is_killed_and_mpirun_sleeps():
    """mpirun has been seen to miss that its ranks are gone."""
    if not t.have_model("mpirun sleeps"):
        return
    with long_job("tp=2") as job:
        launchers = [p for p in job.pids() if "mpirun" in open(f"/proc/{p}/comm").read()]
        ranks = [job.rank(0), job.rank(1)]
        t.check("mpirun sleeps: it is there", len(launchers) == 1, launchers)
        for pid in launchers:
            os.kill(pid, signal.SIGSTOP)
        for pid in ranks:
            os.kill(pid, signal.SIGKILL)
        err = job.end("mpirun sleeps, its ranks are dead", (1,))
        t.check("mpirun sleeps: one line says so", len(stoa_lines(err)) == 1 and "died" in err, err)


def test_a_logit_that_is_no_number():
    if not t.have_tiny("a NaN"):
        return
    with open(t.tiny("tiny-f32"), "rb") as f:
        data = bytearray(f.read())
    at = gguf_bytes.tensor_offset(data, "output.weight")
    data[at + 4 * 64 * 7:at + 4 * 64 * 7 + 4] = b"\0\0\xc0\x7f"       # one weight of token 7
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "nan.gguf")
        with open(path, "wb") as f:
            f.write(data)
        for layout in ("tp=1", "tp=2"):
            for flags in ((), ("--temp", "1"), ("--temp", "1", "--top-k", "5"), ("--temp", "1", "--top-p", "0.5")):
                r = t.stoa("run", path, "--raw", "-p", "abc", "-n", "4", "--json", "--layout", layout, *flags)
                refused(f"a NaN in the logits, {layout} {' '.join(flags)}", r, 1, "not a number")
            refused(f"the hash of a NaN, {layout}", t.stoa("logits", path, "--tokens", IDS, "--json", "--layout", layout), 1, "not a number")


# ---- memory ----

def test_a_model_that_does_not_fit():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "giant.gguf")
        try:
            gguf_bytes.write_giant(path)
        except OSError as e:
            return t.skip("a model that does not fit", f"no sparse file of 256 GB here: {e}")
        for layout in ("tp=1", "pp=2,tp=2"):
            r = t.stoa("logits", path, "--tokens", "1,2", "--layout", layout)
            refused(f"a model of 256 GB, {layout}", r, 1, "needs", "free")
            t.check(f"a model of 256 GB, {layout}: quickly", r.seconds < ALLOWED_S, r.seconds)
        parts = [r["weight_bytes"] for r in t.stoa_json("inspect", path, "--layout", "tp=8")["ranks"]]
        t.check("a model of 256 GB can be inspected", sum(parts) > 250e9, parts)
    if not t.have_model("a small address space"):
        return
    for layout, megabytes in (("tp=1", 60), ("tp=1", 160), ("tp=2", 220)):
        r = t.stoa("logits", t.MODEL, "--tokens", "1,2", "--layout", layout,
                   command=("sh", "-c", f"ulimit -v {megabytes}000; exec \"$@\"", "sh"))
        lines = stoa_lines(r.err)
        t.check(f"an address space of {megabytes} MB, {layout}", r.code == 1 and lines and not r.out, r)


# ---- death ----
def long_job(layout="pp=2,tp=2"):
    """An answer that takes a minute, seen to have begun."""
    job = Job("run", t.MODEL, "--raw", "-p", "Once upon a time", "-n", "5000", "--ignore-eos", "--layout", layout)
    job.begun = job.process.stdout.read(20)
    return job


def test_a_rank_is_killed():
    if not t.have_model("a rank is killed"):
        return
    for number in (0, 1, 3):
        name = f"kill -9 of rank {number}"
        with long_job() as job:
            pid = job.rank(number)
            if not t.check(f"{name}: the rank is there", pid and len(job.begun) == 20, job.pids()):
                continue
            os.kill(pid, signal.SIGKILL)
            err = job.end(name, (1,))
            t.check(f"{name}: one line says so", len(stoa_lines(err)) == 1 and "died" in err and "9" in err, err)


def test_a_rank_is_killed_in_a_collective():
    """Groups along dp exchange rows of experts, or parts of weights, in every layer of every step."""
    if not t.have_tiny("a rank is killed in a collective"):
        return
    long = ("bench", t.tiny("tiny-qwen3moe-q8_0"), "--prompt", 256, "--generate", 256, "--batch", 4, "--repeat", 1000)
    for number, layout in ((1, ("dp=2,ep=2",)), (0, ("dp=2,tp=2,ep=4",)), (3, ("dp=2,pp=2", "--weights", "gathered"))):
        name = f"kill -9 of rank {number}, {' '.join(layout)}"
        n_ranks = 2 if layout[0] == "dp=2,ep=2" else 4
        with Job(*long, "--layout", *layout) as job:
            start, ranks = time.monotonic(), [None]
            while time.monotonic() - start < 30 and not all(pid and cpu_seconds(pid) > 0.3 for pid in ranks):
                time.sleep(0.05)
                ranks = [job.rank(i) for i in range(n_ranks)]
            if not t.check(f"{name}: they are at work", all(ranks) and job.process.poll() is None, ranks):
                continue
            os.kill(ranks[number], signal.SIGKILL)
            err = job.end(name, (1,))
            t.check(f"{name}: one line says so", len(stoa_lines(err)) == 1 and "died" in err and "9" in err, err)


def test_the_parent_is_killed():
    if not t.have_model("the parent is killed"):
        return
    with long_job("tp=2") as job:
        start = time.monotonic()
        job.process.kill()
        job.process.wait()
        job.nothing_is_left("kill -9 of the command", start)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        with long_job("tp=2") as job:
            job.process.send_signal(number)
            job.end(f"{number.name} to the command", (128 + number, -number))
    with long_job("tp=1") as job:
        job.process.send_signal(signal.SIGTERM)
        job.end("SIGTERM to one rank", (128 + signal.SIGTERM, -signal.SIGTERM))


def test_the_reader_leaves():
    """stoa run ... | head"""
    if not t.have_model("the reader leaves"):
        return
    for layout in ("tp=1", "tp=2"):
        with long_job(layout) as job:
            job.process.stdout.close()
            job.process.stdout = None
            job.end(f"a reader that leaves, {layout}", (1, 128 + signal.SIGPIPE, -signal.SIGPIPE))


# ---- side by side ----
def test_two_jobs():
    if not t.have_tiny("two jobs") or not t.have_model("two jobs"):
        return
    args = ("logits", t.tiny("tiny-mixed"), "--tokens", IDS, "--all")
    want, got = t.stoa_json(*args)["hash"], []
    with long_job("tp=2") as victim:
        threads = [threading.Thread(target=lambda layout=layout: got.append(t.stoa(*args, "--json", "--layout", layout)))
                   for layout in ("tp=2", "pp=2", "pp=2,tp=2", "tp=3")]
        for thread in threads:
            thread.start()
        os.kill(victim.rank(1), signal.SIGKILL)
        for thread in threads:
            thread.join()
        t.check("jobs beside one that dies", len(got) == 4 and all(r.code == 0 and r.json["hash"] == want for r in got), [str(r) for r in got])
        victim.end("the one that dies", (1,))


def test_eight_ranks():
    if not t.have_model("eight ranks"):
        return
    want = t.stoa_json("run", t.MODEL, "--raw", "-p", "The sea", "-n", "8")["tokens"]
    for layout in ("tp=8", "pp=2,tp=4", "pp=8"):
        r = t.stoa("run", t.MODEL, "--raw", "-p", "The sea", "-n", "8", "--layout", layout, "--json")
        t.check(f"eight ranks, {layout}", r.code == 0 and r.json["tokens"] == want and len(r.json["ranks"]) == 8, r)


if __name__ == "__main__":
    t.run(globals())
