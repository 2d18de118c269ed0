#!/usr/bin/env python3
"""Faults that users of other servers have met (the ids are theirs), tried on `stoa serve` over real sockets."""
import json
import os
import random
import signal
import socket
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import gguf_bytes
from clients import CHAT, COMPLETE, Looking, ask, at_once, is_idle, resident_kb
from server import SLOW, ready, t

MODEL = "tiny-q8_0"
ONE_SLOW = (*SLOW, "--threads", 1, "--max-sequences", 1)
ANSWER = {"prompt": "Once upon a time", "max_tokens": 20, "temperature": 0, "ignore_eos": True}
HELLO = {"messages": [{"role": "user", "content": "Hello there"}], "max_tokens": 20, "temperature": 0, "ignore_eos": True}
SOON_S = 20                 # "at once" and "within a second" on a crowded machine


def both_ways(s, path, body):
    """(how it was asked, the outcome), whole and as a stream."""
    return [(how, ask(s, path, {**body, "return_token_ids": True, "stream": how == "stream"})) for how in ("whole", "stream")]


# ---- how answers end, and what they cost ----
END_OF_TURN = 40            # a plain token, made an end by the file's eot id


def test_ends_of_answers():
    """A file with an eos id, an eot id and a token that is an end by its name."""
    if not t.have_tiny("OA-18"):
        return
    with tempfile.NamedTemporaryFile(suffix=".gguf") as f:
        with open(t.tiny(MODEL), "rb") as plain:
            f.write(gguf_bytes.with_u32(plain.read(), "tokenizer.ggml.eot_token_id", END_OF_TURN))
        f.flush()
        for s in ready("OA-18", model=f.name):
            for token, is_end in ((0, True), (2, True), (END_OF_TURN, True), (END_OF_TURN + 1, False)):
                body = {"prompt": "a", "max_tokens": 50, "temperature": 0, "logit_bias": {str(token): 100}}
                for how, o in both_ways(s, COMPLETE, body):
                    c = o.choices[0]
                    want = ("stop", True, []) if is_end else ("length", False, [token] * 50)
                    t.equal(f"OA-18: {token} is an end, {how}", (c.finish, c.text == "", c.ids), want)
                for how, o in both_ways(s, COMPLETE, {**body, "min_tokens": 3}):
                    c = o.choices[0]
                    want = ("stop", 3, False) if is_end else ("length", 50, True)
                    t.equal(f"OA-18: {token} after three tokens, {how}", (c.finish, len(c.ids), token in c.ids), want)
                for how, o in both_ways(s, COMPLETE, {**body, "ignore_eos": True}):
                    t.equal(f"OA-19: {token} is ignored, {how}", (o.choices[0].finish, o.choices[0].ids), ("length", [token] * 50))


def usage_of(s, path, body, include_usage):
    """All events of a stream, and the one with its usage."""
    options = {} if include_usage is None else {"stream_options": {"include_usage": include_usage}}
    with s.stream(path, {**body, **options}) as stream:
        found = stream.rest()
    return found, next((e["usage"] for e in found if isinstance(e, dict) and e.get("usage")), None)


def check_shape(name, path, found):
    """OA-21: an index always, no finish reason but in a choice's last event, where it is one."""
    reasons = {}
    for event in found[:-1]:
        for c in event["choices"]:
            t.check(f"OA-21: {name}: index and reason", c["finish_reason"] in (None, "stop", "length") and isinstance(c["index"], int), c)
            t.check(f"OA-21: {name}: nothing after a reason", reasons.get(c["index"]) is None, c)
            reasons[c["index"]] = c["finish_reason"]
            t.check(f"OA-21: {name}: the form of its route", ("delta" in c) == (path == CHAT), c)
    t.check(f"OA-21: {name}: each choice has its reason", reasons and set(reasons.values()) <= {"stop", "length"}, reasons)
    return reasons


def test_usage_and_reasons():
    for s in ready("usage"):
        stop = s.complete("Once upon a time", 20).text[6:9]
        for path, body in ((COMPLETE, ANSWER), (CHAT, HELLO)):
            for what, more in (("by length", {}), ("a stop string", {"stop": [stop]}), ("two choices", {"n": 2, "temperature": 1, "seed": 3}),
                               ("two with a stop", {"n": 2, "temperature": 1, "seed": 3, "stop": ["e", "a"]})):
                name = f"{path}, {what}"
                whole = s.post(path, {**body, **more}).json
                found, usage = usage_of(s, path, {**body, **more}, True)
                reasons = check_shape(name, path, found)
                t.equal(f"OA-21: {name}: the reasons of the whole answer", {c["index"]: c["finish_reason"] for c in whole["choices"]}, reasons)
                counts = ("prompt_tokens", "completion_tokens", "total_tokens")
                t.equal(f"SS-07: {name}: the same usage", usage and [usage[k] for k in counts], [whole["usage"][k] for k in counts])
                t.equal(f"SS-07: {name}: it adds up", whole["usage"]["prompt_tokens"] + whole["usage"]["completion_tokens"], whole["usage"]["total_tokens"])
                ids = [c.ids for c in ask(s, path, {**body, **more, "return_token_ids": True}).choices.values()]
                t.equal(f"SS-07: {name}: of all choices", sum(map(len, ids)), whole["usage"]["completion_tokens"])
                t.check(f"SS-06: {name}: null in all but one", all(e["usage"] is None for e in found[:-2]) and found[-2]["choices"] == [], found[-3:])
                for include in (False, None):
                    without, _ = usage_of(s, path, {**body, **more}, include)
                    t.check(f"SS-06: {name}: include_usage {include}", without[-1] == "[DONE]" and not any("usage" in e for e in without[:-1]), without[-2:])


def test_words():
    """Blanks between words survive in a stream."""
    words = {str(token): 5 for token in range(259, 300)}        # what merges make, half of it with a blank before
    for s in ready("TK-11"):
        for path, body in ((COMPLETE, ANSWER), (CHAT, HELLO)):
            (_, whole), (_, stream) = both_ways(s, path, {**body, "max_tokens": 200, "temperature": 1, "seed": 5, "logit_bias": words})
            t.check(f"TK-11: {path}", whole.is_right and whole.bits == stream.bits and whole.choices[0].text.count(" ") > 20, f"{whole}; {stream}")


# ---- names ----
def test_names():
    for s in ready("SE-03"):
        for name in ("..%2Foutside", "a/../../outside", ".", "..", "a//b", "/etc/passwd", "a\0b", "a b", "", 5000 * "a"):
            r = s.post(CHAT, {**HELLO, "model": name})
            t.check(f"SE-03: a chat with {name[:20]!r}", r.status == 400 and r.error["param"] == "model", r)
            if " " in name or "\0" in name:
                continue
            status = s.status("/v1/models/" + name)
            t.check(f"SE-03: the model {name[:20]!r}", status in (400, 404), status)
        t.equal("SE-03: a plain one", s.post(CHAT, {**HELLO, "model": "org/model-1.5:chat"}).status, 200)


# ---- others go on ----
def test_long_texts():
    """They are split into tokens while others read their streams."""
    texts = (("one letter", 1500000 * "a"), ("no blanks", 40000 * "雪"), ("underscores", 50000 * "_"),
             ("JSON", json.dumps({f"k{i}": i for i in range(1500)})))
    for s in ready("TK-09", *SLOW):
        with s.stream(COMPLETE, {**ANSWER, "max_tokens": 900, "n": 64}) as stream:
            stream.events(1)
            s.metrics()                     # from now on: the longest that the loop was held up
            for what, text in texts:
                start = time.monotonic()
                r = s.post("/tokenize", {"prompt": text})
                t.check(f"TK-09: {what}", r.status == 200 and r.json["count"] > 0 and time.monotonic() - start < SOON_S, (str(r), time.monotonic() - start))
                t.equal(f"TK-09: {what}: others go on", len(stream.events(20)), 20)
            held_up = s.metrics()["stoa_loop_worst_seconds"]
            t.check("TK-09: the loop is not held up", held_up < 1, held_up)


def answer_of(s, body):
    outcome = ask(s, COMPLETE, body)
    return outcome.is_right, outcome.status, outcome.choices.get(0)


STOPS = ["e", " t", "ing"]


def test_stop_lists():
    """Two clients whose answers are computed together, on two ranks, without a seed: each has its own stop strings, and ranks agree."""
    for s in ready("KV-12, PL-15", "--layout", "tp=2"):
        def client(stops):
            r, wrong, reasons = random.Random(len(stops)), [], set()
            for i in range(200):
                n = r.randrange(1, 24)
                body = {"prompt": "word " * r.randrange(1, 30), "max_tokens": n, "temperature": 1, "ignore_eos": True, "stop": stops, "stream": i % 2 == 0,
                        "return_token_ids": True}
                is_right, status, c = answer_of(s, body)
                reasons.add(c and c.finish)
                if not is_right or any(x in c.text for x in stops) or c.finish == "length" and len(c.ids) != n or c.finish == "stop" and not stops:
                    wrong.append((status, body, c and c.bits))
            return wrong, reasons
        got = at_once([lambda: client([]), lambda: client(STOPS)])
        for what, wanted, (wrong, reasons) in zip(("without stops", "with three"), ({"length"}, {"length", "stop"}), got):
            t.check(f"KV-12: {what}", not wrong and reasons == wanted, (wrong[:2], reasons))
        t.check("PL-15: nothing hangs", s.wait_for(lambda: is_idle(s), SOON_S), s.metrics())
        t.equal("PL-15: nothing was started again", s.metrics()["stoa_replica_restarts_total"], 0)


# ---- too much ----
def test_a_full_queue():
    """KV-09: what is too much is told so at once, and costs nothing."""
    n_served, n_asked = 5, 50
    for s in ready("KV-09", *ONE_SLOW, "--max-queue", n_served):
        s.complete("a", 2)
        kb, start = resident_kb(s.process.pid), time.monotonic()

        def one():
            r = s.complete("Once upon a time", 400)
            return r.status, r.headers.get("retry-after"), time.monotonic() - start
        got = at_once([one] * n_asked)
        t.equal("KV-09: as many as there are places are served", [x[0] for x in got].count(200), n_served)
        refused = [x for x in got if x[0] != 200]
        t.check("KV-09: the others are told to come again", all(x[0] == 429 and int(x[1]) > 0 for x in refused), refused)
        t.check("KV-09: at once", max(x[2] for x in refused) < min(SOON_S, max(x[2] for x in got)), got)
        t.check("KV-09: memory is flat", resident_kb(s.process.pid) < kb + 1000, (kb, resident_kb(s.process.pid)))

        before, c = s.metrics(), s.connect()
        c.request("POST", COMPLETE, json.dumps({**ANSWER, "max_tokens": 900, "n": 5}), {"Content-Type": "application/json"})
        t.check("SS-12: a whole answer is computed", s.wait_for(lambda: s.metrics()["vllm:num_requests_running"] == 1, SOON_S), s.log[-3:])
        c.close()
        c.sock = None
        gone = s.wait_for(lambda: is_idle(s) and s.metrics()["vllm:kv_cache_usage_perc"] == 0, SOON_S)
        t.check("SS-12: until its client leaves", gone, s.metrics())
        after = s.metrics()
        t.equal("SS-12: it counts as aborted", after['stoa_requests_total{end="abort"}'] - before['stoa_requests_total{end="abort"}'], 1)
        t.check("SS-12: long before its end", after["vllm:generation_tokens_total"] - before["vllm:generation_tokens_total"] < 4000, after)


# ---- counters ----
def test_ends_are_counted():
    """3 that end well, 2 that are left, 1 that is refused, 1 whose logits are no numbers."""
    for s in ready("MO-02", *SLOW, model="tiny-vocab"):
        for _ in range(3):
            t.equal("MO-02: a good one", s.complete([1, 2, 3], 5).status, 200)
        for _ in range(2):
            with s.stream(COMPLETE, {**ANSWER, "prompt": [1, 2, 3], "max_tokens": 900, "n": 8}) as stream:
                stream.events(1)
        t.equal("MO-02: a bad one", s.post(COMPLETE, {"prompt": [1], "temperature": -1}).status, 400)
        r = s.complete([7], 5)
        t.check("MO-02: one that the engine cannot compute", r.status == 500 and r.error["type"] == "server_error", r)
        s.wait_for(lambda: s.metrics()['stoa_requests_total{end="abort"}'] == 2, SOON_S)
        m = s.metrics()
        ends = {end: m[f'stoa_requests_total{{end="{end}"}}'] for end in ("stop", "length", "abort", "error", "bad_request", "refused")}
        t.equal("MO-02: each is counted once", ends, {"stop": 0, "length": 3, "abort": 2, "error": 1, "bad_request": 1, "refused": 0})


class Scraped(Looking):
    """At /metrics; what fell is in `fell`."""

    def __init__(self, server):
        super().__init__(server)
        self.n, self.fell, self.last = 0, [], {}

    def look(self):
        now = {k: v for k, v in self.server.metrics().items() if k.split("{")[0].endswith(("_total", "_bucket", "_count", "_sum"))}
        self.fell += [(k, v, now.get(k)) for k, v in self.last.items() if now.get(k, -1) < v]
        self.last, self.n = now, self.n + 1


def begin_many(s, n, r):
    """That many streams, each on a socket of its own, none of which is read."""
    sockets = []
    for _ in range(n):
        body = json.dumps({"prompt": "a" * r.randrange(1, 200), "max_tokens": r.randrange(1, 300), "ignore_eos": True, "stream": True}).encode()
        sock = socket.create_connection(("127.0.0.1", s.port), t.TIMEOUT_S)
        sock.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nX-Request-Id: one-id\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                     % len(body) + body)
        sockets.append(sock)
    return sockets


def test_a_cache_shorter_than_the_context():
    """KV-06: what can never fit is told before the headers, also of a stream."""
    for s in ready("KV-06", "--context", 512, "--cache-tokens", 256):
        t.equal("KV-06: the length that is told", s.get("/v1/models").json["data"][0]["max_model_len"], 256)
        for how, o in both_ways(s, COMPLETE, {"prompt": [5] * 300, "max_tokens": 5}):
            t.check(f"KV-06: the prompt is refused, {how}", (o.status, "context_length_exceeded" in str(o.error)) == (400, True), o.error)


def test_many_who_leave():
    """SS-14, MO-05: streams dropped at random moments, with too few blocks for all, leave nothing behind; counters only rise meanwhile."""
    r, rounds = random.Random(1), (500, 200, 200, 200, 200)
    for s in ready("SS-14", "--cache-tokens", 1024, "--max-sequences", 32):
        want = s.complete("Once upon a time", 40).text
        with Scraped(s) as scraped:
            together = at_once([lambda i=i: s.complete(f"{i} times", 400).json["usage"]["completion_tokens"] for i in range(6)])
            t.equal("MO-05: those for whom there are too few blocks are answered", together, [400] * 6)
            for n in rounds:
                sockets = begin_many(s, n, r)
                r.shuffle(sockets)
                for sock in sockets:
                    time.sleep(r.random() * 0.002)
                    sock.close()
            t.check("SS-14: all is quiet again", s.wait_for(lambda: is_idle(s), SOON_S), s.metrics())
            counted = s.wait_for(lambda: sum(v for k, v in s.metrics().items() if k.startswith("stoa_requests_total")) == 7 + sum(rounds), SOON_S)
            t.check("SS-14: each is counted once", counted, s.metrics())
        t.check("MO-05: counters only rise", scraped.n > 5 and not scraped.fell, (scraped.n, scraped.fell[:5]))
        m = s.metrics()
        t.check("MO-05: some were pushed out and computed anew", m["vllm:num_preemptions_total"] > 0, m["vllm:num_preemptions_total"])
        t.equal("SS-14: every block is free", m["vllm:kv_cache_usage_perc"], 0)
        t.equal("SS-14: and the same answer comes", s.complete("Once upon a time", 40).text, want)
        t.equal("SS-14: nothing was started again", m["stoa_replica_restarts_total"], 0)
        sockets = begin_many(s, 200, r)
        s.process.send_signal(signal.SIGTERM)
        for sock in sockets:
            sock.close()
        s.end("SS-14: a signal to end while many leave")


if __name__ == "__main__":
    t.run(globals())
