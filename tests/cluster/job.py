"""A job of stoa seen from outside: its processes are known by a mark in their environment, so that other jobs of this machine do
not matter."""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import stoa_test as t

MARK = "STOA_TEST_MARK"
ALLOWED_S = 10              # an end has to be seen within 2 s on a quiet machine
TICKS = os.sysconf("SC_CLK_TCK")


def environment(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as f:
            return dict(x.split("=", 1) for x in f.read().decode(errors="replace").split("\0") if "=" in x)
    except OSError:
        return {}


def cpu_seconds(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS
    except OSError:
        return 0.0


class Job:
    """`stoa args...` running; `with` ends whatever is left of it."""

    def __init__(self, *args, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=None, **more):
        self.mark, self.folder = uuid.uuid4().hex, tempfile.TemporaryDirectory()
        self.env = {**os.environ, "TMPDIR": self.folder.name, **(env or {}), MARK: self.mark}
        self.process = subprocess.Popen([t.STOA, *map(str, args)], stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, env=self.env,
                                        start_new_session=True, **more)
        self.seen = {self.process.pid}      # all of its processes that a look has met

    def __enter__(self):
        return self

    def kill_all(self):
        for pid in self.pids():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()

    def __exit__(self, *exception):
        self.kill_all()
        for name in self.segments():        # of a guard that was killed as well
            shutil.rmtree(f"/dev/shm/{name}", ignore_errors=True)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream:
                stream.close()
        self.folder.cleanup()

    def pids(self):
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit() and environment(name).get(MARK) == self.mark]
        self.seen.update(pids)
        return pids

    def segments(self, pids=None):
        """What is in /dev/shm of these processes, or of all that were seen: folders with the name of the process that started ranks."""
        return [x for x in os.listdir("/dev/shm") if x.startswith(tuple(f"stoa.{pid}." for pid in pids or self.seen))]

    def rank(self, number):
        """The process of a rank, or None."""
        for pid in self.pids():
            if environment(pid).get("OMPI_COMM_WORLD_RANK") == str(number):
                return pid
        return None

    def cpu_seconds(self):
        return sum(cpu_seconds(pid) for pid in self.pids())

    def end(self, name, codes):
        """Waits for the end, and checks the code, the time, and that nothing is left; the text of standard error."""
        start = time.monotonic()
        try:
            out, err = self.process.communicate(timeout=ALLOWED_S)
        except subprocess.TimeoutExpired:
            t.check(f"{name}: ends within {ALLOWED_S} s", False, "it runs on")
            return ""
        t.check(f"{name}: exit code", self.process.returncode in codes, f"{self.process.returncode}, stderr {err[-500:]!r}")
        self.nothing_is_left(name, start)
        return err.decode(errors="replace")

    def nothing_is_left(self, name, start):
        while self.pids() and time.monotonic() - start < ALLOWED_S:
            time.sleep(0.02)
        if os.environ.get("TEST_TIMES"):
            print(f"{time.monotonic() - start:8.2f} s  the end of {name}")
        left = {pid: environment(pid).get("OMPI_COMM_WORLD_RANK", "no rank") for pid in self.pids()}
        t.check(f"{name}: no process is left after {ALLOWED_S} s", not left, left)
        t.check(f"{name}: nothing is left in /dev/shm", not self.segments(), self.segments())
        files = os.listdir(self.folder.name)
        t.check(f"{name}: nothing is left in TMPDIR", not files, files)


def stoa_lines(err):
    """With or without the time before it, as a server writes it; without the progress that a slow machine is told of while it loads."""
    return [line for line in err.splitlines() if re.match(r"(\S+Z )?stoa:(?! loading:)", line)]
