"""idle.py: what connections that only wait cost those that are busy, as a ratio of their tokens a second with and without.

Busy are streams with long answers, all that the server computes at a time.  Of those that wait a half are streams in its queue, which get a comment now and
then that nobody reads; the other half are connections that have asked something and rest.  Windows alternate, since a token takes longer the more there are
before it: each with waiting ones is compared with what those before and after it let expect (rate_between)."""
import re
import selectors
import socket
import statistics
import sys
import threading
import time
import urllib.request

from measure import log, wait_for_calm

LONGEST_WAIT_S = 120


def rate_between(before, after):
    """Of tokens a second in a window that is as far from one as from the other: n tokens on, a token takes a + b n seconds, so that one over the
    square of the rate grows by as much in each second."""
    return (2 / (before ** -2 + after ** -2)) ** 0.5


class Readers:
    """Reads whatever comes, on a thread of its own, until it is closed."""

    def __init__(self, sockets):
        self.selector, self.is_over = selectors.DefaultSelector(), False
        for s in sockets:
            self.selector.register(s, selectors.EVENT_READ)
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self):
        while not self.is_over and self.selector.get_map():
            for key, _ in self.selector.select(0.1):
                if not key.fileobj.recv(1 << 16):
                    self.selector.unregister(key.fileobj)

    def close(self):
        self.is_over = True
        self.thread.join()


class Beside:
    def __init__(self, target, n_busy, n_waiting, window_s):
        self.target, self.n_busy, self.n_waiting, self.window_s = target, n_busy, n_waiting, window_s

    def dial(self, request):
        s = socket.create_connection((self.target.at.hostname, self.target.at.port or 80))
        s.sendall(request)
        return s

    def stream(self, n_tokens):
        return self.dial(self.target.request([20], n_tokens))

    def rests(self):
        s = self.dial(f"GET /live HTTP/1.1\r\nHost: {self.target.at.netloc}\r\n\r\n".encode())
        s.recv(4096)
        return s

    def metric(self, name):
        with urllib.request.urlopen(self.target.at._replace(path="/metrics").geturl(), timeout=LONGEST_WAIT_S) as answer:
            return float(re.search(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", answer.read().decode(), re.M).group(1))

    def until(self, name, value):
        end = time.monotonic() + LONGEST_WAIT_S
        while self.metric(name) != value:
            if time.monotonic() > end:
                sys.exit(f"{name} is {self.metric(name)} after {LONGEST_WAIT_S} s, and not {value}")
            time.sleep(0.1)

    def window(self):
        """Tokens a second."""
        n, start = self.metric("vllm:generation_tokens_total"), time.monotonic()
        time.sleep(self.window_s)
        rate = (self.metric("vllm:generation_tokens_total") - n) / (time.monotonic() - start)
        if self.metric("vllm:num_requests_running") != self.n_busy:
            sys.exit("the answers of the busy streams were too short for so many rounds")
        return rate

    def beside(self):
        n_queued = self.n_waiting // 2
        waiting = [self.stream(4) for _ in range(n_queued)] + [self.rests() for _ in range(self.n_waiting - n_queued)]
        self.until("vllm:num_requests_waiting", n_queued)
        rate = self.window()
        for s in waiting:
            s.close()
        self.until("vllm:num_requests_waiting", 0)
        return rate

    def ratios(self, rounds, n_tokens):
        """One of each round."""
        busy = [self.stream(n_tokens) for _ in range(self.n_busy)]
        readers, found = Readers(busy), []
        try:
            self.until("vllm:num_requests_running", self.n_busy)
            before = self.window()
            for _ in range(rounds):
                beside, after = self.beside(), self.window()
                found.append(beside / rate_between(before, after))
                log(f"{before:.1f} tokens/s, {beside:.1f} beside {self.n_waiting} that wait, {after:.1f}: {found[-1]:.3f}")
                before = after
        finally:
            readers.close()
            for s in busy:
                s.close()
        return found


def measure(target, n_busy, n_waiting, n_tokens, rounds, window_s, calm_s):
    wait_for_calm(calm_s)
    ratios = Beside(target, n_busy, n_waiting, window_s).ratios(rounds, n_tokens)
    return {"busy": n_busy, "waiting": n_waiting, "window_s": window_s, "ratios": ratios, "median": statistics.median(ratios)}
