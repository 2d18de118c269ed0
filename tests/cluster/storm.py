#!/usr/bin/env python3
"""Storms: clients that come, leave and are killed while a small cache pushes their sequences out.  For the stress build, whose replica walks
all that is always true after every step and ends where it is not: then it is started again, which is seen here.
"""
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from clients import COMPLETE, SLOW_S, Elsewhere, ask, at_once, for_seconds, is_idle, some_words
from server import Server, t

SECONDS = float(os.environ.get("STOA_STORM_S") or 6)
N_CLIENTS = 12
LAYOUTS = ("tp=1", "tp=2", "pp=2", "dp=2")
MODELS = ("tiny-mixed", "tiny-gemma3-caps")     # a cache group of all positions; windows too
SHARED = "Once upon a time there was a river, and by the river a house of stone; "


def some_request(r):
    """Body, and after how many events, or hundredths of a second, its client leaves, if it does."""
    prompt = SHARED[:r.choice((0, 20, len(SHARED)))] + some_words(r, r.choice((1, 6, 20)))
    body = {"prompt": prompt, "max_tokens": r.choice((1, 10, 60, 150)), "ignore_eos": r.random() < 0.7, "temperature": r.choice((0, 1)),
            "stream": r.random() < 0.5, "n": r.choice((1, 1, 1, 4)), "priority": r.randrange(3)}
    if r.random() < 0.3:
        body.update(cache_salt=r.choice("ab"), frequency_penalty=0.5, logprobs=2)
    return body, r.randrange(1, 10) if r.random() < 0.5 else 0


def turn(server):
    def ask_one(r, _):
        body, leave_after = some_request(r)
        return ask(server, COMPLETE, body, leave_after)
    return ask_one


def is_killed(s, seconds):
    """Clients of a process that is killed, again and again."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        clients = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--ask", str(s.port)])
        time.sleep(1)
        clients.kill()
        clients.wait()


def storm(model, layout):
    name = f"{model}, {layout}"
    with Server(t.tiny(model), "--layout", layout, "--context", 512, "--cache-tokens", 768, "--max-sequences", 8, "--threads", 1) as s:
        outcomes, _ = at_once([lambda: for_seconds(SECONDS, N_CLIENTS, turn(s), seed=len(name)), lambda: is_killed(s, SECONDS)])
        wrong = [o for o in outcomes if not (o.is_right or o.has_left)]
        t.check(f"{name}: whoever stays is answered", not wrong, "; ".join(map(str, wrong[:3])))
        t.check(f"{name}: nothing is computed for clients that left", s.wait_for(lambda: is_idle(s), 60), s.metrics())
        m = s.metrics()
        t.equal(f"{name}: no check has failed", m["stoa_replica_restarts_total"], 0)
        t.equal(f"{name}: every block is free", m["vllm:kv_cache_usage_perc"], 0)
        t.check(f"{name}: some were pushed out, some found their beginning",
                m["vllm:num_preemptions_total"] > 0 and m["vllm:prefix_cache_hits_total"] > 0, m)
        print(f"{name}: {len(outcomes)} requests, {m['vllm:num_preemptions_total']:.0f} preemptions, {m['stoa_replica_steps_total']:.0f} steps")


def test_storms():
    if t.have_tiny("storms"):
        for model in MODELS:
            for layout in LAYOUTS:
                storm(model, layout)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--ask"]:
        elsewhere = Elsewhere(int(sys.argv[2]))
        for_seconds(SLOW_S, 4, turn(elsewhere), seed=os.getpid())
    else:
        t.run(globals())
