"""`stoa serve` seen from outside, for tests: it is started, asked over HTTP, and whatever is left of it is ended."""
import http.client
import json
import os
import re
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from job import ALLOWED_S, Job, t

START_S = 60                # on a crowded machine
# A tiny model with it computes 200 to 1,000 tokens a second, by the machine; as it comes, up to 15,000 of one sequence and 75,000 of many.  For what
# must still run when a test has looked at it.
SLOW = ("--isa", "c")


class Answer:
    def __init__(self, response, body):
        self.status, self.headers, self.body = response.status, dict((k.lower(), v) for k, v in response.getheaders()), body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        return self.json["error"]

    @property
    def text(self):
        choice = self.json["choices"][0]
        return choice["message"]["content"] if "message" in choice else choice["text"]

    def __str__(self):
        return f"{self.status} {self.headers} {self.body[:600]!r}"


def events(body):
    """The data of a stream's events; comments are left out, "[DONE]" stays a string."""
    found = []
    for line in body.decode().split("\n"):
        if line.startswith("data: "):
            data = line[len("data: "):]
            found.append(data if data == "[DONE]" else json.loads(data))
    return found


class Server(Job):
    """`stoa serve MODEL --port 0 ...`; `with` waits until it is ready, unless told not to."""

    def __init__(self, model, *args, is_ready=True, **more):
        super().__init__("serve", model, "--port", "0", *args, stdout=subprocess.DEVNULL, **more)
        self.log, self.port, self.has_log = [], None, threading.Condition()
        self.reader = threading.Thread(target=self.read_log, daemon=True)
        self.reader.start()
        self.wait_for(lambda: self.port, START_S)
        if is_ready and self.port:
            self.wait_ready()

    def read_log(self):
        for line in self.process.stderr:
            line = line.decode(errors="replace").rstrip("\n")
            found = re.search(r"listening at http://.*:(\d+)", line)
            with self.has_log:
                self.log.append(line)
                if found:
                    self.port = int(found.group(1))
                self.has_log.notify_all()

    def wait_for(self, what, seconds):
        """What it gives, as soon as it is true; None after that time, or when the server has ended."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = what()
            if found:
                return found
            if self.process.poll() is not None and not self.reader.is_alive():
                return what() or None
            time.sleep(0.02)
        return None

    def wait_ready(self, seconds=START_S):
        is_ready = self.wait_for(lambda: self.status("/ready") == 200, seconds)
        self.pids()
        return is_ready

    def __exit__(self, *exception):
        """The front first: what its job leaves in /dev/shm is removed by processes of it."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        end = time.monotonic() + ALLOWED_S
        while self.pids() and time.monotonic() < end:
            time.sleep(0.02)
        self.kill_all()
        self.reader.join(10)
        super().__exit__(*exception)
        faults = [line for line in self.log if "Sanitizer" in line or "runtime error" in line]
        t.check("no sanitizer has anything to say", not faults, faults)
        untimed = [line for line in self.log if "stoa: " in line and not re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z stoa: ", line)]
        t.check("each line of the log has its time", not untimed, untimed)

    # ---- asking ----
    def connect(self, timeout=t.TIMEOUT_S):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def ask(self, method, path, body=None, headers=None, timeout=t.TIMEOUT_S):
        connection = self.connect(timeout)
        try:
            if body is not None and not isinstance(body, (bytes, str)):
                body = json.dumps(body)
            headers = {**({"Content-Type": "application/json"} if body is not None else {}), **(headers or {})}
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return Answer(response, response.read())
        finally:
            connection.close()

    def get(self, path, **more):
        return self.ask("GET", path, **more)

    def post(self, path, body, **more):
        return self.ask("POST", path, body, **more)

    def status(self, path):
        """0: it does not answer."""
        try:
            return self.get(path, timeout=5).status
        except OSError:
            return 0

    def complete(self, prompt, n_tokens, **more):
        return self.post("/v1/completions", {"prompt": prompt, "max_tokens": n_tokens, "temperature": 0, "ignore_eos": True, **more})

    def metrics(self):
        """{'name{labels but model_name}': value}"""
        found = {}
        for line in self.get("/metrics").body.decode().split("\n"):
            if line and line[0] != "#":
                name, value = line.rsplit(" ", 1)
                found[re.sub(r'model_name="[^"]*",?', "", name).replace("{}", "")] = float(value)
        return found

    def stream(self, path, body, headers=None):
        return Stream(self, path, {**body, "stream": True}, headers or {})

    # ---- its processes ----
    @staticmethod
    def command(pid):
        with open(f"/proc/{pid}/comm") as f:
            return f.read().strip()

    def ranks(self, n):
        """The pids of all ranks; one of a job without a launcher is the replica itself."""
        if n == 1:
            return [p for p in self.pids() if p != self.process.pid]
        return [self.rank(i) for i in range(n)]

    def end(self, name, codes=(0,), seconds=40):
        start = time.monotonic()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            t.check(f"{name}: ends within {seconds} s", False, self.log[-5:])
            return None
        self.reader.join(10)
        t.check(f"{name}: exit code", self.process.returncode in codes, f"{self.process.returncode}, {self.log[-5:]}")
        self.nothing_is_left(name, time.monotonic())
        return time.monotonic() - start


def ready(name, *args, model="tiny-q8_0", **more):
    """Yields a server of this tiny model, or of the model in that file, once, when it is ready."""
    if not t.have_tiny(name):
        return
    with Server(model if os.path.isabs(model) else t.tiny(model), *args, **more) as server:
        if t.check(f"{name}: it is ready", server.port and server.status("/ready") == 200, server.log[-5:]):
            yield server


class Stream:
    """An answer that comes in pieces, read by hand so that a test can look at each and leave at any time."""

    def __init__(self, server, path, body, headers, timeout=t.TIMEOUT_S):
        self.connection = server.connect(timeout)
        self.connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json", **headers})
        self.response = self.connection.getresponse()
        self.seen = b""

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def close(self):
        self.response.close()
        self.connection.close()

    def line(self):
        """The next line that is not empty; "" at the end."""
        while True:
            line = self.response.readline()
            self.seen += line
            if line != b"\n":
                return line.decode().rstrip("\n")

    def events(self, n):
        """The next n events."""
        found = []
        while len(found) < n:
            line = self.line()
            if not line:
                return found
            if line.startswith("data: "):
                found.append(line[6:] if line == "data: [DONE]" else json.loads(line[6:]))
        return found

    def rest(self):
        self.seen += self.response.read()
        return events(self.seen)


def text_of(found):
    """What the deltas of choice 0 say together."""
    text = ""
    for event in found:
        for choice in event["choices"] if isinstance(event, dict) and "choices" in event else []:
            if choice["index"] == 0:
                text += (choice["delta"].get("content") or "") if "delta" in choice else choice["text"]
    return text
