"""Clients of a server, many at a time, for tests of load and chaos; and what the server's processes hold meanwhile."""
import http.client
import json
import os
import random
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from server import Server, Stream

COMPLETE, CHAT = "/v1/completions", "/v1/chat/completions"
SLOW_S = 600                # no answer takes longer, on any machine
WORDS = "sea stone river and the of a old keeper light ship north wind said to be who never winter harbour Zürich 1987 x=y+1 雪".split()


class Elsewhere:
    """A server that another process has started."""

    def __init__(self, port):
        self.port = port
    connect = Server.connect


def some_words(r, n):
    return " ".join(r.choice(WORDS) for _ in range(n))


class Choice:
    def __init__(self):
        self.text, self.ids, self.logprobs, self.finish = "", [], [], None

    def add(self, c):
        said = c.get("message") or c.get("delta")
        logprobs = c.get("logprobs") or {}
        self.text += (said.get("content") or "") if said is not None else c["text"]
        self.ids += c.get("token_ids") or []
        self.logprobs += [x["logprob"] for x in logprobs.get("content") or []] + (logprobs.get("token_logprobs") or [])
        self.finish = c["finish_reason"] or self.finish

    @property
    def bits(self):
        return self.ids, self.logprobs, self.text, self.finish


class Outcome:
    """What became of one request, however it was asked for."""

    def __init__(self, path, body):
        self.path, self.body, self.status, self.choices = path, body, 0, {}
        self.n_events, self.is_done, self.has_left, self.error = 0, False, False, None

    def add(self, event):
        if event == "[DONE]":
            self.is_done = True
            return
        self.n_events += 1
        self.error = event.get("error") or self.error
        for c in event.get("choices", []):
            self.choices.setdefault(c["index"], Choice()).add(c)

    @property
    def bits(self):
        """Equal for equal answers, whether streamed or whole."""
        return {i: c.bits for i, c in self.choices.items()}

    @property
    def is_right(self):
        return self.status == 200 and not self.error and bool(self.is_done) and all(c.finish for c in self.choices.values())

    @property
    def is_cut(self):
        """A stream that had begun, ended as one whose replica has died."""
        has_begun = self.status == 200 and self.choices
        return bool(has_begun and self.error and not self.is_done and not any(c.finish for c in self.choices.values()))

    def __str__(self):
        ends = [(c.text[-40:], c.finish) for c in self.choices.values()]
        return f"{self.status} {self.body}: {self.error}, {self.n_events} events, {ends}"


def stream(server, outcome, leave_after, headers=None):
    with Stream(server, outcome.path, outcome.body, headers or {}, timeout=SLOW_S) as s:
        outcome.status = s.response.status
        if outcome.status != 200:
            outcome.error = s.response.read().decode()
        while outcome.status == 200 and not outcome.is_done:
            found = s.events(1)
            if not found:
                break
            outcome.add(found[0])
            if leave_after and outcome.n_events >= leave_after:
                outcome.has_left = True
                break


def whole(server, outcome, leave_after):
    connection = server.connect(SLOW_S)
    try:
        connection.request("POST", outcome.path, json.dumps(outcome.body), {"Content-Type": "application/json"})
        if leave_after:
            time.sleep(0.01 * leave_after)
            outcome.has_left = True
            return
        response = connection.getresponse()
        outcome.status = response.status
        outcome.add(json.loads(response.read()))
        outcome.is_done = outcome.status == 200
    finally:
        connection.close()


def ask(server, path, body, leave_after=0):
    """The outcome; a client that leaves does so after that many events, or hundredths of a second."""
    outcome = Outcome(path, body)
    try:
        (stream if body.get("stream") else whole)(server, outcome, leave_after)
    except (OSError, http.client.HTTPException, ValueError) as e:
        outcome.error = f"{type(e).__name__}: {e}"
    return outcome


def at_once(functions):
    """Each in a thread of its own; what they return, in order.  When all have ended, the first exception of theirs is raised here."""
    results, errors = [None] * len(functions), []

    def run(i):
        try:
            results[i] = functions[i]()
        except Exception as e:
            errors.append(e)
    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def for_seconds(seconds, n_clients, turn, seed):
    """n clients that take turn(random, number of the turn) one after the other until the time is over, at least one each; all outcomes."""
    end = time.monotonic() + seconds

    def client(i):
        r, outcomes = random.Random(seed * 1000 + i), []
        while not outcomes or time.monotonic() < end:
            outcomes.append(turn(r, len(outcomes)))
        return outcomes
    return [o for outcomes in at_once([lambda i=i: client(i) for i in range(n_clients)]) for o in outcomes]


# ---- what processes hold ----
def resident_kb(pid):
    """Without pages of files, which belong to the page cache; with what has been swapped out."""
    with open(f"/proc/{pid}/status") as f:
        return sum(int(line.split()[1]) for line in f if line.startswith(("RssAnon", "RssShmem", "VmSwap")))


class Held:
    """Of the front and each rank: kB of memory, descriptors, threads."""

    def __init__(self, server, n_ranks):
        pids = [server.process.pid, *server.ranks(n_ranks)]
        self.memory = [resident_kb(pid) for pid in pids]
        self.files = [len(os.listdir(f"/proc/{pid}/fd")) for pid in pids]
        self.threads = [len(os.listdir(f"/proc/{pid}/task")) for pid in pids]

    def __str__(self):
        return f"memory {self.memory} kB, {self.files} descriptors, {self.threads} threads"


def is_idle(server):
    m = server.metrics()
    return m["vllm:num_requests_running"] == 0 and m["vllm:num_requests_waiting"] == 0


class Looking:
    """look() again and again, on a thread; `with` ends it, and raises what has ended it before."""

    def __init__(self, server):
        self.server, self.is_over, self.error = server, threading.Event(), None
        self.thread = threading.Thread(target=self.look_on)

    def look_on(self):
        try:
            while not self.is_over.is_set():
                self.look()
        except Exception as e:
            self.error = e

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, kind, *_):
        self.is_over.set()
        self.thread.join()
        if self.error and not kind:
            raise self.error


class Watch(Looking):
    """At /ready, 50 times a second."""

    def __init__(self, server):
        super().__init__(server)
        self.seen = []

    def look(self):
        at = time.monotonic()
        self.seen.append((at, self.server.status("/ready")))
        time.sleep(0.02)

    def first(self, status, since, seconds):
        """When it was first seen after that moment, in seconds after it; None: not within that time."""
        def find():
            return next((at for at, s in list(self.seen) if s == status and at >= since), None)
        at = self.server.wait_for(find, seconds)
        return at - since if at else None
