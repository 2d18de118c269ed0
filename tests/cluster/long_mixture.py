#!/usr/bin/env python3
"""A mixture of experts of 4 GB: one answer over ep, and each rank's memory is its share.

The file has random weights in the shape of a quarter of Qwen3-30B-A3B (12 layers, each whole: 128 experts, 8 used).  The
script in shared/bench beside the repository makes it, in a minute, and it stays in the cache.
"""
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import stoa_test as t

SHAPE = "qwen3-30b-a3b-quarter"
MAKER = os.path.join(t.ROOT, "..", "shared", "bench", "make_gguf.py")
FOLDER = os.path.join(t.CACHE, "stoa")
FILE = os.path.join(FOLDER, f"random-{SHAPE}-Q4_0.gguf")
GB = 10**9
TIMEOUT_S = 600                 # a cold file on a crowded machine is read slowly
IDS = "1,300,2020,35000,77,4150,12,9000,300,2020,31,8,1500,22222"
# What a rank holds beside weights and activations: the program and MPI with what they share, tokenizer, KV blocks of a few
# tokens, and the pages of the file that are being loaded.  Up to 55 MB were seen
# beyond both, where few activations are predicted; peaks were 24 to 64 MB above the weights.
OVERHEAD = 96 << 20
LAYOUTS = ("ep=2", "ep=2,pp=2", "dp=2,ep=2")


def available_memory():
    with open("/proc/meminfo") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("MemAvailable"))


def make():
    """The file as the script of today makes it; one process makes it, others wait and find it there."""
    with open(MAKER, "rb") as f:
        made_by = hashlib.sha256(f.read()).hexdigest()
    os.makedirs(FOLDER, exist_ok=True)
    with open(FILE + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            with open(FILE + ".made-by") as f:
                if os.path.exists(FILE) and f.read() == made_by:
                    return True
        except FileNotFoundError:
            pass
        for old in (FILE, FILE + ".new"):
            if os.path.exists(old):
                os.remove(old)
        free = shutil.disk_usage(FOLDER).free
        if free < 6 * GB:
            t.skip("the 4 GB mixture", f"{FOLDER} has {free / GB:.1f} GB free, the file is 4.3 GB")
            return False
        subprocess.run([sys.executable, MAKER, "--shape", SHAPE, "--type", "Q4_0", "--out", FILE + ".new"], check=True,
                       stdout=subprocess.DEVNULL)
        os.rename(FILE + ".new", FILE)
        with open(FILE + ".made-by", "w") as f:
            f.write(made_by)
    return True


def have_mixture():
    if not os.path.isfile(MAKER):
        t.skip("the 4 GB mixture", "shared/bench/make_gguf.py is not beside the repository")
    elif available_memory() < 6 * GB:
        t.skip("the 4 GB mixture", f"{available_memory() / GB:.1f} GB of memory are free")
    else:
        return make()
    return False


def answer(layout):
    """Hash of the logits, and the tokens that follow them."""
    more = {"timeout": TIMEOUT_S}
    # Others decode beside it, so that each group of dp has tokens to send.
    batch = ("--batch", 3) if "dp" in layout else ()
    logits = t.stoa_json("logits", FILE, "--tokens", IDS, "--all", "--context", 256, *batch, "--layout", layout, **more)
    run = t.stoa_json("run", FILE, "-p", "to be or not", "--raw", "-n", 24, "--ignore-eos", "--context", 256, "--layout", layout, **more)
    predicted = t.stoa_json("inspect", FILE, "--layout", layout)["ranks"]
    print(f"{layout}: loaded in {run['load_s']:.1f} s, {run['tokens_per_s']:.1f} tokens/s, MB of weights (and peak) of each rank:",
          ", ".join(f"{r['weight_bytes'] >> 20} ({r['peak_bytes'] >> 20})" for r in run["ranks"]), flush=True)
    t.equal(f"{layout}: weights as predicted", [r["weight_bytes"] for r in run["ranks"]], [r["weight_bytes"] for r in predicted])
    for p, r in zip(predicted, run["ranks"]):
        most = p["weight_bytes"] + p["activation_bytes"] + OVERHEAD
        t.check(f"{layout}, rank {r['rank']}: its memory is its share", p["weight_bytes"] < r["peak_bytes"] < most,
                f"{r['peak_bytes']} bytes, wanted {p['weight_bytes']} to {most}")
    return (logits["hash"], run["tokens"]), [p["weight_bytes"] for p in predicted]


def test_mixture():
    if not have_mixture():
        return
    alone, (whole,) = answer("tp=1")
    for layout in LAYOUTS:
        got, weights = answer(layout)
        t.equal(f"{layout}: one answer", got, alone)
        # Experts are 95 of 100 bytes.  What else a layer has, each group of dp holds whole.
        t.check(f"{layout}: a rank's share", max(weights) < (whole * 1.05) / len(weights), (weights, whole))


if __name__ == "__main__":
    t.run(globals())
