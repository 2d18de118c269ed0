#!/usr/bin/env python3
"""`stoa serve` from outside: its routes, streams, errors, keys and counters, on one rank and on two."""
import http.client
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from server import SLOW, START_S, Server, ready, t, text_of

LAYOUTS = ("tp=1", "tp=2")
CHAT, COMPLETE = "/v1/chat/completions", "/v1/completions"
HELLO = {"messages": [{"role": "user", "content": "Hello there"}], "max_tokens": 12, "temperature": 0, "ignore_eos": True}


def served(name, *args, layouts=LAYOUTS):
    """Yields (name with the layout, a server) for each layout."""
    for layout in layouts:
        for server in ready(f"{name}, {layout}", "--layout", layout, *args):
            yield f"{name}, {layout}", server


# ---- answers ----
def test_answers():
    for name, s in served("answers"):
        run = t.stoa_json("run", t.tiny("tiny-q8_0"), "--raw", "-p", "Once upon a time", "-n", "16", "--ignore-eos")
        whole = s.complete("Once upon a time", 16, return_token_ids=True)
        t.equal(f"{name}: a completion is 200", whole.status, 200)
        t.equal(f"{name}: it is what `stoa run` says", whole.text, run["text"])
        t.equal(f"{name}: and so is its usage", (whole.json["usage"]["prompt_tokens"], whole.json["usage"]["completion_tokens"]), (run["prompt_tokens"], 16))
        t.equal(f"{name}: it ends by its length", whole.json["choices"][0]["finish_reason"], "length")
        with s.stream(COMPLETE, {"prompt": "Once upon a time", "max_tokens": 16, "temperature": 0, "ignore_eos": True}) as stream:
            found = stream.rest()
            t.equal(f"{name}: a stream says the same", text_of(found), whole.text)
            t.equal(f"{name}: and ends with [DONE]", found[-1], "[DONE]")
            t.equal(f"{name}: its type", stream.response.getheader("Content-Type").split(";")[0], "text/event-stream")
            t.equal(f"{name}: nobody keeps it", (stream.response.getheader("Cache-Control"), stream.response.getheader("X-Accel-Buffering")), ("no-cache", "no"))
        chat = s.post(CHAT, HELLO)
        t.check(f"{name}: a chat", chat.status == 200 and chat.json["choices"][0]["message"]["role"] == "assistant", chat)
        with s.stream(CHAT, {**HELLO, "stream_options": {"include_usage": True}}) as stream:
            found = stream.rest()
            t.equal(f"{name}: a streamed chat says the same", text_of(found), chat.text)
            t.equal(f"{name}: with its usage last", found[-2]["usage"]["total_tokens"], chat.json["usage"]["total_tokens"])
        t.check(f"{name}: the fingerprint is one of the numerics", chat.json["system_fingerprint"] == whole.json["system_fingerprint"] != "", chat)


def test_choices():
    for name, s in served("choices"):
        r = s.post(COMPLETE, {"prompt": ["One", "Two"], "n": 3, "max_tokens": 8, "temperature": 1.5, "seed": 5, "ignore_eos": True})
        t.check(f"{name}: two prompts, three answers each", r.status == 200 and sorted(c["index"] for c in r.json["choices"]) == list(range(6)), r)
        if r.status != 200:
            continue
        texts = {c["index"]: c["text"] for c in r.json["choices"]}
        t.check(f"{name}: sampled ones differ", len(set(texts.values())) > 1, texts)
        t.equal(f"{name}: all are counted", r.json["usage"]["completion_tokens"], 48)
        again = s.post(COMPLETE, {"prompt": ["One", "Two"], "n": 3, "max_tokens": 8, "temperature": 1.5, "seed": 5, "ignore_eos": True})
        t.equal(f"{name}: the same seed, the same texts", {c["index"]: c["text"] for c in again.json["choices"]}, texts)
        other = [s.post(COMPLETE, {"prompt": "One", "max_tokens": 8, "temperature": 1.5, "ignore_eos": True}).text for _ in range(4)]
        t.check(f"{name}: no seed, other texts", len(set(other)) > 1, other)


def test_stop():
    for name, s in served("stop", layouts=("tp=1",)):
        text = s.complete("Once upon a time", 40).text
        stop = text[10:13]
        r = s.complete("Once upon a time", 40, stop=[stop])
        t.equal(f"{name}: the text ends before it", r.text, text[:text.index(stop)])
        t.equal(f"{name}: the reason", r.json["choices"][0]["finish_reason"], "stop")
        t.check(f"{name}: fewer tokens are counted", r.json["usage"]["completion_tokens"] < 40, r)
        gone = s.wait_for(lambda: s.metrics()["vllm:num_requests_running"] == 0, 10)
        t.check(f"{name}: the rest is not computed", gone, s.metrics())


def test_many_clients():
    for name, s in served("many clients"):
        want = {i: s.complete(f"Client {i}", 24).text for i in range(8)}
        got = {}

        def ask(i):
            got[i] = s.complete(f"Client {i % 8}", 24).text
        threads = [threading.Thread(target=ask, args=(i,)) for i in range(32)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        t.equal(f"{name}: each gets the answer that it would get alone", [got.get(i) for i in range(32)], [want[i % 8] for i in range(32)])


# ---- routes ----
def test_routes():
    for name, s in served("routes", "--served-model-name", "my-model", layouts=("tp=1",)):
        models = s.get("/v1/models").json
        t.equal(f"{name}: the model has the name that it was given", [m["id"] for m in models["data"]], ["my-model"])
        t.check(f"{name}: and a length", models["data"][0]["max_model_len"] > 0, models)
        t.equal(f"{name}: it can be asked for alone", s.get("/v1/models/my-model").json["id"], "my-model")
        t.equal(f"{name}: another is not there", s.get("/v1/models/other").status, 404)
        t.equal(f"{name}: any name is served, and echoed", s.complete("a", 1, model="gpt-4o").json["model"], "gpt-4o")
        t.check(f"{name}: /version", "version" in s.get("/version").json)
        t.check(f"{name}: /openapi.json", s.get("/openapi.json").json["openapi"].startswith("3."))
        ids = s.post("/tokenize", {"prompt": "Hello there"}).json["tokens"]
        t.equal(f"{name}: tokens there and back", s.post("/detokenize", {"tokens": ids}).json["prompt"], "Hello there")
        for path in ("/live", "/health", "/ready"):
            t.equal(f"{name}: {path}", s.status(path), 200)
        t.equal(f"{name}: HEAD", (s.ask("HEAD", "/live").status, s.ask("HEAD", "/live").body), (200, b""))
        t.equal(f"{name}: OPTIONS", s.ask("OPTIONS", CHAT).status, 204)
        r = s.get(CHAT)
        t.check(f"{name}: 405 says what may be", r.status == 405 and "POST" in r.headers["allow"], r)
        t.equal(f"{name}: no such route", s.get("/v2/models").status, 404)
        t.equal(f"{name}: another type of body", s.post(CHAT, "{}", headers={"Content-Type": "text/plain"}).status, 415)
        r = s.get("/live", headers={"x-request-id": "abc-1"})
        t.equal(f"{name}: the request's id comes back", r.headers["x-request-id"], "abc-1")


def test_cors():
    for name, s in served("cors", "--cors-origin", "http://page.example", layouts=("tp=1",)):
        t.equal(f"{name}: the origin may ask", s.complete("a", 1).headers.get("access-control-allow-origin"), "http://page.example")
        r = s.ask("OPTIONS", CHAT, headers={"Origin": "http://page.example", "Access-Control-Request-Method": "POST"})
        t.check(f"{name}: and learns so before", r.status == 204 and "POST" in r.headers.get("access-control-allow-methods", ""), r)
    for name, s in served("no cors", layouts=("tp=1",)):
        t.equal(f"{name}: nobody else", s.complete("a", 1).headers.get("access-control-allow-origin"), None)


def test_errors():
    for name, s in served("errors", layouts=("tp=1",)):
        with s.stream(COMPLETE, {"prompt": "beside", "max_tokens": 200, "ignore_eos": True, "temperature": 0}) as beside:
            for what, body, param in (
                    ("no messages", {"messages": []}, "messages"),
                    ("a message that is none", {"messages": [42]}, "messages"),
                    ("no such role", {"messages": [{"role": "robot", "content": "hi"}]}, "messages"),
                    ("a temperature below 0", {**HELLO, "temperature": -1}, "temperature"),
                    ("a million choices", {**HELLO, "n": 1000000}, "n"),
                    ("a bias of nobody", {**HELLO, "logit_bias": {"999999": -100}}, "logit_bias"),
                    ("no tokens", {**HELLO, "max_tokens": -1}, "max_tokens"),
                    ("a format of a later version", {**HELLO, "response_format": {"type": "json_object"}}, "response_format")):
                start = time.monotonic()
                r = s.post(CHAT, body)
                t.check(f"{name}: {what}", r.status == 400 and param in (r.error["param"] or "") and r.error["type"] and r.error["message"], r)
                t.check(f"{name}: {what}: soon", time.monotonic() - start < 5)
            for what, body in (("no JSON", "{"), ("NaN", '{"messages": [], "temperature": NaN}'), ("bad bytes", b'{"prompt": "\xff"}'), ("nothing", ""),
                               ("a million brackets", "[" * 1000000)):
                r = s.post(CHAT, body)
                t.check(f"{name}: {what}", r.status == 400 and r.error["message"], r)
            r = s.complete("word " * 60000, 4)
            t.check(f"{name}: too long a prompt", r.status == 400 and r.error["code"] == "context_length_exceeded", r)
            t.equal(f"{name}: the stream beside goes on", beside.rest()[-1], "[DONE]")
        t.check(f"{name}: an unknown field is accepted", s.complete("a", 1, frobnicate=1, frobnicated=None).status == 200)
        t.check(f"{name}: twice", s.complete("a", 1, frobnicate=1).status == 200)
        told = s.wait_for(lambda: [line for line in s.log if '"frobnicate"' in line], 5)
        t.check(f"{name}: and told of once", told and len(told) == 1, s.log[-5:])
        t.check(f"{name}: no line of the log has a prompt's text", not any("upon" in line or "Hello there" in line for line in s.log), s.log)
    for name, s in served("strict", "--strict", layouts=("tp=1",)):
        r = s.complete("a", 1, frobnicate=1)
        t.check(f"{name}: an unknown field", r.status == 400 and r.error["param"] == "frobnicate", r)


def test_few_files():
    """`ulimit -n` leaves room for few connections: it serves, and says so."""
    def few():
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    if not t.have_tiny("few files"):
        return
    with Server(t.tiny("tiny-q8_0"), preexec_fn=few) as s:
        t.equal("few files: it serves", s.complete("a", 2).status, 200)
        t.check("few files: and says why there are few connections", any("ulimit -n" in line for line in s.log), s.log)


# ---- keys ----
def test_keys():
    if not t.have_tiny("keys"):
        return
    with tempfile.NamedTemporaryFile("w") as f:
        f.write("# the team\nsecret-1\n\nsecret-2\n")
        f.flush()
        for name, s in served("keys", "--api-key-file", f.name, "--metrics-key", "numbers", layouts=("tp=1",)):
            for path in ("/v1/models", "/version", "/openapi.json", "/nowhere"):
                r = s.get(path)
                t.check(f"{name}: {path} wants one", r.status in (401, 404) and (r.status == 404 or "www-authenticate" in r.headers), r)
            body = {"prompt": "a", "max_tokens": 1}
            for key, status in (("secret-1", 200), ("secret-2", 200), ("secret", 401), ("secret-11", 401), ("", 401), ("# the team", 401)):
                t.equal(f"{name}: with {key!r}", s.post(COMPLETE, body, headers={"Authorization": f"Bearer {key}"}).status, status)
            r = s.post(COMPLETE, body)
            t.check(f"{name}: with none", r.status == 401 and r.error["message"] and "www-authenticate" in r.headers, r)
            for path in ("/live", "/health", "/ready"):
                t.equal(f"{name}: {path} is open", s.status(path), 200)
            t.equal(f"{name}: OPTIONS is open", s.ask("OPTIONS", CHAT).status, 204)
            t.equal(f"{name}: /metrics has its own", [s.get("/metrics", headers={"Authorization": f"Bearer {key}"}).status for key in ("secret-1", "numbers")],
                    [401, 200])
            t.check(f"{name}: no key is in the log", not any("secret" in line for line in s.log), s.log)
        for what, text in (("no key in it", "# nothing\n"), ("no file", None)):
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "keys")
                if text:
                    with open(path, "w") as keys:
                        keys.write(text)
                r = t.stoa("serve", t.tiny("tiny-q8_0"), "--port", "0", "--api-key-file", path)
                t.check(f"keys: {what}", r.code == 2 and path in r.err, r)


# ---- fairness ----
def is_next(name, s, many, one):
    """Four requests of one client, then one of another: that one does not wait for all of them."""
    order = []

    def ask(who, how):
        connection = s.connect() if "key" in how else http.client.HTTPConnection("127.0.0.1", s.port, timeout=t.TIMEOUT_S, source_address=(how["from"], 0))
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {how['key']}"} if "key" in how else {})}
        connection.request("POST", COMPLETE, json.dumps({"prompt": who, "max_tokens": 600, "ignore_eos": True}), headers)
        response = connection.getresponse()
        response.read()
        order.append((who, response.status))
        connection.close()
    threads = [threading.Thread(target=ask, args=("many", many)) for _ in range(4)] + [threading.Thread(target=ask, args=("one", one))]
    for thread in threads[:-1]:
        thread.start()
    t.check(f"{name}: they wait", s.wait_for(lambda: s.metrics()["vllm:num_requests_waiting"] == 3, 20))
    threads[-1].start()
    for thread in threads:
        thread.join()
    t.check(f"{name}: all are answered", [status for _, status in order] == [200] * 5, order)
    t.check(f"{name}: the other client's is among the first", ("one", 200) in order[:3], order)


def test_fairness():
    flags = ("--max-sequences", 1, *SLOW, "--threads", 1)
    for s in ready("fair to addresses", *flags):
        is_next("fair to addresses", s, {"from": "127.0.0.1"}, {"from": "127.0.0.2"})
    with tempfile.NamedTemporaryFile("w") as f:
        f.write("first\nsecond\n")
        f.flush()
        for s in ready("fair to keys", "--api-key-file", f.name, *flags):
            is_next("fair to keys", s, {"key": "first"}, {"key": "second"})


# ---- counters ----
def test_metrics():
    for name, s in served("metrics", *SLOW):
        before = s.metrics()
        for _ in range(3):
            s.complete("a b c", 5)
        s.post(COMPLETE, {"prompt": "a b c", "max_tokens": 5, "n": 2, "ignore_eos": True})
        s.post(CHAT, {"messages": []})
        for _ in range(2):
            with s.stream(COMPLETE, {"prompt": "a b c", "max_tokens": 1000, "ignore_eos": True}) as stream:
                stream.events(1)
        s.wait_for(lambda: s.metrics()['stoa_requests_total{end="abort"}'] == 2, 20)
        after = s.metrics()
        step = {k: after[k] - before.get(k, 0) for k in after}
        n_prompt = s.complete("a b c", 1).json["usage"]["prompt_tokens"]
        t.equal(f"{name}: ends by reason", [step[f'stoa_requests_total{{end="{e}"}}'] for e in ("length", "abort", "error", "bad_request")], [4, 2, 0, 1])
        t.equal(f"{name}: as vLLM has them", [step[f'vllm:request_success_total{{finished_reason="{e}"}}'] for e in ("length", "abort")], [4, 2])
        t.equal(f"{name}: MO-04: choices are counted each", step["stoa_choices_total"], 5)
        t.equal(f"{name}: MO-04: a prompt is counted once", step["vllm:prompt_tokens_total"], 6 * n_prompt)
        t.check(f"{name}: tokens", 25 + 2 <= step["vllm:generation_tokens_total"], step["vllm:generation_tokens_total"])
        t.equal(f"{name}: histograms add up", [step[k] for k in ("vllm:e2e_request_latency_seconds_count", "vllm:time_to_first_token_seconds_count")], [4, 6])
        parts = [step[f"vllm:request_{k}_time_seconds_sum"] for k in ("queue", "prefill", "decode")]
        t.equal(f"{name}: the replica's part too", [step[f"vllm:request_{k}_time_seconds_count"] for k in ("queue", "prefill", "decode", "inference")], [4] * 4)
        t.check(f"{name}: parts are no more than the whole", 0 < sum(parts) < step["vllm:e2e_request_latency_seconds_sum"], parts)
        t.equal(f"{name}: what was asked for", [step[f"vllm:request_params_{k}_sum"] for k in ("n", "max_tokens")], [5, 20])
        t.equal(f"{name}: the longest of several choices", step["vllm:request_max_num_generation_tokens_sum"], 20)
        t.equal(f"{name}: each step has a size", after["vllm:iteration_tokens_total_count"], after["stoa_replica_steps_total"])
        least = after["vllm:generation_tokens_total"] - 6 + n_prompt        # a report comes twice a second
        told = s.wait_for(lambda: s.metrics()["vllm:iteration_tokens_total_sum"] >= least, 10)
        t.check(f"{name}: steps computed every token", told, (least, s.metrics()["vllm:iteration_tokens_total_sum"]))
        t.equal(f"{name}: routes", step['stoa_http_requests_total{route="/v1/chat/completions",status="400"}'], 1)
        t.equal(f"{name}: the replica is up", (after["stoa_replica_up"], after["stoa_replica_restarts_total"]), (1, 0))
        text = s.get("/metrics").body.decode()
        t.check(f"{name}: the model's name", 'vllm:num_requests_running{model_name="tiny-q8_0"}' in text, text[:300])


def test_a_full_cache():
    """Of a model with windows the pool counts that is fullest for its size, whichever has the fewest blocks."""
    name, fullest = "a full cache", 0
    flags = ("--cache-tokens", 2048, "--max-sequences", 4, "--chunk", 16, "--context", 1024, "--threads", 1)
    for s in ready(name, *flags, model="tiny-gemma3"):
        end = time.monotonic() + START_S

        def ask(i):
            while fullest <= 0.8 and time.monotonic() < end:
                s.post(COMPLETE, {"prompt": [i + 5] * 900, "max_tokens": 120, "ignore_eos": True})
        threads = [threading.Thread(target=ask, args=(i,)) for i in range(16)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            fullest = max(fullest, s.metrics()["vllm:kv_cache_usage_perc"])
            time.sleep(0.05)
        t.check(f"{name}: two of 1,000 tokens fill a cache of 2,048", 0.8 < fullest <= 1, fullest)


# ---- clients that leave ----
def leave_at(s, random_numbers):
    """Asks, and leaves when it likes."""
    with s.stream(COMPLETE, {"prompt": "a" * random_numbers.randrange(1, 400), "max_tokens": 500, "n": 2, "ignore_eos": True}) as stream:
        stream.events(random_numbers.randrange(4))
        time.sleep(random_numbers.random() / 10)


def test_clients_leave():
    for name, s in served("clients leave"):
        for stream in (True, False):
            c = s.connect()
            c.request("POST", COMPLETE, json.dumps({"prompt": "a", "max_tokens": 100000, "n": 4, "ignore_eos": True, "stream": stream}),
                      {"Content-Type": "application/json"})
            s.wait_for(lambda: s.metrics()["vllm:num_requests_running"] > 0, 10)
            c.close()
            c.sock = None
        quiet = s.wait_for(lambda: s.metrics()["vllm:num_requests_running"] == 0 and s.metrics()["vllm:num_requests_waiting"] == 0, 10)
        t.check(f"{name}: nothing is computed for them", quiet, s.metrics())
        together = [threading.Thread(target=leave_at, args=(s, random.Random(i))) for i in range(80)]
        for thread in together:
            thread.start()
        for thread in together:
            thread.join()
        quiet = s.wait_for(lambda: s.metrics()["vllm:num_requests_running"] == 0 and s.metrics()["vllm:num_requests_waiting"] == 0, 10)
        t.check(f"{name}: nor after many who left at random", quiet, s.metrics())
        t.check(f"{name}: all blocks are free", s.wait_for(lambda: s.metrics()["vllm:kv_cache_usage_perc"] == 0, 5), s.metrics()["vllm:kv_cache_usage_perc"])
        t.equal(f"{name}: and it goes on", s.complete("a", 3).status, 200)


# ---- the official client ----
def test_openai_client():
    python = os.environ.get("OPENAI_PYTHON")
    if not python:
        return t.skip("the openai client", "OPENAI_PYTHON is not set: scripts/openai-client prints it")
    t.side_by_side(lambda layout: drives_all(python, layout), LAYOUTS)


def drives_all(python, layout):
    for name, s in served("the openai client", layouts=(layout,)):
        r = subprocess.run([python, os.path.join(os.path.dirname(os.path.abspath(__file__)), "openai_client.py"), f"http://127.0.0.1:{s.port}/v1"],
                           capture_output=True, text=True, timeout=t.TIMEOUT_S)
        t.check(name, r.returncode == 0 and r.stdout.endswith("all is well\n"), r.stdout[-500:] + r.stderr[-2000:])


if __name__ == "__main__":
    t.run(globals())
