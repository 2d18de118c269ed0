#!/usr/bin/env python3
"""What goes wrong around `stoa serve`: ranks that die or stop, clients that leave, a front that dies, signals to end, bad starts.

Most of it is waiting, so what needs no other's quiet runs side by side, each with a server of its own, most of them of a tiny model.
long_chaos.py has more of it on a real one.
"""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from clients import Looking, is_idle
from job import ALLOWED_S, cpu_seconds
from server import SLOW, START_S, Server, ready, t, text_of

LAYOUTS = ("tp=1", "tp=2")
KILL, STOP, TERM = signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM
COMPLETE = "/v1/completions"
ONE = ("--max-sequences", 1)
ONE_SLOW = (*ONE, *SLOW)
ANSWER = {"prompt": "Once upon a time", "max_tokens": 900, "temperature": 0, "ignore_eos": True}
LONG = {**ANSWER, "n": 64}  # with ONE 4 to 20 s, with ONE_SLOW a minute and more
RED_S, BACK_S = 10, 60      # on a crowded machine; 3 and 10 are wanted on a quiet one


def served(name, layout, *args, **more):
    """Yields (name with the layout, a server, how many ranks), once, when it is ready."""
    for server in ready(f"{name}, {layout}", "--layout", layout, "--threads", 1, *args, **more):
        yield f"{name}, {layout}", server, int(layout[-1])


def metric(s, name):
    return s.metrics()[name]


class Probes(Looking):
    """At all three, 20 times a second."""

    def __init__(self, server):
        super().__init__(server)
        self.answers = []

    def look(self):
        self.answers.append([self.server.status(path) for path in ("/live", "/health", "/ready")])
        time.sleep(0.05)


def goes_red_and_comes_back(name, s):
    """Waits until the port says that nothing is served, and until it is; the port answers all the time."""
    start = time.monotonic()
    with Probes(s) as probes:
        answers = probes.answers
        red = s.wait_for(lambda: any(a[2] == 503 for a in answers), RED_S)
        t.check(f"{name}: /ready turns red", red, s.log[-5:])
        red_s = time.monotonic() - start
        back = s.wait_for(lambda: answers[-1][2] == 200, BACK_S)
        t.check(f"{name}: and is back", back, s.log[-5:])
    if os.environ.get("TEST_TIMES"):
        print(f"{red_s:8.2f} s  until red, back after {time.monotonic() - start:.2f} s: {name}")
    t.check(f"{name}: the port is open all the time, /live is 200", all(a[0] == 200 for a in answers), answers)
    t.check(f"{name}: /health tells the same as /ready", all(503 in (a[1], a[2]) or a[1] == a[2] for a in answers), answers)


# ---- ranks ----
def an_idle_rank_dies(case):
    """DF-02: the group is built again, and nothing of the old one is left.  A tiny model would be back before anybody looks."""
    layout, rank = case
    if not t.have_model("an idle rank dies"):
        return
    for name, s, n_ranks in served("an idle rank dies", layout, model=t.MODEL):
        want = s.complete("The sea", 20).text
        for number in (KILL, STOP):
            what = f"{name}: {number.name} of rank {rank}"
            before = s.ranks(n_ranks)
            if not t.check(f"{what}: it is there", before[rank], before):
                continue
            os.kill(before[rank], number)
            goes_red_and_comes_back(what, s)
            told = f"rank {rank} (process {before[rank]}) is stopped" if number == STOP else \
                   f"rank {rank} died (signal 9)" if n_ranks > 1 else "it ended by signal 9"
            t.check(f"{what}: the log names it", any(told in line for line in s.log), s.log[-5:])
            t.check(f"{what}: no process of before is left", not set(before) & set(s.pids()), before)
            t.equal(f"{what}: the same answer after", s.complete("The sea", 20).text, want)
        restarts = metric(s, "stoa_replica_restarts_total")
        t.check(f"{name}: each is counted", restarts >= 2, restarts)        # more where a crowd held up a replica for 2 s
        s.process.send_signal(TERM)
        s.end(name)


def a_busy_rank_dies(case):
    """SS-09, DF-03, DF-09: a stream that has begun ends with an error; what has not begun is answered as if nothing had been."""
    layout, rank, number = case
    for name, s, n_ranks in served(f"{number.name} of busy rank {rank}", layout, *SLOW):
        want, whole = s.complete("The sea", 100).text, {}
        with s.stream(COMPLETE, {**ANSWER, "n": 48}) as stream:
            t.equal(f"{name}: the stream begins", len(stream.events(5)), 5)
            waiting = threading.Thread(target=lambda: whole.update(r=s.complete("The sea", 100)))
            waiting.start()
            t.check(f"{name}: it is busy", s.wait_for(lambda: metric(s, "vllm:num_requests_running") == 49, START_S))
            os.kill(s.ranks(n_ranks)[rank], number)
            found = stream.rest()
            waiting.join()
        last = found[-1]
        t.check(f"{name}: the stream ends with an error event", isinstance(last, dict) and last.get("error", {}).get("message"), last)
        t.check(f"{name}: without [DONE] and finish reason",
                "[DONE]" not in found and not any(c["finish_reason"] for e in found for c in e.get("choices", [])), found[-3:])
        t.check(f"{name}: the other is answered whole", whole["r"].status == 200 and whole["r"].text == want, whole["r"])
        t.equal(f"{name}: the error is counted", metric(s, 'vllm:request_success_total{finished_reason="error"}'), 1)
        t.check(f"{name}: nobody aborts", not any("signal 6" in line or "Abort" in line for line in s.log), s.log[-5:])


def test_a_busy_rank_dies():
    t.side_by_side(a_busy_rank_dies, [("tp=1", 0, KILL), ("tp=2", 0, KILL), ("tp=2", 1, KILL)])
    t.side_by_side(a_busy_rank_dies, [("tp=1", 0, STOP), ("tp=2", 0, STOP), ("tp=2", 1, STOP)])


def the_official_client_sees_it():
    """SS-09: as an exception of its own."""
    name, python = "the openai client sees a rank die", os.environ.get("OPENAI_PYTHON")
    if not python:
        return t.skip(name, "OPENAI_PYTHON is not set: scripts/openai-client prints it")
    for name, s, _ in served(name, "tp=1", *SLOW):
        r = subprocess.run([python, os.path.join(HERE, "openai_client.py"), f"http://127.0.0.1:{s.port}/v1", str(s.ranks(1)[0])],
                           capture_output=True, text=True, timeout=t.TIMEOUT_S)
        t.check(name, r.returncode == 0 and r.stdout.endswith("all is well\n"), r.stdout[-500:] + r.stderr[-2000:])


def a_request_dies_twice():
    """SS-09: the client that has seen nothing gets a 503."""
    for name, s, _ in served("a request dies twice", "tp=1", *ONE_SLOW):
        got = {}
        asking = threading.Thread(target=lambda: got.update(r=s.post(COMPLETE, LONG)))
        asking.start()
        for _ in range(2):
            s.wait_for(lambda: metric(s, "vllm:num_requests_running") == 1, START_S)
            os.kill(s.ranks(1)[0], KILL)
            s.wait_for(lambda: s.status("/ready") == 503, RED_S)
        asking.join()
        t.check(f"{name}: it is refused", got["r"].status == 503 and "twice" in got["r"].error["message"], got["r"])
        t.check(f"{name}: the replica is back", s.wait_ready(), s.log[-5:])


def many_wait():
    """A thousand KB of prompts wait when the replica dies: the next one has them all, in the order in which they came."""
    for name, s, _ in served("many wait", "tp=1", *ONE):
        answers, threads = [], []

        def ask(number, body):
            answers.append((number, s.post(COMPLETE, body)))
        for number in range(4):
            body = {"prompt": [number + 5] * 900, "max_tokens": 2, "n": 100, "ignore_eos": True} if number else LONG
            threads.append(threading.Thread(target=ask, args=(number, body)))
            threads[-1].start()
            n_there = 100 * number
            t.check(f"{name}: request {number} is there", s.wait_for(lambda: metric(s, "vllm:num_requests_waiting") > n_there, START_S))
        os.kill(s.ranks(1)[0], KILL)
        for thread in threads:
            thread.join()
        t.equal(f"{name}: all are answered, in their order", [(number, r.status) for number, r in answers], [(number, 200) for number in range(4)])
        t.equal(f"{name}: all choices too", [len(r.json["choices"]) for _, r in answers if r.status == 200], [64, 100, 100, 100])
        t.equal(f"{name}: one replica died", metric(s, "stoa_replica_restarts_total"), 1)


def the_launcher_dies():
    for name, s, n_ranks in served("the launcher dies", "tp=2"):
        before = s.ranks(n_ranks)
        launchers = [p for p in s.pids() if "mpirun" in s.command(p)]
        t.equal(f"{name}: it is there", len(launchers), 1)
        os.kill(launchers[0], KILL)
        goes_red_and_comes_back(name, s)
        t.check(f"{name}: no rank of before is left", not set(before) & set(s.pids()), before)
        s.process.send_signal(TERM)
        s.end(name)


def a_rank_starts_late(number):
    """DF-11: one that is held up while it loads is waited for, for longer than a step may take; for one that dies there is another."""
    name = f"{number.name} of a rank that starts"
    if not t.have_tiny(name):
        return
    with Server(t.tiny("tiny-q8_0"), "--layout", "tp=2", is_ready=False) as s:
        rank = s.wait_for(lambda: s.rank(1), START_S)
        if not t.check(f"{name}: it is not ready yet", rank and s.status("/ready") == 503, s.log):
            return
        os.kill(rank, number)
        if number == STOP:
            time.sleep(4)
            t.equal(f"{name}: the port is open", (s.status("/live"), s.status("/health")), (200, 503))
            os.kill(rank, signal.SIGCONT)
        # It may have been so far that the first one was ready for a moment.
        epoch = 1 if number == STOP else 2
        is_ready = s.wait_for(lambda: metric(s, "stoa_replica_epoch") == epoch and s.status("/ready") == 200, START_S)
        t.check(f"{name}: then it is ready, with epoch {epoch}", is_ready, s.log)
        r = s.complete("The sea", 20)
        t.check(f"{name}: an answer", r.status == 200, (r, s.log[-9:]))


def the_model_is_gone():
    """DF-07, DF-12: starts that fail come with growing pauses, cost nothing and say little; another model is not taken up."""
    name, failures = "the model is gone", []
    if not t.have_tiny(name):
        return
    with tempfile.TemporaryDirectory() as folder:
        model, aside = os.path.join(folder, "m.gguf"), os.path.join(folder, "aside")
        shutil.copyfile(t.tiny("tiny-q8_0"), model)
        with Server(model, *ONE) as s:
            def fails(n, line):
                if s.wait_for(lambda: sum(line in x for x in s.log) >= n, 60):
                    failures.append((time.monotonic(), len(s.log), cpu_seconds(s.process.pid)))
                return len(failures)
            want, got = s.complete("The sea", 20).text, {}
            asking = threading.Thread(target=lambda: got.update(r=s.post(COMPLETE, LONG)))
            asking.start()
            t.check(f"{name}: a request runs", s.wait_for(lambda: metric(s, "vllm:num_requests_running") > 0, START_S))
            os.rename(model, aside)
            shutil.copyfile(t.tiny("tiny-q4_0"), model)
            os.kill(s.ranks(1)[0], KILL)
            t.check(f"{name}: another is named and not served", fails(1, "another model") == 1 and s.status("/ready") == 503, s.log[-5:])
            os.remove(model)
            if not t.equal(f"{name}: it is tried again and again", [fails(n, "exit code 3") for n in (1, 2)], [2, 3]):
                return t.check(name, False, s.log[-9:])
            (first, n_lines, cpu_s), (second, *_), (third, n_after, cpu_after_s) = failures
            t.check(f"{name}: after 1 and 2 s", second - first > 0.4 and third - second > 0.9, (second - first, third - second))
            t.check(f"{name}: few lines of the log each time", n_after - n_lines < 16, s.log[n_lines:])
            t.check(f"{name}: waiting is cheap", cpu_after_s - cpu_s < 0.05 * (third - first) + 0.1, cpu_after_s - cpu_s)
            t.equal(f"{name}: the port is open", (s.status("/live"), s.status("/ready"), s.complete("a", 1).status), (200, 503, 503))
            os.rename(aside, model)
            t.check(f"{name}: with the old one it is ready", s.wait_ready(), s.log[-5:])
            t.equal(f"{name}: the same answer", s.complete("The sea", 20).text, want)
            asking.join()
            t.equal(f"{name}: starts that fail are no deaths under a request that waits", got["r"].status, 200)


# ---- the front ----
def the_front_is_killed(layout):
    for name, s, _ in served("the front is killed", layout, *ONE_SLOW):
        with s.stream(COMPLETE, LONG) as stream:
            stream.events(3)
            start = time.monotonic()
            s.process.kill()
            s.process.wait()
            s.nothing_is_left(name, start)


def test_the_front_is_killed_while_the_model_loads():
    """Nobody can remove the folder of the socket then, but who comes next does."""
    if not t.have_model("the front is killed while the model loads"):
        return
    name, env = "the front is killed while the model loads", {"XDG_RUNTIME_DIR": ""}
    with tempfile.TemporaryDirectory() as folder, Server(t.MODEL, is_ready=False, env={**env, "TMPDIR": folder}) as s:
        t.check(f"{name}: there is a folder", s.wait_for(lambda: os.listdir(folder), START_S))
        start = time.monotonic()
        s.process.kill()
        s.process.wait()
        s.nothing_is_left(name, start)
        r = t.stoa("serve", t.MODEL, "--port", 0, "--context", 1000000, env={**os.environ, **env, "TMPDIR": folder})
        t.equal(f"{name}: the next server ends as it should", r.code, 2)
        t.equal(f"{name}: and nothing of both is left", os.listdir(folder), [])


def all_sleep():
    """As when a container is paused.  The front wakes first, and does not take its own sleep for the replica's."""
    for name, s, n_ranks in served("all sleep", "tp=1"):
        s.complete("The sea", 20)
        everybody = [s.process.pid, *s.ranks(n_ranks)]
        for pid in everybody:
            os.kill(pid, STOP)
        time.sleep(4)
        for pid in everybody:
            os.kill(pid, signal.SIGCONT)
            time.sleep(0.5)
        time.sleep(1)
        t.equal(f"{name}: it is ready", s.status("/ready"), 200)
        t.equal(f"{name}: nothing was started again", metric(s, "stoa_replica_restarts_total"), 0)


def the_front_sleeps(layout):
    """Alone, under load: what it finds when it wakes is progress of long ago."""
    for name, s, _ in served("the front sleeps", layout, *ONE_SLOW):
        with s.stream(COMPLETE, {**LONG, "n": 128}) as stream:
            stream.events(3)
            s.process.send_signal(STOP)
            time.sleep(15)
            s.process.send_signal(signal.SIGCONT)
            t.equal(f"{name}: the stream goes on", len(stream.events(100)), 100)
            time.sleep(3)
            t.equal(f"{name}: it is ready", s.status("/ready"), 200)
            t.equal(f"{name}: nothing was started again", metric(s, "stoa_replica_restarts_total"), 0)


# ---- the end ----
def drain(layout):
    """RT-08: not ready at once, nothing new, what runs ends whole."""
    for name, s, _ in served("drain", layout, *ONE_SLOW, "--drain-timeout", t.TIMEOUT_S):
        with s.stream(COMPLETE, {**ANSWER, "max_tokens": 250, "n": 4}) as stream:
            stream.events(2)
            kept = s.connect()
            kept.request("GET", "/ready")
            kept.getresponse().read()
            s.process.send_signal(TERM)
            t.check(f"{name}: not ready at once", s.wait_for(lambda: s.status("/ready") == 503, 5))
            t.equal(f"{name}: alive and healthy", (s.status("/live"), s.status("/health")), (200, 200))
            for is_stream in (False, True):
                r = s.complete("a", 1, stream=is_stream)
                t.check(f"{name}: new requests are 503, stream {is_stream}", r.status == 503 and r.headers["retry-after"] and r.error["message"], r)
            found = stream.rest()
            t.equal(f"{name}: the running stream ends whole", found[-1], "[DONE]")
            kept.close()
        s.end(name)


def drain_too_long(layout):
    for name, s, _ in served("drain: too long", layout, *ONE_SLOW, "--drain-timeout", 1):
        with s.stream(COMPLETE, LONG) as stream:
            stream.events(2)
            s.process.send_signal(TERM)
            found = stream.rest()
            t.check(f"{name}: the stream ends with an error", "error" in found[-1], found[-1])
        s.end(name)


def drain_at_once(layout):
    for name, s, _ in served("drain: a second signal", layout, *ONE_SLOW):
        with s.stream(COMPLETE, LONG) as stream:
            stream.events(2)
            s.process.send_signal(TERM)
            s.wait_for(lambda: s.status("/ready") == 503, 5)
            s.process.send_signal(TERM)
            found = stream.rest()
            t.check(f"{name}: the stream ends with an error", "error" in found[-1], found[-1])
            took = s.end(name)
            t.check(f"{name}: it ends soon", took is not None and took < ALLOWED_S, took)


def drain_impatient(layout):
    """Signals go on coming until there is no process: one that comes last of all must not be what ends it."""
    for name, s, _ in served("drain: signals without end", layout, *ONE_SLOW):
        with s.stream(COMPLETE, LONG) as stream:
            stream.events(2)
            end = time.monotonic() + ALLOWED_S
            while s.process.poll() is None and time.monotonic() < end:
                s.process.send_signal(TERM)
                s.process.send_signal(signal.SIGINT)
                time.sleep(0.0005)
        s.end(name)


def drain_idle(layout):
    for name, s, _ in served("drain: idle", layout):
        s.process.send_signal(TERM)
        took = s.end(name)
        t.check(f"{name}: it ends soon", took is not None and took < ALLOWED_S, took)


def test_ends():
    t.side_by_side(lambda case: case[0](case[1]), [(end, layout) for end in (drain, drain_at_once, drain_impatient, drain_idle, the_front_is_killed)
                                                        for layout in LAYOUTS])


# ---- streams ----
def quiet_streams():
    """SS-10: headers come at once, comments while nothing else does."""
    for name, s, _ in served("quiet streams", "tp=1", *ONE_SLOW, "--keep-alive", 1):
        with s.stream(COMPLETE, LONG) as first:
            first.events(2)
            start = time.monotonic()
            with s.stream(COMPLETE, {**ANSWER, "max_tokens": 2}) as second:
                t.check(f"{name}: headers at once", second.response.status == 200 and time.monotonic() - start < 5, time.monotonic() - start)
                lines = [second.line() for _ in range(3)]
                t.check(f"{name}: comments while it waits", all(line.startswith(":") for line in lines), lines)
                first.events(300)
                t.check(f"{name}: none between tokens", b"\n:" not in first.seen, first.seen[:200])
                first.close()
                found = second.rest()
                t.equal(f"{name}: then the answer", (len(text_of(found)) > 0, found[-1]), (True, "[DONE]"))


def a_long_prefill():
    """SS-10: so is a prompt that takes its time."""
    if not t.have_model("a long prefill"):
        return
    for name, s, _ in served("a long prefill", "tp=1", *SLOW, "--keep-alive", 1, model=t.MODEL):
        with s.stream(COMPLETE, {**ANSWER, "prompt": list(range(1000, 1400)), "max_tokens": 2}) as stream:
            lines = [stream.line() for _ in range(2)]
            t.check(f"{name}: comments while it is computed", all(line.startswith(":") for line in lines), lines)


def no_comments():
    for name, s, _ in served("no comments", "tp=1", *ONE_SLOW, "--keep-alive", 0):
        with s.stream(COMPLETE, LONG) as first:
            first.events(2)
            with s.stream(COMPLETE, {**ANSWER, "max_tokens": 2}) as second:
                time.sleep(2)
                first.close()
                second.rest()
                t.check(name, b":" != second.seen[:1] and b"\n:" not in second.seen, second.seen[:200])


# ---- the queue ----
def a_client_leaves_the_queue():
    """SS-13: it is never computed, and who is behind it is next."""
    n_new = 6 * 400
    for name, s, _ in served("a client leaves the queue", "tp=1", *ONE_SLOW):
        with s.stream(COMPLETE, {**ANSWER, "max_tokens": 400, "n": 6}) as first:
            first.events(2)
            with s.stream(COMPLETE, ANSWER):
                waits = s.wait_for(lambda: metric(s, "vllm:num_requests_waiting") == 6, START_S)
                t.check(f"{name}: it waits behind five choices", waits, s.log[-5:])
            last = s.complete("The sea", 5)
            t.check(f"{name}: the one behind it is served", last.status == 200 and len(first.rest()) > 2, last)
        s.wait_for(lambda: is_idle(s), 10)
        n = metric(s, "stoa_replica_steps_total")           # one for each token, and some for prompts
        t.check(f"{name}: nothing is computed for it", n_new < n < n_new + 100, f"{n}, {s.log[-5:]}")


def places():
    """Each choice takes a place of --max-queue, and gives it back."""
    for name, s, _ in served("places", "tp=1", *ONE_SLOW, "--max-queue", 4):
        with s.stream(COMPLETE, {**ANSWER, "n": 3}) as stream:
            stream.events(2)
            for is_stream in (False, True):
                r = s.complete("a", 1, n=2, stream=is_stream)
                is_refused = r.status == 429 and r.headers["retry-after"] and r.error["type"] == "rate_limit_error"
                t.check(f"{name}: two more are too many, stream {is_stream}", is_refused, r)
            with s.stream(COMPLETE, ANSWER) as fourth:
                t.equal(f"{name}: one more is not", fourth.response.status, 200)
            r = s.complete("a", 1, n=5)
            t.check(f"{name}: five will never be served", r.status == 400 and r.error["param"] == "n", r)
            t.equal(f"{name}: it is ready all the time", s.status("/ready"), 200)
        why = (r"completion 429 refused.*: too many requests", r"completion 400 bad_request.*: n$")
        t.check(f"{name}: the log says why", s.wait_for(lambda: all(any(re.search(w, x.strip()) for x in s.log) for w in why), 10), s.log[-5:])
        t.check(f"{name}: then there is room for four", s.wait_for(lambda: s.complete("a", 1, n=4).status == 200, 10))
        t.check(f"{name}: what was refused is counted", metric(s, 'stoa_requests_total{end="refused"}') >= 1)


# ---- what waits ----
def test_what_waits():
    """The longest first."""
    t.side_by_side(lambda case: case[0](*case[1:]), [
        (the_front_sleeps, "tp=1"), (the_model_is_gone,), (the_official_client_sees_it,), (all_sleep,), (a_request_dies_twice,), (many_wait,), (the_launcher_dies,),
        (a_rank_starts_late, STOP), (a_rank_starts_late, KILL),
        (an_idle_rank_dies, ("tp=1", 0)), (an_idle_rank_dies, ("tp=2", 0)), (an_idle_rank_dies, ("tp=2", 1)),
        (quiet_streams,), (a_long_prefill,), (no_comments,), (drain_too_long, "tp=1"), (drain_too_long, "tp=2"), (a_client_leaves_the_queue,), (places,)])


def test_long_bodies():
    """Two of 20 MB are read one after the other, and nobody else waits for them."""
    name = "long bodies"
    if not t.have_tiny(name):
        return
    body = '{"prompt": "a", "max_tokens": 1, "metadata": [' + ",".join(f'"{i:08}"' for i in range(1990000)) + "]}"
    with Server(t.tiny("tiny-q8_0")) as s:
        took, small, statuses = [], [], set()

        def ask(*what):
            start = time.monotonic()
            statuses.add(s.post(COMPLETE, *what).status)
            return time.monotonic() - start
        threads = [threading.Thread(target=lambda: took.append(ask(body))) for _ in range(2)]
        for thread in threads:
            thread.start()
        while len(took) < len(threads) and any(thread.is_alive() for thread in threads):
            small.append(ask({"prompt": "a", "max_tokens": 1}))
        for thread in threads:
            thread.join()
        t.equal(f"{name}: all are answered", statuses, {200})
        t.check(f"{name}: short requests do not wait for them", max(small) < min(took, default=0) / 3, (took, sorted(small)[-5:]))


# ---- starts ----
def test_health_through_load():
    if not t.have_model("health through load"):
        return
    with Server(t.MODEL, is_ready=False) as s:
        first = s.get("/health"), s.get("/live"), s.post(COMPLETE, {"prompt": "a", "stream": True}), s.get("/v1/models")
        t.check("health through load: the port is open before", first[0].status == 503 and "loading" in first[0].json["reason"], first[0])
        t.equal("health through load: it lives", first[1].status, 200)
        t.check("health through load: requests are refused", first[2].status == 503 and first[2].headers["retry-after"], first[2])
        t.equal("health through load: the model is not known yet", first[3].status, 503)
        t.check("health through load: then it is ready", s.wait_ready(), s.log[-5:])
        t.check("health through load: and one line says so", len([x for x in s.log if "ready: " in x]) == 1, s.log)


def test_bad_starts():
    if not t.have_tiny("bad starts"):
        return
    m = t.tiny("tiny-q8_0")
    with tempfile.TemporaryDirectory() as folder:
        cut = os.path.join(folder, "cut.gguf")
        shutil.copyfile(m, cut)
        os.truncate(cut, os.path.getsize(cut) - 1000)
        for what, args, code in (("no file", (os.path.join(folder, "none.gguf"),), 3), ("a file that was cut", (cut,), 3),
                                 ("a layout that does not fit", (m, "--layout", "tp=16"), 2), ("a context beyond the model's", (m, "--context", "1000000"), 2),
                                 ("no such flag", (m, "--frobnicate"), 2), ("no such address", (m, "--host", "256.1.1.1"), 2), ("hosts", (m, "--hosts", m), 2),
                                 ("many words", (m, *("--threads", "1") * 129), 2)):
            r = t.stoa("serve", *args, *(() if "--port" in args else ("--port", "0")))
            t.check(f"bad starts: {what}", r.code == code and "stoa: " in r.err, r)
    with Server(m) as s:
        r = t.stoa("serve", m, "--port", s.port)
        t.check("bad starts: the port is taken", r.code == 2 and str(s.port) in r.err, r)


if __name__ == "__main__":
    t.run(globals())
