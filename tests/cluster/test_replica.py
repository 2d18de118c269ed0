"""A replica as its fronts see it: `stoa replica` on tiny models, and frames over real sockets."""
import itertools
import math
import os
import signal
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "wire")]
import frames
import job
import stoa_test as t
from server import SLOW

EPOCH = 7
MODEL = "tiny-mixed"
N_NEW = 40
PROMPTS = ["Hello there", "a", "The quick brown fox jumps over the lazy dog. The quick brown fox jumps"]


class Replica(job.Job):
    """A replica that has begun to listen."""

    def __init__(self, *flags, listen="127.0.0.1:0", model=MODEL, **more):
        super().__init__("replica", t.tiny(model), "--listen", listen, "--epoch", EPOCH, "--threads", 1, *flags, **more)
        self.address, self.lines = None, []
        while not self.address:
            line = self.process.stderr.readline().decode()
            if not line:
                raise AssertionError(f"it does not listen: {self.lines}")
            self.lines.append(line)
            if "listens on " in line:
                self.address = line.split("listens on ")[1].strip()

    def front(self, **more):
        return frames.Front(self.address, EPOCH, **more)


def prompt_ids(text, model=MODEL):
    return t.stoa_json("tokenize", t.tiny(model), text)["tokens"]


def run_ids(text, *flags, model=MODEL):
    return t.stoa_json("run", t.tiny(model), "--raw", "-p", text, "-n", N_NEW, "--ignore-eos", "--threads", 1, *flags)["tokens"]


def wait(name, condition, seconds=job.ALLOWED_S):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return t.check(name, condition(), "not in time")


def alive(process):
    """Whether a process of the Hello's list lives: its pid alone may have come back."""
    try:
        with open(f"/proc/{process['pid']}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
    except OSError:
        return False
    return fields[0] not in "ZX" and int(fields[19]) == process["start_time"]


def cpu_seconds(process):
    """Of all its threads, finer than the ticks of the job's."""
    spent = 0
    for thread in os.listdir(f"/proc/{process['pid']}/task"):
        with open(f"/proc/{process['pid']}/task/{thread}/schedstat") as f:
            spent += int(f.read().split()[0])
    return spent / 1e9


# ---- answers ----
SAMPLED = {"temperature": 0.9, "seed": 2**63 + 5}


def test_answers_are_those_of_run():
    if not t.have_tiny("answers"):
        return
    want = {text: (run_ids(text), run_ids(text, "--temp", 0.9, "--seed", 2**63 + 5)) for text in PROMPTS}
    prompts = {text: prompt_ids(text) for text in PROMPTS}
    for flags in [(), ("--layout", "tp=2"), ("--layout", "pp=2"), ("--layout", "dp=2"), ("--cache-tokens", 256), ("--max-sequences", 2, "--chunk", 8)]:
        name = " ".join(map(str, flags)) or "one rank"
        with Replica(*flags) as replica, replica.front() as a, replica.front() as b:
            for i, text in enumerate(PROMPTS):
                for front, sampling in (a, None), (b, SAMPLED):
                    front.submit(i, prompts[text], N_NEW, sampling)
            for i, text in enumerate(PROMPTS):
                for front, ids in (a, want[text][0]), (b, want[text][1]):
                    got, finish = front.answer(i)
                    t.equal(f"{name}: {text[:12]!r}", got, ids)
                    t.equal(f"{name}: indices", [x["index"] for x in front.tokens[i]], list(range(N_NEW)))
                    t.equal(f"{name}: the end", (finish["reason"], finish["error"]), (frames.LENGTH, ""))
            # What was computed before is not sent again, and changes nothing.
            for number, (front, sampling, ids) in enumerate([(a, None, want[PROMPTS[0]][0]), (b, SAMPLED, want[PROMPTS[0]][1])]):
                front.submit(100, prompts[PROMPTS[0]], N_NEW, sampling, so_far=ids[:17])
                got, _ = front.answer(100)
                t.equal(f"{name}: resumed, {number}", got, ids[17:])
                t.equal(f"{name}: its first index, {number}", front.tokens[100][0]["index"], 17)


def test_hello():
    if not t.have_tiny("hello"):
        return
    hellos = []
    for flags in [(), ("--layout", "tp=2"), ("--activations", "f32"), ("--kv", "bf16"), ("--chunk", 64, "--isa", "c")]:
        with Replica(*flags, "--max-sequences", 5) as replica, replica.front() as front:
            hello = front.hello
            hellos.append(hello)
            n = 2 if "tp=2" in flags else 1
            pids = {replica.rank(i) for i in range(n)} if n > 1 else {replica.process.pid}
            t.equal(f"{flags}: the ranks' processes", {x["pid"] for x in hello["processes"]}, pids)
            t.check(f"{flags}: they live", all(map(alive, hello["processes"])), hello["processes"])
            t.equal(f"{flags}: sizes", (hello["protocol"], hello["context"], hello["block_tokens"], hello["max_sequences"]), (1, 1024, 16, 5))
            t.check(f"{flags}: the id's form", len(hello["numerics"]) == 32 and int(hello["numerics"], 16))
    t.equal("one model", len({x["model"] for x in hellos}), 1)
    numerics = [x["numerics"] for x in hellos]
    t.check("layouts, chunks and instruction sets have one numerics id, modes others",
            numerics[0] == numerics[1] == numerics[4] and len(set(numerics)) == 3, numerics)
    with Replica(model="tiny-f32") as replica, replica.front() as front:
        t.check("another model", front.hello["model"] != hellos[0]["model"] and front.hello["numerics"] not in numerics)


def test_stop_ids_and_logprobs():
    if not t.have_tiny("stop ids"):
        return
    prompt, ids = prompt_ids(PROMPTS[0]), run_ids(PROMPTS[0], "--temp", 0.9, "--seed", 2**63 + 5)
    stop = next(i for i in range(5, N_NEW) if ids[i] not in ids[:i])
    with Replica() as replica, replica.front() as front:
        front.submit(1, prompt, N_NEW, SAMPLED, stop_ids=[ids[stop], 300])
        got, finish = front.answer(1)
        t.equal("a stop id", (got, finish["reason"], finish["stop_id"]), (ids[:stop], frames.STOP, ids[stop]))
        front.submit(2, prompt, N_NEW, logprobs=True, top_logprobs=4)
        got, _ = front.answer(2)
        t.equal("with logprobs", got, run_ids(PROMPTS[0]))
        for token in front.tokens[2]:
            top = token["top"]
            t.check("top logprobs fall", len(top) == 4 and all(x["logprob"] >= y["logprob"] for x, y in zip(top, top[1:])), top)
            t.check("the greedy pick is the first of them", top[0]["id"] == token["id"] and top[0]["logprob"] == token["logprob"] <= 0, token)
        front.submit(3, prompt, N_NEW, logprobs=True)
        front.answer(3)
        t.check("none are sent that are not wanted", all(not x["top"] and math.isfinite(x["logprob"]) for x in front.tokens[3]))
        front.submit(4, prompt, 0)
        t.equal("nothing to generate", front.answer(4)[1]["reason"], frames.LENGTH)
        front.submit(5, prompt, 2**32 - 1, min_tokens=2**32 - 1, stop_ids=[ids[0]])
        t.equal("as much as can be asked for is as much as fits", front.answer(5)[1]["reason"], frames.LENGTH)


# ---- refusals ----
def test_refusals():
    """SE-11: nothing that a frame says is an index before it has been compared with what there is."""
    if not t.have_tiny("refusals"):
        return
    rows = [
        ("no such token", {"prompt": [1, 2, 301]}, "token 301 does not exist"),
        ("a token beyond 31 bits", {"prompt": [1, 2**32 - 1]}, "does not exist"),
        ("no prompt", {"prompt": []}, "prompt is empty"),
        ("a prompt of the whole context and more", {"prompt": [5] * 1025}, "context of 1024"),
        ("so many so far", {"prompt": [5] * 1000, "so_far": [5] * 25}, "context of 1024"),
        ("top_p 0", {"sampling": {"top_p": 0.0}}, "top-p"),
        ("no sampling at all", {"sampling": None}, "top-p"),
        ("a negative temperature", {"sampling": {"top_p": 1.0, "temperature": -1.0}}, "temperature"),
        ("a bias on a token beyond all", {"sampling": {"top_p": 1.0, "bias": [{"id": 301, "add": 1.0}]}}, "token 301"),
        ("one beyond 31 bits", {"sampling": {"top_p": 1.0, "bias": [{"id": 2**32 - 1, "add": 1.0}]}}, "does not exist"),
        ("a bias that is no number", {"sampling": {"top_p": 1.0, "bias": [{"id": 1, "add": math.nan}]}}, "not a number"),
        ("a stop token beyond all", {"stop_ids": [301]}, "301"),
        ("one that was before", {"so_far": [301]}, "token 301 does not exist"),
        ("a penalty that is no number", {"sampling": {"top_p": 1.0, "repetition_penalty": math.nan}}, "penalt"),
        ("all of the largest", {"max_tokens": 2**32 - 1, "min_tokens": 2**32 - 1, "so_far": [5] * 1025}, "context of 1024"),
        ("more top logprobs than are given", {"logprobs": True, "top_logprobs": 200}, "top logprobs"),
    ]
    with Replica("--max-queue", 3, *SLOW) as replica, replica.front() as front:
        for i, (name, fields, text) in enumerate(rows):
            body = {"request": i, "prompt": [1, 2, 3], "max_tokens": 4, "sampling": {"top_p": 1.0}, **fields}
            front.send(submit={k: v for k, v in body.items() if v is not None})
            got, finish = front.answer(i)
            t.equal(name, (got, finish["reason"], finish["is_full"]), ([], frames.REFUSED, 0))
            t.check(f"{name}: why", text.lower() in finish["error"].lower(), finish["error"])
        for i in range(4):
            front.submit(100 + i, [1, 2, 3], 900)
        _, finish = front.answer(103)
        t.equal("one too many", (finish["reason"], finish["is_full"]), (frames.REFUSED, 1))
        front.cancel(100)
        front.answer(100)
        front.submit(104, [1, 2, 3], 4)
        t.equal("and then there is room", front.answer(104)[1]["reason"], frames.LENGTH)
        front.submit(105, [5] * 1020, 900)
        t.equal("the context ends an answer", (len(front.answer(105)[0]), front.finished[105]["reason"]), (4, frames.LENGTH))


def test_waiting_has_an_end():
    """KV-09: who waits for longer than he will is told so."""
    if not t.have_tiny("queue_ms"):
        return
    with Replica("--max-sequences", 1, *SLOW) as replica, replica.front() as front:
        front.submit(1, [1, 2, 3], 500)
        front.submit(2, [1, 2, 3], 5, queue_ms=30)
        front.submit(3, [1, 2, 3], 5, queue_ms=600000)
        t.equal("it waits for too long", front.answer(2)[1]["reason"], frames.TIMEOUT)
        t.equal("others go on", (front.answer(1)[1]["reason"], front.answer(3)[1]["reason"]), (frames.LENGTH, frames.LENGTH))
        front.submit(4, [1, 2, 3], 500, queue_ms=30)
        t.equal("who runs is not timed out", front.answer(4)[1]["reason"], frames.LENGTH)


# ---- connections ----
def idle(front):
    return front.progress and not front.progress["running"] and not front.progress["waiting"]


def test_cancel():
    if not t.have_tiny("cancel"):
        return
    n_new = 400
    for flags in [(), ("--layout", "tp=2"), ("--layout", "pp=2")]:
        name = f"cancel {' '.join(flags)}"
        with Replica(*flags, *SLOW) as replica, replica.front() as front:
            front.until(lambda: front.progress)
            free = front.progress["free_blocks"]
            for i in range(4):
                front.submit(i, [1, 2, 3 + i], n_new)
            front.until(lambda: all(len(front.tokens.get(i, [])) > 3 for i in range(4)))
            for i in range(3):
                front.cancel(i)
            reasons = [front.answer(i)[1]["reason"] for i in range(3)]
            t.equal(f"{name}: how they end", reasons, [frames.CANCELLED] * 3)
            n = [len(front.tokens[i]) for i in range(3)]
            t.check(f"{name}: long before their end", max(n) < n_new / 2, n)
            front.cancel(0)                     # has ended, and is nothing any more
            front.cancel(12345)
            t.equal(f"{name}: the other one", (front.answer(3)[1]["reason"], len(front.tokens[3])), (frames.LENGTH, n_new))
            t.equal(f"{name}: nothing came behind a Finish", [len(front.tokens[i]) for i in range(3)], n)
            front.until(lambda: idle(front) and front.progress["free_blocks"] == free)
            t.check(f"{name}: all blocks are free", True)


def test_lost_connections():
    if not t.have_tiny("lost connections"):
        return
    want = run_ids(PROMPTS[2])
    prompt = prompt_ids(PROMPTS[2])
    for flags in [(), ("--layout", "tp=2")]:
        name = f"lost connections {' '.join(flags)}"
        with Replica(*flags, *SLOW) as replica, replica.front() as stays:
            lost = [replica.front() for _ in range(3)]
            for front in lost:
                for i in range(5):
                    front.submit(i, [1, 2, 3 + i], 1000)
            for front in lost:
                front.until(lambda f=front: len(f.tokens) == 5)
            stays.submit(0, prompt, N_NEW)
            lost[0].close()                     # with unread tokens: reset
            lost[1].socket.shutdown(2)
            lost[2].send_bytes(b"\xff" * 40)
            t.check(f"{name}: garbage closes its connection", lost[2].until_gone())
            t.equal(f"{name}: the one that stays", stays.answer(0)[0], want)
            stays.until(lambda: idle(stays))
            t.check(f"{name}: nothing of the others runs on", True)
            t.check(f"{name}: and they never ended by themselves", not any(front.finished for front in lost[1:]))
            for front in lost:
                front.close()


def test_broken_protocol():
    if not t.have_tiny("protocol"):
        return
    hello = {"protocol": frames.PROTOCOL}
    submit = {"request": 1, "prompt": [1, 2, 3], "max_tokens": 900, "sampling": {"top_p": 1.0}}
    rows = [
        ("HTTP", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("a length beyond all", b"\x01\x00\x00\x01"),
        ("a Submit first", frames.frame(EPOCH, submit=submit)),
        ("another protocol", frames.frame(EPOCH, hello={"protocol": 2})),
        ("another epoch's Hello", frames.frame(EPOCH - 1, hello=hello)),
        ("Tokens", frames.frame(EPOCH, hello=hello) + frames.frame(EPOCH, tokens={})),
        ("one number twice", frames.frame(EPOCH, hello=hello) + 2 * frames.frame(EPOCH, submit=submit)),
    ]
    with Replica() as replica, replica.front() as good:
        for name, data in rows:
            with replica.front(hello=False) as front:
                front.send_bytes(data)
                t.check(f"{name}: the connection is closed", front.until_gone())
        good.send_bytes(frames.frame(EPOCH - 1, submit={**submit, "request": 5}) + frames.frame(EPOCH, submit={**submit, "request": 6, "max_tokens": 3}))
        t.equal("after all that another goes on", good.answer(6)[1]["reason"], frames.LENGTH)
        t.check("a frame of an old epoch is dropped", 5 not in good.finished and 5 not in good.tokens)
        good.send_bytes(b"\0\0\0\0" + frames.frame(EPOCH) + frames.frame(EPOCH, cancel={}))
        good.submit(7, [1, 2, 3], 3)
        t.equal("frames of nothing are nothing", good.answer(7)[1]["reason"], frames.LENGTH)
        known = frames.frame(EPOCH, submit={**submit, "request": 8, "max_tokens": 3})[4:] + b"\xa2\x06\x03abc\xa8\x06\x05"
        good.send_bytes(len(known).to_bytes(4, "little") + known)
        t.equal("unknown fields are skipped", good.answer(8)[1]["reason"], frames.LENGTH)


def test_progress():
    if not t.have_tiny("progress"):
        return
    for flags in [(), ("--layout", "tp=2")]:
        name = f"progress {' '.join(flags)}"
        with Replica(*flags) as replica, replica.front() as front:
            front.until(lambda: front.progress)
            start, before, n = time.monotonic(), [cpu_seconds(x) for x in front.hello["processes"]], front.n_progress
            front.until(lambda: time.monotonic() > start + 4)
            seconds = time.monotonic() - start
            t.check(f"{name}: beats while idle", front.n_progress - n >= 4, front.n_progress)
            shares = [(cpu_seconds(x) - y) / seconds for x, y in zip(front.hello["processes"], before)]
            t.check(f"{name}: idle ranks are cheap", max(shares) < 0.05, shares)
            print(f"{name}: idle shares of a core {[round(x, 4) for x in shares]}", flush=True)
            steps = front.progress["steps"]
            front.submit(1, [1, 2, 3], 500)
            front.answer(1)
            front.until(lambda: front.progress["generated_tokens"] == 500 and idle(front))
            t.check(f"{name}: steps are counted, beats are not", (steps, front.progress["steps"]) == (0, 500), front.progress)
            t.equal(f"{name}: so are tokens of prompts", front.progress["prompt_tokens"], 3)
            first, *others = front.tokens[1]
            t.check(f"{name}: the first token says how long it took", first["prefill_us"] > 0 and not any(x["prefill_us"] for x in others), first)
            computed = front.progress["ranks"]
            t.check(f"{name}: each rank says what its steps took (DF-14)", [x["rank"] for x in computed] == list(range(len(shares)))
                    and all(0 < x["compute_s"] < t.TIMEOUT_S for x in computed), computed)


def test_progress_when_work_comes():
    """What fronts know of a replica that was idle is soon as fresh as of one that is busy: by tokens, whose number tells the time."""
    if not t.have_tiny("progress when work comes"):
        return
    before_first, between = [], []
    with Replica(*SLOW) as replica, replica.front() as front:
        def next_progress():
            n = front.n_progress
            front.until(lambda: front.n_progress > n)
            return front.progress["generated_tokens"]
        for i in range(5):
            front.until(lambda: idle(front))
            start = next_progress()             # right behind a beat
            front.submit(i, [1, 2, 3], 900)
            first = next_progress()
            before_first.append(first - start)
            between.append(next_progress() - first)
            front.cancel(i)
            front.answer(i)
    # The very first step is told of at once, since it is measured.
    t.check("progress when work comes: soon", min(before_first[1:]) < 3 * statistics.median(between), (before_first, between))


def test_a_slow_rank_shows():
    """DF-14: the others wait for it.  Here it is stopped for a while, again and again."""
    if not t.have_tiny("a slow rank"):
        return
    n_new = 400
    with Replica("--layout", "tp=2", *SLOW) as replica, replica.front() as front:
        slow = front.hello["processes"][1]["pid"]
        front.submit(1, [1, 2, 3], n_new)
        for _ in range(15):
            os.kill(slow, signal.SIGSTOP)
            time.sleep(0.1)
            os.kill(slow, signal.SIGCONT)
            time.sleep(0.02)
        t.equal("a slow rank: the answer is whole", len(front.answer(1)[0]), n_new)
        n = front.n_progress
        front.until(lambda: front.n_progress > n + 2)
        waits = [x["wait_s"] for x in front.progress["ranks"]]
        t.check("a slow rank: the other waits for longer", waits[0] > waits[1] + 0.3, front.progress["ranks"])


def anonymous_kb(process):
    with open(f"/proc/{process['pid']}/status") as f:
        return sum(int(line.split()[1]) for line in f if line.startswith(("RssAnon", "VmSwap")))


def test_many_requests():
    """Half with logprobs, a tenth cancelled, some with the same prompt: what one leaves behind would show."""
    if not t.have_tiny("many requests"):
        return
    n_first, n_all, n_open = 1500, 4500, 48
    for flags in [(), ("--layout", "tp=2")]:
        name = f"many requests {' '.join(flags)}"
        with Replica("--cache-tokens", 4096, "--max-sequences", 16, *flags) as replica, replica.front() as front:
            before, threads = [], [len(os.listdir(f"/proc/{x['pid']}/task")) for x in front.hello["processes"]]
            files = [len(os.listdir(f"/proc/{x['pid']}/fd")) for x in front.hello["processes"]]
            for i in range(n_all):
                prompt = [1 + (i // 250 + j * (i % 3)) % 299 for j in range(1 + i % 40)] if i % 4 else [5] * 20
                front.submit(i, prompt, 1 + i % 12, {"temperature": 1.0, "seed": i}, logprobs=bool(i % 2), top_logprobs=i % 2 * 3)
                if i % 10 == 9:
                    front.cancel(i)
                front.until(lambda: i + 1 - len(front.finished) < n_open)
                if i == n_first:
                    before = list(map(anonymous_kb, front.hello["processes"]))
            front.until(lambda: len(front.finished) == n_all)
            after = list(map(anonymous_kb, front.hello["processes"]))
            reasons = [x["reason"] for x in front.finished.values()]
            t.equal(f"{name}: how they ended", set(reasons), {frames.LENGTH, frames.CANCELLED})
            t.check(f"{name}: cancelled ones", n_all / 50 < reasons.count(frames.CANCELLED) <= n_all / 10, reasons.count(frames.CANCELLED))
            # A third of the kilobyte for each request that would count as a leak.
            t.check(f"{name}: memory is flat", all(y - x < 1000 + 0.01 * x for x, y in zip(before, after)), f"{before} kB, then {after}")
            t.equal(f"{name}: threads", [len(os.listdir(f"/proc/{x['pid']}/task")) for x in front.hello["processes"]], threads)
            t.equal(f"{name}: open files", [len(os.listdir(f"/proc/{x['pid']}/fd")) for x in front.hello["processes"]], files)
            front.until(lambda: idle(front))
            t.check(f"{name}: the prefix cache is in use", front.progress["prefix_hits"] > 0, front.progress)


def test_a_stopped_rank_is_silent():
    if not t.have_tiny("a stopped rank"):
        return
    for number in 0, 1:
        for n_new in 0, 400:
            name = f"rank {number} is stopped, {'busy' if n_new else 'idle'}"
            with Replica("--layout", "tp=2", *SLOW) as replica, replica.front() as front:
                front.until(lambda: front.progress)
                if n_new:
                    front.submit(1, [1, 2, 3], n_new)
                    front.until(lambda: 1 in front.tokens)
                os.kill(replica.rank(number), signal.SIGSTOP)
                time.sleep(1)                   # what was under way
                front.socket.settimeout(0.2)
                try:
                    while True:
                        front.read()
                except TimeoutError:
                    pass
                front.socket.settimeout(1.5)
                try:
                    t.check(f"{name}: silence", False, front.read())
                except TimeoutError:
                    t.check(f"{name}: silence", True)
                os.kill(replica.rank(number), signal.SIGCONT)
                front.socket.settimeout(front.timeout)
                n = front.n_progress
                front.until(lambda: front.n_progress > n)
                if n_new:
                    t.equal(f"{name}: it goes on", len(front.answer(1)[0]), n_new)


# ---- ends ----
def test_drain():
    if not t.have_tiny("drain"):
        return
    for flags in [(), ("--layout", "tp=2")]:
        name = f"drain {' '.join(flags)}"
        for end_signal in signal.SIGTERM, signal.SIGINT:
            with Replica(*flags, *SLOW) as replica, replica.front() as front, replica.front() as other:
                front.submit(1, [1, 2, 3], 400)
                front.until(lambda: len(front.tokens.get(1, [])) > 3)
                replica.process.send_signal(end_signal)
                refused = 0
                for i in range(2, 10000):       # until the signal has come through
                    other.submit(i, [1, 2, 3], 1)
                    refused = other.answer(i)[1]
                    if refused["reason"] == frames.REFUSED:
                        break
                t.equal(f"{name}: nothing new is taken", (refused["reason"], refused["is_full"]), (frames.REFUSED, 1))
                ids, finish = front.answer(1)
                t.equal(f"{name}: what runs ends well", (len(ids), finish["reason"]), (400, frames.LENGTH))
                t.check(f"{name}: the connection ends", front.until_gone())
                replica.end(name, [0])


def test_drain_has_an_end():
    if not t.have_tiny("drain"):
        return
    with Replica("--drain-timeout", 0, *SLOW) as replica, replica.front() as front:
        front.submit(1, [1, 2, 3], 1000)
        front.until(lambda: front.tokens)
        replica.process.send_signal(signal.SIGTERM)
        t.equal("what does not end in time", front.answer(1)[1]["reason"], frames.FAILED)
        replica.end("no time to drain", [0])
    ends = signal.SIGTERM, signal.SIGINT
    for flags, pending in itertools.product([(), ("--layout", "tp=2")], [False, True]):
        name = f"two signals {'at once' if pending else 'one after the other'} {' '.join(flags)}"
        with Replica(*flags, *SLOW) as replica, replica.front() as front:
            front.submit(1, [1, 2, 3], 1000)
            front.until(lambda: front.tokens)
            if pending:
                replica.process.send_signal(signal.SIGSTOP)
            for number in ends:
                replica.process.send_signal(number)
                time.sleep(0 if pending else 0.3)
            replica.process.send_signal(signal.SIGCONT)
            replica.end(name, [-number for number in ends] + [128 + number for number in ends])


def test_a_rank_dies():
    if not t.have_tiny("a rank dies"):
        return
    for number in 0, 1:
        with Replica("--layout", "tp=2", *SLOW) as replica, replica.front() as front:
            front.submit(1, [1, 2, 3], 1000)
            front.until(lambda: len(front.tokens.get(1, [])) > 3)
            processes = front.hello["processes"]
            os.kill(replica.rank(number), signal.SIGKILL)
            t.check(f"rank {number} dies: the front sees it", front.until_gone())
            t.check(f"rank {number} dies: without a Finish", not front.finished)
            err = replica.end(f"rank {number} dies", [1])
            t.check(f"rank {number} dies: one line", len(job.stoa_lines(err)) == 1, err)
            t.check(f"rank {number} dies: all of the Hello's processes are gone", not any(map(alive, processes)))


def test_tied():
    if not t.have_tiny("tied"):
        return
    for flags in [[], ["--layout", "tp=2"]]:
        name = f"tied {' '.join(flags)}"
        mark = "STOA_TIED_TEST"
        args = [t.STOA, "replica", t.tiny(MODEL), "--listen", "127.0.0.1:0", "--threads", "1", *flags, "--tied"]
        script = f"import os, subprocess; subprocess.Popen([*{args!r}, str(os.getpid())]).wait()"
        parent = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, env={**os.environ, mark: str(os.getpid())})
        line = parent.stderr.readline().decode()
        t.check(f"{name}: it listens", "listens on" in line, line)
        with frames.Front(line.split("listens on ")[1].strip()) as front:
            processes = front.hello["processes"]
            parent.kill()
            parent.wait()
            wait(f"{name}: it ends with its parent", lambda: not any(map(alive, processes)), 3)
            t.check(f"{name}: the connection too", front.until_gone())
        parent.stderr.close()
    r = t.stoa("replica", t.tiny(MODEL), "--listen", "127.0.0.1:0", "--tied", 1 << 22)
    t.equal("tied to one that was gone before it began", r.code, -9)


def test_where_it_listens():
    if not t.have_tiny("addresses"):
        return
    rows = [("0.0.0.0:0", "127.0.0.1"), ("unix:", "1 to 107 bytes"), ("unix:/no/such/folder/socket", "No such file"), ("example.org:80", "wanted")]
    for address, text in rows:
        r = t.stoa("replica", t.tiny(MODEL), "--listen", address, "--threads", 1)
        t.check(f"--listen {address}", r.code == 2 and text in r.err, str(r))
    r = t.stoa("replica", t.tiny(MODEL))
    t.check("no --listen", r.code == 2 and "--listen" in r.err, str(r))
    with Replica() as replica:
        socket_path = os.path.join(replica.folder.name, "socket")
        with Replica(listen=f"unix:{socket_path}") as first, first.front() as front:
            t.equal("the socket is its owner's alone", os.stat(socket_path).st_mode & 0o777, 0o600)
            r = t.stoa("replica", t.tiny(MODEL), "--listen", f"unix:{socket_path}", "--threads", 1)
            t.check("the address is taken", r.code == 2 and "in use" in r.err, str(r))
            front.submit(1, [1, 2, 3], 2)
            t.equal("and whose it is goes on", front.answer(1)[1]["reason"], frames.LENGTH)
            first.process.kill()
            first.process.wait()
        with Replica(listen=f"unix:{socket_path}") as second, second.front() as front:
            t.check("what a dead one has left is replaced", front.hello)
            second.process.send_signal(signal.SIGTERM)
            second.process.wait()
            t.check("and removed at the end", not os.path.exists(socket_path))


if __name__ == "__main__":
    t.run(globals())
