"""load.py: streams of an OpenAI server under load: requests that begin at given times, and when each of their tokens came.

One thread reads all sockets, and while it measures it only notes what came when; what that was is looked at afterwards.  A request is timed from when
it was due, its connection included, so that a client that is late makes no server look fast."""
import asyncio
import bisect
import json
import math
import random
import statistics
import time
import urllib.parse

IDS = range(20, 300)            # of a prompt: in every vocabulary, and special in none


class Stream(asyncio.Protocol):
    """One request on a connection of its own."""

    def __init__(self, request, due):
        self.request, self.due, self.pieces = request, due, []
        self.over = asyncio.get_running_loop().create_future()

    def connection_made(self, transport):
        transport.write(self.request)

    def data_received(self, data):
        self.pieces.append((time.monotonic(), data))

    def connection_lost(self, exception):
        if not self.over.done():
            self.over.set_result(exception)


def body_of(raw):
    """Status, body, and where in raw its parts end: [(bytes of the body so far, bytes of raw so far)]."""
    head, _, rest = raw.partition(b"\r\n\r\n")
    at = len(raw) - len(rest)
    status = int(head[9:12] or 0)
    if b"transfer-encoding: chunked" not in head.lower():
        return status, rest, [(len(rest), len(raw))]
    body, ends = b"", []
    while at < len(raw):
        line_end = raw.find(b"\r\n", at)
        size = int(raw[at:line_end].split(b";")[0] or b"0", 16) if line_end > 0 else 0
        if not size:
            break
        at = line_end + 2
        body += raw[at:at + size]
        at += size + 2
        ends.append((len(body), at - 2))
    return status, body, ends


def read_stream(stream, n_tokens):
    """What became of it: {"tokens": by the server's count, "times": of each piece of text, "error": None or text}."""
    raw = b"".join(data for _, data in stream.pieces)
    raw_ends, total = [], 0
    for _, data in stream.pieces:
        total += len(data)
        raw_ends.append(total)
    status, body, ends = body_of(raw)
    times, tokens, is_whole, at = [], 0, False, 0
    for line in body.splitlines(keepends=True):
        at += len(line)
        if not line.startswith(b"data: ") or not line.endswith(b"\n"):
            continue
        if line.strip() == b"data: [DONE]":
            is_whole = True
            continue
        event = json.loads(line[6:])
        if "error" in event:
            return {"error": json.dumps(event["error"]), "tokens": 0, "times": []}
        tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
        if any(choice.get("text") for choice in event.get("choices", ())):
            part = bisect.bisect_left(ends, (at,))
            behind = ends[part][1] - (ends[part][0] - at)       # where the line ends in raw
            times.append(stream.pieces[bisect.bisect_left(raw_ends, behind)][0])
    error = None if status == 200 and is_whole and times else f"status {status}, {len(times)} pieces of text, {body[-200:]!r}"
    if not error and tokens != n_tokens:
        error = f"{tokens} tokens by its usage, {n_tokens} were asked for"
    return {"error": error, "tokens": tokens, "times": times}


class Target:
    """An OpenAI server, by the address before /v1."""

    def __init__(self, url, model):
        self.at, self.model = urllib.parse.urlsplit(url), model

    def request(self, prompt, n_tokens, fields=None):
        body = json.dumps({"model": self.model, "prompt": prompt, "max_tokens": n_tokens, "temperature": 0, "ignore_eos": True, "stream": True,
                           "stream_options": {"include_usage": True}, **(fields or {})}).encode()
        head = (f"POST {self.at.path.rstrip('/')}/v1/completions HTTP/1.1\r\nHost: {self.at.netloc}\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n")
        return head.encode() + body

    async def stream(self, request, due, limit_s):
        await asyncio.sleep(max(due - time.monotonic(), 0))
        stream = Stream(request, due)
        try:
            transport, _ = await asyncio.get_running_loop().create_connection(lambda: stream, self.at.hostname, self.at.port or 80)
        except OSError as error:
            return stream, str(error)
        try:
            await asyncio.wait_for(stream.over, limit_s)
        except asyncio.TimeoutError:
            transport.abort()
            return stream, f"not over after {limit_s} s"
        return stream, None

    async def run(self, requests, offsets, limit_s):
        start = time.monotonic()
        return await asyncio.gather(*(self.stream(r, start + at, limit_s) for r, at in zip(requests, offsets)))

    def load(self, offsets, n_prompt, n_tokens, seed, fields=None, limit_s=600):
        """A request at each of these seconds, no two prompts alike, greedy unless its fields say otherwise; one round for figures_of()."""
        pick = random.Random(seed)
        requests = [self.request([pick.choice(IDS) for _ in range(n_prompt)], n_tokens, fields) for _ in offsets]
        cpu = time.process_time()
        done = asyncio.run(self.run(requests, offsets, limit_s))
        cpu = time.process_time() - cpu
        answers = []
        for stream, error in done:
            answer = {"error": error, "tokens": 0, "times": []} if error else read_stream(stream, n_tokens)
            answers.append({**answer, "due": stream.due})
        return {**of_answers(answers), "client_cpu_s": cpu}


def of_answers(answers):
    """Samples of those that went well, and the errors of the others."""
    good = [a for a in answers if not a["error"]]
    end = max((a["times"][-1] for a in good), default=0)
    return {"n": len(answers), "errors": [a["error"] for a in answers if a["error"]], "tokens": sum(a["tokens"] for a in good),
            "seconds": end - min(a["due"] for a in answers),
            "first": [a["times"][0] - a["due"] for a in good],
            "per_token": [(a["times"][-1] - a["times"][0]) / (a["tokens"] - 1) for a in good if a["tokens"] > 1],
            "gaps": [later - before for a in good for before, later in zip(a["times"], a["times"][1:])]}


def poisson(n, rate, seed):
    """n moments, at that many a second on average."""
    pick, at, found = random.Random(seed), 0.0, []
    for _ in range(n):
        found.append(at)
        at += pick.expovariate(rate)
    return found


def quantile(samples, q):
    """The smallest sample that a share q of them does not exceed; None of none."""
    ordered = sorted(samples)
    return ordered[max(math.ceil(q * len(ordered)) - 1, 0)] if ordered else None


def figures_of(rounds):
    """Of the same load, some times over: tokens/s by round, the rest over all requests."""
    rates = [r["tokens"] / r["seconds"] for r in rounds if r["tokens"]]
    first, per_token, gaps = ([x for r in rounds for x in r[key]] for key in ("first", "per_token", "gaps"))
    return {"requests": sum(r["n"] for r in rounds), "failed": sum(len(r["errors"]) for r in rounds),
            "tokens_per_s": {"best": max(rates, default=0.0), "median": statistics.median(rates) if rates else 0.0},
            "first_token_s": {"median": quantile(first, 0.5), "p95": quantile(first, 0.95)},
            "per_token_s": {"median": quantile(per_token, 0.5), "p95": quantile(per_token, 0.95)},
            "gap_s": {"p99": quantile(gaps, 0.99)},
            "client_cores": sum(r["client_cpu_s"] for r in rounds) / max(sum(r["seconds"] for r in rounds), 1e-9)}
