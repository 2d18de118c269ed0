#!/usr/bin/env python3
"""bench/load.py against servers that send what they are told, when they are told."""
import json
import os
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import stoa_test as t
sys.path.insert(0, os.path.join(t.ROOT, "bench"))
import load

PAUSE_S = 0.2


def event(text=None, **more):
    return b"data: " + json.dumps({"choices": [] if text is None else [{"text": text}], **more}).encode() + b"\n\n"


def head(more="", status=200):
    return f"HTTP/1.1 {status} x\r\nContent-Type: text/event-stream\r\n{more}\r\n".encode()


def chunks(*parts):
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)


def single(text):
    return [text[i:i + 1] for i in range(len(text))]


CHUNKED = head("Transfer-Encoding: chunked\r\n")
USAGE = event(usage={"completion_tokens": 5})
DONE = b"data: [DONE]\n\n"
# What is sent, with a pause after each part; tokens, and how many parts had come when each piece of text came; or what the error has.
ROWS = (
    ("plain", [head(), event("a"), event("b") + event("c"), USAGE + DONE], 5, [2, 3, 3]),
    ("in chunks", [CHUNKED + chunks(event("a")), chunks(event("b"), event("c")), chunks(USAGE, DONE) + b"0\r\n\r\n"], 5, [1, 2, 2]),
    ("an event in two chunks", [CHUNKED + chunks(event("a")[:9]), chunks(event("a")[9:], USAGE, DONE) + b"0\r\n\r\n"], 5, [2]),
    ("a chunk in two parts", [CHUNKED + chunks(event("a") + event("b"))[:40],
     chunks(event("a") + event("b"))[40:] + chunks(USAGE + DONE) + b"0\r\n\r\n"], 5, [1, 2]),
    ("chunks of a byte", [CHUNKED + chunks(*single(event("a"))), chunks(*single(event("b") + USAGE + DONE)) + b"0\r\n\r\n"], 5, [1, 2]),
    ("a comment, an event without text", [head(), b": keep-alive\n\n", event("") + event("a"), USAGE + DONE], 5, [3]),
    ("an error", [head(), event("a"), b'data: {"error": {"message": "gone"}}\n\n'], "gone", None),
    ("no count", [head(), event("a"), DONE], "0 tokens", None),
    ("not the tokens that were asked for", [head(), event("a"), event(usage={"completion_tokens": 4}) + DONE], "4 tokens", None),
    ("no end", [head(), event("a")], "1 pieces", None),
    ("refused", [head(status=429) + b'{"error": "later"}'], "429", None),
    ("nothing", [b""], "status 0", None),
)


def send(listener, parts, sent):
    client, _ = listener.accept()
    with client:
        request = b""
        while b"\r\n\r\n" not in request or len(request.split(b"\r\n\r\n", 1)[1]) < int(request.split(b"Content-Length: ")[1].split(b"\r\n")[0]):
            request += client.recv(65536)
        for part in parts:
            sent.append(time.monotonic())
            client.sendall(part)
            time.sleep(PAUSE_S)


def test_streams():
    for name, parts, tokens, places in ROWS:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            sent = []
            server = threading.Thread(target=send, args=(listener, parts, sent))
            server.start()
            got = load.Target(f"http://127.0.0.1:{listener.getsockname()[1]}", "m").load([0.0], 4, 5, 1, limit_s=30)
            server.join()
        if places is None:
            t.check(f"{name}: an error", got["errors"] and tokens in got["errors"][0] and not got["tokens"], got)
            continue
        t.equal(f"{name}: no error", got["errors"], [])
        t.equal(f"{name}: tokens", got["tokens"], tokens)
        want = [sent[later - 1] - sent[before - 1] for before, later in zip(places, places[1:])]
        t.check(f"{name}: gaps", len(got["gaps"]) == len(want) and all(abs(a - b) < PAUSE_S / 2 for a, b in zip(got["gaps"], want)), (got["gaps"], want))


def test_figures():
    answers = [{"error": None, "due": 0.0, "tokens": 3, "times": [1.0, 2.0, 4.0]}, {"error": None, "due": 1.0, "tokens": 5, "times": [2.0, 6.0]},
               {"error": "gone", "due": 0.5, "tokens": 0, "times": []}]
    got = load.figures_of([{**load.of_answers(answers), "client_cpu_s": 0.6}])
    t.equal("figures: failed ones are counted", (got["requests"], got["failed"]), (3, 1))
    t.equal("figures: tokens/s, to the last token", got["tokens_per_s"]["median"], 8 / 6)
    t.equal("figures: the first token, from when it was due", got["first_token_s"], {"median": 1.0, "p95": 1.0})
    t.equal("figures: time per token", got["per_token_s"], {"median": 1.0, "p95": 1.5})
    t.equal("figures: gaps", got["gap_s"]["p99"], 4.0)
    none = load.figures_of([{**load.of_answers(answers[2:]), "client_cpu_s": 0.0}])
    t.equal("figures: of nothing", (none["tokens_per_s"]["best"], none["gap_s"]["p99"]), (0.0, None))


def test_poisson():
    at = load.poisson(4000, 50.0, 1)
    t.check("arrivals: as many a second as wanted", 0.9 < at[-1] / (4000 / 50.0) < 1.1, at[-1])
    t.equal("arrivals: the same seed, the same moments", load.poisson(10, 1.0, 7), load.poisson(10, 1.0, 7))


if __name__ == "__main__":
    t.run(globals())
