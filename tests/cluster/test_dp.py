#!/usr/bin/env python3
"""Groups along dp, from outside: the same answers, every rank in the figures, and one group's trouble is the end of all."""
import os
import signal
import struct
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import gguf_bytes
from job import Job, stoa_lines, t
from test_chat import Chat, chatml

LAYOUTS = ("dp=2", "dp=3", "dp=2,tp=2", "dp=2,pp=2", "dp=2,pp=2,tp=2")
LONG = ",".join(str((i * i * 7 + i * 31 + 5) % 301) for i in range(70))
ONE = ("--threads", "1")


def test_hashes():
    """A batch spreads over the groups; 1 leaves groups without a sequence, 7 gives them different ones."""
    if not t.have_tiny("hashes"):
        return
    for model, flags in (("tiny-mixed", ()), ("tiny-mixed", ("--kv", "f32")), ("tiny-3heads", ("--activations", "f32"))):
        ask = ("logits", t.tiny(model), "--tokens", LONG, "--all", "--top", "1", "--chunk", "20", *flags)
        want = t.stoa_json(*ask, *ONE)["hash"]
        for n, layout in enumerate(LAYOUTS):
            for batch in (1, 7) if not flags else (7,) if n % 2 else (2,):
                got = t.stoa_json(*ask, *ONE, "--layout", layout, "--batch", batch)
                t.equal(f"{model} {' '.join(flags)}, {layout}, batch {batch}", got["hash"], want)
                t.equal("the layout's name", got["layout"], layout)


def test_the_real_model():
    if not t.have_model("hashes of SmolLM2"):
        return
    ask = ("logits", t.MODEL, "-p", "The capital of France is", "--all", *ONE)
    want = t.stoa_json(*ask)["hash"]
    for layout, batch in (("dp=2", 4), ("dp=3", 1), ("dp=2,pp=2", 3)):
        t.equal(f"SmolLM2, {layout}, batch {batch}", t.stoa_json(*ask, "--layout", layout, "--batch", batch)["hash"], want)


def test_text_and_figures():
    if not t.have_tiny("text on dp"):
        return
    m = t.tiny("tiny-mixed")
    ask = ("run", m, "--raw", "-p", "The sea and the sky", "-n", "24", "--ignore-eos", "--temp", "0.8", "--seed", "7", *ONE)
    want = t.stoa_json(*ask)
    norms = t.stoa_json("logits", m, "--tokens", LONG, "--norms", *ONE)["hidden_norms"]
    for layout, n_ranks in (("dp=2", 2), ("dp=2,pp=2,tp=2", 8)):
        got = t.stoa_json(*ask, "--layout", layout)
        t.equal(f"{layout}: the text", got["tokens"], want["tokens"])
        t.equal(f"{layout}: ranks", [r["rank"] for r in got["ranks"]], list(range(n_ranks)))
        t.check(f"{layout}: a group holds the whole", sum(r["weight_bytes"] for r in got["ranks"]) >= 2 * want["ranks"][0]["weight_bytes"], got["ranks"])
        t.equal(f"{layout}: norms", t.stoa_json("logits", m, "--tokens", LONG, "--norms", "--layout", layout, *ONE)["hidden_norms"], norms)
    bench = t.stoa_json("bench", m, "--prompt", "8", "--generate", "4", "--batch", "1,5", "--repeat", "1", "--layout", "dp=2,pp=2", *ONE)
    t.equal("bench: ranks", [r["rank"] for r in bench["ranks"]], [0, 1, 2, 3])
    t.equal("bench: micro-batches of each group", [r["micro_batches"] for r in bench["results"]], [1, 1, 2])
    t.check("bench: every rank computes", all(r["compute_s"] > 0 for r in bench["ranks"]), bench["ranks"])


def test_gathered_needs_groups():
    if t.have_tiny("gathered weights"):
        for layout in ("tp=1", "tp=2"):
            r = t.stoa("logits", t.tiny("tiny-mixed"), "--tokens", "1,2", "--weights", "gathered", "--layout", layout)
            t.check(f"gathered weights with {layout} are refused", r.code == 2 and "dp" in r.err and "gathered" in r.err and not r.out, r)


def test_chat():
    if not t.have_model("a chat on dp"):
        return
    first, second = "Hi, I am Ada.", "What is my name?"
    with Chat(t.MODEL, "-n", "16", "--layout", "dp=2", *ONE) as chat:
        chat.until_prompt()
        one, two = chat.ask(first), chat.ask(second)
        chat.finish("a chat on dp=2")
    want = t.stoa_json("run", t.MODEL, "-p", first, "-n", "16", *ONE)["text"]
    t.equal("the first answer", one, want)
    turns = chatml(("user", first), ("assistant", want), ("user", second))
    t.equal("the second answer knows the first turn", two, t.stoa_json("run", t.MODEL, "--raw", "-p", turns, "-n", "16", *ONE)["text"])


def test_a_broken_answer_in_one_group():
    """Token 7 is not a number: the neighbour of the batch, in the first group, does not have it, and the prompt in the second does."""
    if not t.have_tiny("a NaN in one group"):
        return
    with open(t.tiny("tiny-f32"), "rb") as f:
        data = bytearray(f.read())
    at = gguf_bytes.tensor_offset(data, "token_embd.weight") + 4 * 64 * 7
    data[at:at + 4] = struct.pack("<f", float("nan"))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "nan.gguf")
        with open(path, "wb") as f:
            f.write(data)
        for layout in ("dp=2", "dp=2,pp=2", "dp=2,tp=2"):
            ask = ("logits", path, "--batch", "2", "--layout", layout, *ONE, "--tokens")
            r = t.stoa(*ask, "1,2,3,4")
            t.check(f"{layout}: without the token there is an answer", r.code == 0, r)
            r = t.stoa(*ask, "1,2,7,4")
            t.check(f"{layout}: with it there is a line and no answer", r.code == 1 and len(stoa_lines(r.err)) == 1 and "not a number" in r.err and not r.out, r)


def test_a_rank_is_killed():
    """One of the group that has nothing to do, and one of that which answers."""
    if not t.have_model("a rank is killed"):
        return
    for number in (1, 3):
        name = f"kill -9 of rank {number} of dp=2,pp=2"
        with Job("run", t.MODEL, "--raw", "-p", "Once upon a time", "-n", "5000", "--ignore-eos", "--layout", "dp=2,pp=2", *ONE) as job:
            begun = job.process.stdout.read(20)
            pid = job.rank(number)
            if t.check(f"{name}: the rank is there", pid and len(begun) == 20, job.pids()):
                os.kill(pid, signal.SIGKILL)
                err = job.end(name, (1,))
                lines = [line for line in stoa_lines(err) if "loading" not in line]
                t.check(f"{name}: one line says so", len(lines) == 1 and "died" in lines[0], err)


if __name__ == "__main__":
    t.run(globals())
