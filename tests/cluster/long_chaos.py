#!/usr/bin/env python3
"""What is killed or stopped under `stoa serve` while clients wait and read: ranks, mpirun, the front, clients.

Limits are five times what is wanted on a quiet machine; the times that were seen are printed.
Runs alone: it measures how soon things happen.
"""
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from clients import COMPLETE, Elsewhere, Watch, ask, at_once, is_idle
from server import START_S, Server, t

LAYOUTS = (("tp=1", 1), ("tp=2", 2))
RED_S, BACK_S, GONE_S = 5 * 3, 5 * 10, 5 * 3
KILL, STOP = signal.SIGKILL, signal.SIGSTOP
MPIRUN = "mpirun"
LONG = {"prompt": "Once upon a time", "max_tokens": 300, "temperature": 0, "ignore_eos": True, "stream": True}
# More than are computed at a time, so that some wait for their turn.
QUESTIONS = [{**LONG, "prompt": f"Story {i}", "temperature": i % 2, "seed": i} for i in range(4)] + \
            [{**LONG, "prompt": f"The sea {i}", "max_tokens": 40, "temperature": i % 2, "seed": i, "stream": i % 4 > 1} for i in range(8)]
N_AT_A_TIME = 6


def victim(s, n_ranks, who):
    if who == MPIRUN:
        return next((pid for pid in s.pids() if comm(pid).startswith(("mpirun", "orterun"))), None)
    return s.ranks(n_ranks)[who]


def comm(pid):
    try:
        with open(f"/proc/{pid}/comm") as f:
            return f.read()
    except OSError:
        return ""


def has_started(s):
    """The long ones have sent some of their text, and others wait."""
    m = s.metrics()
    return m["vllm:num_requests_running"] == N_AT_A_TIME and m["vllm:num_requests_waiting"] > 0


def fault(name, s, n_ranks, who, number, watch):
    """Hits it, and looks how the server gets over it."""
    before = set(s.pids()) - {s.process.pid}
    pid = victim(s, n_ranks, who)
    if not t.check(f"{name}: it is there", pid, s.log[-5:]):
        return
    since = time.monotonic()
    os.kill(pid, number)
    red = watch.first(503, since, RED_S)
    t.check(f"{name}: /ready is red within {RED_S} s", red is not None, s.log[-5:])
    back = watch.first(200, since + red, BACK_S) if red is not None else None
    t.check(f"{name}: it is back within {BACK_S} s", back is not None, s.log[-5:])
    print(f"{name}: red after {red or 0:.2f} s, back {back or 0:.2f} s later", flush=True)
    t.check(f"{name}: no process of before is left", not before & set(s.pids()), before & set(s.pids()))
    t.check(f"{name}: no segment of before is left", not s.segments(before), s.segments(before))


def busy_fault(name, s, n_ranks, who, number, want, watch):
    def hit():
        if t.check(f"{name}: it is busy", s.wait_for(lambda: has_started(s), START_S), s.metrics()):
            fault(name, s, n_ranks, who, number, watch)
    *outcomes, _ = at_once([lambda q=q: ask(s, COMPLETE, q) for q in QUESTIONS] + [hit])
    wrong = [o for o, w in zip(outcomes, want) if not (o.is_right and o.bits == w.bits or o.body["stream"] and o.is_cut)]
    t.check(f"{name}: each answer is whole and right, or a stream that ends with an error", not wrong, "; ".join(map(str, wrong[:3])))
    t.check(f"{name}: a stream was cut", any(o.is_cut for o in outcomes), "; ".join(map(str, outcomes[:2])))


# name of the server's faults, layout, ranks, busy, (who, signal)...; few for each server, since it waits longer after each
ROUNDS = (
    ("tp=1", 1, True, (0, KILL), (0, STOP)),
    ("tp=1", 1, False, (0, KILL), (0, STOP)),
    ("tp=2", 2, True, (0, KILL), (1, KILL), (MPIRUN, KILL)),
    ("tp=2", 2, True, (0, STOP), (1, STOP)),
    ("tp=2", 2, False, (0, KILL), (1, STOP), (MPIRUN, KILL)),
    ("pp=2", 2, True, (1, KILL), (0, STOP)),
    ("dp=2", 2, True, (1, KILL), (0, KILL)),
)


def test_ranks():
    if not t.have_model("ranks"):
        return
    for layout, n_ranks, is_busy, *faults in ROUNDS:
        with Server(t.MODEL, "--layout", layout, "--max-sequences", N_AT_A_TIME) as s, Watch(s) as watch:
            want = at_once([lambda q=q: ask(s, COMPLETE, q) for q in (QUESTIONS if is_busy else QUESTIONS[-1:])])
            t.check(f"{layout}: answers before", all(o.is_right for o in want), "; ".join(map(str, want)))
            for who, number in faults:
                name = f"{layout}, {number.name} of {who if who == MPIRUN else f'rank {who}'}, {'busy' if is_busy else 'idle'}"
                if is_busy:
                    busy_fault(name, s, n_ranks, who, number, want, watch)
                else:
                    fault(name, s, n_ranks, who, number, watch)
                again = ask(s, COMPLETE, QUESTIONS[-1])
                t.check(f"{name}: then the same answer", again.bits == want[-1].bits, again)
            t.equal(f"{layout}: each is counted", s.metrics()["stoa_replica_restarts_total"], len(faults))
            s.process.send_signal(signal.SIGTERM)
            s.end(layout)


def test_two_deaths():
    """Who is there at both is refused; who comes between them is not."""
    if not t.have_model("two deaths"):
        return
    for layout, n_ranks in LAYOUTS:
        name = f"two deaths, {layout}"
        with Server(t.MODEL, "--layout", layout) as s:
            whole = {**LONG, "max_tokens": 1500, "stream": False}
            want = ask(s, COMPLETE, {**whole, "max_tokens": 100})

            def late():
                s.wait_for(lambda: s.metrics()["stoa_replica_restarts_total"] == 1 and not is_idle(s), START_S)
                return ask(s, COMPLETE, {**whole, "max_tokens": 100})

            def hit():
                for n in 4, 5:
                    computed = s.wait_for(lambda: s.metrics()["vllm:num_requests_running"] == n, START_S)
                    t.check(f"{name}: all are computed", computed, s.metrics())
                    os.kill(s.ranks(n_ranks)[-1], KILL)
                    s.wait_for(lambda: s.status("/ready") == 503, RED_S)
            *outcomes, last, _ = at_once([lambda: ask(s, COMPLETE, whole)] * 4 + [late, hit])
            refused = all(o.status == 503 and "twice" in o.error["message"] for o in outcomes)
            t.check(f"{name}: who was there at both is refused", refused, "; ".join(map(str, outcomes)))
            t.check(f"{name}: who was there at one is answered", last.is_right and last.bits == want.bits, last)


def test_clients_are_killed():
    if not t.have_model("killed clients"):
        return
    for layout, _ in LAYOUTS:
        name = f"killed clients, {layout}"
        with Server(t.MODEL, "--layout", layout) as s, Watch(s) as watch:
            want = ask(s, COMPLETE, QUESTIONS[-1])
            for _ in range(3):
                clients = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--ask", str(s.port)])
                try:
                    served = s.wait_for(lambda: s.metrics()["vllm:num_requests_running"] == 8, START_S)
                    t.check(f"{name}: they are served", served, s.metrics())
                finally:
                    clients.kill()
                    clients.wait()
                t.check(f"{name}: nothing is computed for them", s.wait_for(lambda: is_idle(s), 30), s.metrics())
            t.check(f"{name}: the same answer after", ask(s, COMPLETE, QUESTIONS[-1]).bits == want.bits)
            t.equal(f"{name}: /ready was never red", {status for _, status in watch.seen}, {200})
            t.check(f"{name}: it is idle in the end", s.wait_for(lambda: is_idle(s), 30), s.metrics())     # a report comes behind the last answer
            m = s.metrics()
            t.equal(f"{name}: every block is free", m["vllm:kv_cache_usage_perc"], 0)
            t.equal(f"{name}: nothing was started again", m["stoa_replica_restarts_total"], 0)


def test_the_front_is_killed():
    if not t.have_model("the front is killed"):
        return
    for layout, _ in LAYOUTS:
        name = f"the front is killed, {layout}"
        with Server(t.MODEL, "--layout", layout) as s:
            def hit():
                s.wait_for(lambda: s.metrics()["vllm:num_requests_running"] == 4, START_S)
                s.pids()
                since = time.monotonic()
                s.process.kill()
                s.process.wait()
                while s.pids() and time.monotonic() - since < GONE_S:
                    time.sleep(0.02)
                print(f"{name}: its job is gone after {time.monotonic() - since:.2f} s", flush=True)
                s.nothing_is_left(name, since)
            *outcomes, _ = at_once([lambda: ask(s, COMPLETE, {**LONG, "max_tokens": 2000})] * 4 + [hit])
            t.check(f"{name}: its clients see it", not any(o.is_done for o in outcomes), "; ".join(map(str, outcomes)))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--ask"]:
        at_once([lambda: ask(Elsewhere(int(sys.argv[2])), COMPLETE, {**LONG, "max_tokens": 4000})] * 8)
    else:
        t.run(globals())
