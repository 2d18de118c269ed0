#!/usr/bin/env python3
"""`stoa serve` while whoever reads its log leaves, or stops reading: nobody waits for a log."""
import fcntl
import http.client
import json
import os
import re
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from job import Job, t

SMALL_PIPE_BYTES = 8192


class Quiet(Job):
    """A server whose log is read as far as the line that says it is ready."""

    def __init__(self, *args):
        super().__init__("serve", t.tiny("tiny-q8_0"), "--port", "0", *args)
        fcntl.fcntl(self.process.stderr, fcntl.F_SETPIPE_SZ, SMALL_PIPE_BYTES)
        line = b"-"
        while line and b"ready: " not in line:
            line = self.process.stderr.readline()
        self.port = int(re.search(rb"http://.*:(\d+)", line).group(1)) if line else 0

    def complete(self, n):
        """The statuses of n completions on one connection; None where there was no answer."""
        found, connection = [], http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        for _ in range(n):
            try:
                connection.request("POST", "/v1/completions", json.dumps({"prompt": "a", "max_tokens": 1}), {"Content-Type": "application/json"})
                response = connection.getresponse()
                response.read()
                found.append(response.status)
            except (OSError, http.client.HTTPException):
                return found + [None]
        connection.close()
        return found

    def answers_within(self, seconds):
        end = time.monotonic() + seconds
        while self.complete(1) != [200] and time.monotonic() < end:
            time.sleep(0.1)
        return time.monotonic() < end


def test_reader_leaves():
    if not t.have_tiny("the log's reader leaves"):
        return
    for layout in ("tp=1", "tp=2"):
        with Quiet("--layout", layout) as s:
            s.process.stderr.close()
            t.equal(f"the log's reader leaves, {layout}: answers go on", s.complete(3), [200] * 3)
            os.kill(s.rank(1) or next(pid for pid in s.pids() if pid != s.process.pid), signal.SIGKILL)
            t.check(f"the log's reader leaves, {layout}: a replica that dies is started again", s.answers_within(t.TIMEOUT_S))
            s.process.send_signal(signal.SIGTERM)
            t.equal(f"the log's reader leaves, {layout}: and the end is as always", s.process.wait(t.TIMEOUT_S), 0)


def test_reader_stops():
    if not t.have_tiny("the log's reader stops"):
        return
    with Quiet() as s:
        t.equal("the log's reader stops: answers go on", s.complete(100), [200] * 100)
        first = os.read(s.process.stderr.fileno(), 65536).decode()
        t.check("the log's reader stops: the pipe was full", len(first) > SMALL_PIPE_BYTES // 4, len(first))
        s.complete(1)
        s.process.send_signal(signal.SIGTERM)
        rest = s.end("the log's reader stops", (0,))
        lost = re.search(r"nobody read the log: (\d+) lines are lost", rest)
        t.check("the log's reader stops: lost lines are counted", lost and first.count("\n") + int(lost.group(1)) == 100, rest)


if __name__ == "__main__":
    t.run(globals())
