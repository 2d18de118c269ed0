#!/usr/bin/env python3
"""`stoa serve` under load: many clients at a time, many requests one after the other, many streams that only wait.

SECONDS of load on each layout are few, so that scripts/check-long ends in time; a machine with time to spare may have more.
Runs alone: it compares rates.
"""
import json
import os
import random
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from clients import CHAT, COMPLETE, SLOW_S, Held, ask, at_once, for_seconds, is_idle, some_words
from server import Server, Stream, t

SECONDS = float(os.environ.get("STOA_LOAD_S") or 120)
N_CLIENTS, N_AGAIN = 64, 64
SHORT = (("tp=1", 1, 10000, 2000), ("tp=2", 2, 3000, 1000))     # layout, ranks, requests, those after which memory is flat
SLACK_KB = 8                # two pages: of 1.5 MB 1 % is hardly four
N_WAITING, N_BUSY = 1000, 16
IDLE_S = 30                 # for what was left behind to end
LAYOUTS = (("tp=1", 1), ("tp=2", 2))


def ends_idle(name, s):
    idle = s.wait_for(lambda: is_idle(s), IDLE_S)
    t.check(f"{name}: nothing is computed for clients that left", idle, s.metrics())
    m = s.metrics()
    t.equal(f"{name}: every block is free", m["vllm:kv_cache_usage_perc"], 0)
    t.equal(f"{name}: nothing was started again", m["stoa_replica_restarts_total"], 0)
    return m


# ---- 64 clients ----
def mixed(r, turn):
    """One request of a client: path, body, and after how many events it leaves, if it does."""
    path = r.choice((COMPLETE, COMPLETE, CHAT))
    words = some_words(r, r.choice((2, 8, 30, 120)))
    body = {"max_tokens": r.choice((2, 8, 24, 48)), "return_token_ids": True, "stream": r.random() < 0.5, "ignore_eos": r.random() < 0.5}
    body.update({"prompt": words} if path == COMPLETE else {"messages": [{"role": "user", "content": words}]})
    if turn == 0 or r.random() < 0.6:
        body.update(temperature=r.choice((0.7, 1.0, 1.5)), seed=r.randrange(1 << 40), top_p=r.choice((1, 0.9)),
                    top_k=r.choice((-1, 40)), min_p=r.choice((0, 0.02)), frequency_penalty=r.choice((0, 0.5)), n=r.choice((1, 1, 1, 3)))
    else:
        body["temperature"] = 0
    body["logprobs"] = True if path == CHAT else 1
    if r.random() < 0.25:
        body["stop"] = r.choice((["\n\n"], [" the"], ["."]))
    leaves = turn > 0 and r.random() < 0.15
    return path, body, r.randrange(1, 12) if leaves else 0


def wants_whole_length(o):
    return o.body["ignore_eos"] and "stop" not in o.body


def check_outcomes(name, outcomes):
    wrong = [o for o in outcomes if isinstance(o, str) or not (o.is_right or o.has_left and not o.error)]
    t.check(f"{name}: no error", not wrong, "; ".join(map(str, wrong[:3])) + f": {len(wrong)} of {len(outcomes)}")
    right = [o for o in outcomes if not isinstance(o, str) and o.is_right]
    short = [o for o in right if wants_whole_length(o) and any(len(c.ids) != o.body["max_tokens"] for c in o.choices.values())]
    t.check(f"{name}: each answer has its length", not short, "; ".join(map(str, short[:3])))
    without = [o for o in right if any(len(c.ids) != len(c.logprobs) for c in o.choices.values())]
    t.check(f"{name}: each token has its logprob", not without, "; ".join(map(str, without[:3])))
    return right


def asked_again_alone(name, s, right):
    """Whole, whatever they were the first time."""
    sampled = [o for o in right if o.body["temperature"] > 0][:N_AGAIN]
    t.check(f"{name}: {N_AGAIN} sampled answers", len(sampled) == N_AGAIN, len(sampled))
    different = []
    for o in sampled:
        again = ask(s, o.path, {**o.body, "stream": False})
        if again.bits != o.bits:
            different.append((o.body, o.bits, again.bits))
    t.check(f"{name}: run alone they are equal, bit for bit", not different, f"{len(different)}: {different[:1]}")


def test_clients():
    """A small cache, so that sequences are preempted, and all of it is in use before memory is looked at."""
    if not t.have_model("clients"):
        return
    for layout, n_ranks in LAYOUTS:
        name = f"{N_CLIENTS} clients, {layout}"
        with Server(t.MODEL, "--layout", layout, "--context", 1024, "--cache-tokens", 4096) as s:
            start, halves, outcomes = time.monotonic(), [], []
            for half in 0, 1:
                outcomes += for_seconds(SECONDS / 2, N_CLIENTS, lambda r, turn: ask(s, *mixed(r, turn)), seed=half)
                s.wait_for(lambda: is_idle(s), IDLE_S)
                halves.append(Held(s, n_ranks))
            seconds = time.monotonic() - start
            m = ends_idle(name, s)
            right = check_outcomes(name, outcomes)
            print(f"{name}: {len(outcomes)} requests in {seconds:.0f} s, {len(outcomes) - len(right)} left; "
                  f"{m['vllm:generation_tokens_total'] / seconds:.0f} tokens/s, {m['vllm:num_preemptions_total']:.0f} preemptions, "
                  f"loop held up {1000 * m['stoa_loop_worst_seconds']:.1f} ms; {halves[0]}, then {halves[1]}", flush=True)
            t.check(f"{name}: memory is flat", all(y < 1.01 * x + 1024 for x, y in zip(halves[0].memory, halves[1].memory)),
                    f"{halves[0]}, then {halves[1]}")
            asked_again_alone(name, s, right)


# ---- 10,000 requests ----
def short(r, number):
    """(body, after how many events the client leaves).  A third has one prompt, which the cache knows; a third shares no cache; MO-07."""
    body = {"prompt": f"{number} {some_words(r, r.randrange(1, 12))}", "max_tokens": r.randrange(1, 6), "temperature": 1}
    if number // 8 % 3 == 0:
        body["prompt"] = "Once upon a time the keeper of the light said to be the old king of the winter sea"
    elif number // 8 % 3 == 1:
        body["cache_salt"] = str(number)
    body["stream"] = number % 3 == 0
    if number % 2:
        body["logprobs"] = 3
    return body, 1 if number % 10 == 9 else 0


class Kept:
    """A client that keeps its connection; one that leaves makes another."""

    def __init__(self, server):
        self.server, self.connection = server, server.connect(SLOW_S)

    def ask(self, body, leave_after):
        if leave_after:
            return ask(self.server, COMPLETE, body, leave_after).status in (0, 200)
        self.connection.request("POST", COMPLETE, json.dumps(body), {"Content-Type": "application/json"})
        response = self.connection.getresponse()
        return response.status == 200 and len(response.read()) > 0


def fill(s):
    """Uses every place and every block: memory that was set aside at the start counts from when it is touched, which would else be by chance."""
    def one(i):
        client, body = Kept(s), {"prompt": [i + 5] * 100, "max_tokens": 27, "n": 2, "logprobs": 3, "temperature": 1, "ignore_eos": True, "cache_salt": str(i)}
        return sum(not client.ask(body, 0) for _ in range(4))
    return at_once([lambda i=i: one(i) for i in range(24)])


def test_short_requests():
    """MO-06, MO-07: what one leaves behind would show."""
    if not t.have_tiny("short requests"):
        return
    for layout, n_ranks, n_requests, n_first in SHORT:
        name = f"{n_requests} short requests, {layout}"
        with Server(t.tiny("tiny-q8_0"), "--layout", layout, "--context", 512, "--cache-tokens", 2048, "--max-sequences", 16) as s:
            clients, held, start = [Kept(s) for _ in range(8)], [], time.monotonic()
            n_wrong = sum(fill(s))
            for first in range(0, n_requests, 1000):
                def some(i):
                    r = random.Random(first + i)
                    return sum(not clients[i].ask(*short(r, number)) for number in range(first + i, first + 1000, len(clients)))
                n_wrong += sum(at_once([lambda i=i: some(i) for i in range(len(clients))]))
                s.wait_for(lambda: is_idle(s), IDLE_S)
                held.append(Held(s, n_ranks))
            print(f"{name}: {time.monotonic() - start:.0f} s; kB of front and ranks, each 1000:", [h.memory for h in held], flush=True)
            t.equal(f"{name}: all are answered", n_wrong, 0)
            m = ends_idle(name, s)
            n_left = m['stoa_requests_total{end="abort"}']
            t.check(f"{name}: a tenth left", n_left > n_requests / 100, n_left)
            before, after = held[n_first // 1000 - 1], held[-1]
            t.check(f"{name}: memory is flat after the first {n_first}",
                    all(y < 1.01 * x + SLACK_KB for x, y in zip(before.memory, after.memory)), f"{before}, then {after}")
            # Clients that have just left may still be counted, in either look.
            t.check(f"{name}: no descriptor is left open", all(y <= x + 8 for x, y in zip(before.files, after.files)), (before.files, after.files))
            t.equal(f"{name}: threads", after.threads, before.threads)


# ---- 1,000 streams that wait ----
def tokens_per_s(s, seconds=8):
    def look():
        return s.metrics()["vllm:generation_tokens_total"], time.monotonic()
    n, start = look()
    time.sleep(seconds)
    m, end = look()
    return (m - n) / (end - start)


def test_waiting_streams():
    """They get a comment each second, which nobody reads."""
    if not t.have_model("waiting streams"):
        return
    name = f"{N_WAITING} waiting streams"
    with Server(t.MODEL, "--max-sequences", N_BUSY, "--max-queue", N_BUSY + N_WAITING, "--keep-alive", 1) as s:
        def begin(n):
            body = {"prompt": "Once upon a time", "max_tokens": n, "temperature": 1, "ignore_eos": True, "stream": True}
            return Stream(s, COMPLETE, body, {}, timeout=SLOW_S)
        busy = [begin(4000) for _ in range(N_BUSY)]
        s.wait_for(lambda: s.metrics()["vllm:num_requests_running"] == N_BUSY, IDLE_S)
        alone = [tokens_per_s(s)]
        waiting = [begin(4) for _ in range(N_WAITING)]
        t.check(f"{name}: they wait", s.wait_for(lambda: s.metrics()["vllm:num_requests_waiting"] == N_WAITING, IDLE_S), s.metrics())
        time.sleep(1)
        beside = tokens_per_s(s)
        held_up = s.metrics()["stoa_loop_worst_seconds"]
        t.equal(f"{name}: what is too much is refused", ask(s, COMPLETE, {"prompt": "a", "max_tokens": 1}).status, 429)
        for stream in waiting:
            stream.close()
        gone = s.wait_for(lambda: s.metrics()["vllm:num_requests_waiting"] == 0, IDLE_S)
        t.check(f"{name}: those that leave wait no more", gone, s.metrics())
        alone.append(tokens_per_s(s))
        part = beside / (sum(alone) / 2)
        print(f"{name}: {N_BUSY} busy ones get {beside:.1f} tokens/s beside them, {alone[0]:.1f} before and {alone[1]:.1f} after: "
              f"{part:.2f}; loop held up {1000 * held_up:.1f} ms", flush=True)
        t.check(f"{name}: the busy ones keep their rate", part > 0.5, part)
        t.check(f"{name}: all of them run", s.metrics()["vllm:num_requests_running"] == N_BUSY, s.metrics())
        for stream in busy:
            stream.close()
        ends_idle(name, s)


if __name__ == "__main__":
    t.run(globals())
