"""The few words that an end-to-end test needs; the Python side of check.h, and it needs the standard library only.

    STOA           the program (default: ./stoa of this checkout)
    STOA_MODEL     SmolLM2-135M-Instruct.Q4_1.gguf (default: where scripts/model puts it)
    STOA_GEMMA, STOA_QWEN_05B, STOA_QWEN_15B   other real models, see REAL; the same default
    STOA_TINY      the folder that scripts/tiny-models fills

A test program defines functions test_*() that call check(), equal() and skip(), and ends in run(globals()).  A failure
prints its name and values and the program goes on.
"""
import functools
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback

# A shell's "&" has it ignored, and what is started here would ignore it too.
signal.signal(signal.SIGINT, signal.default_int_handler)
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
STOA = os.path.abspath(os.environ.get("STOA") or os.path.join(ROOT, "stoa"))
CACHE = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
# Names as scripts/model has them: the variable with the path, the file in the cache.
REAL = {
    "smollm2": ("STOA_MODEL", "SmolLM2-135M-Instruct.Q4_1.gguf"),
    "gemma3-270m": ("STOA_GEMMA", "gemma-3-270m-q4_k_m.gguf"),
    "qwen2.5-coder-0.5b": ("STOA_QWEN_05B", "Qwen2.5-Coder-0.5B-Instruct-Q4_K_M.gguf"),
    "qwen2.5-coder-1.5b": ("STOA_QWEN_15B", "Qwen2.5-Coder-1.5B-Instruct-Q4_K_M.gguf"),
}
TINY = os.environ.get("STOA_TINY") or ""
TIMEOUT_S = 120


def real(name):
    """The path of a real model."""
    variable, file = REAL[name]
    return os.environ.get(variable) or os.path.join(CACHE, "stoa", file)


MODEL = real("smollm2")

passed, failed, skipped = 0, 0, 0
counting = threading.Lock()


# ---- saying what was seen ----
def check(name, ok, detail=""):
    global passed, failed
    with counting:
        if ok:
            passed += 1
        else:
            failed += 1
            print(f"FAIL {name}: {detail}" if detail != "" else f"FAIL {name}", flush=True)
    return bool(ok)


def equal(name, got, want):
    return check(name, got == want, f"got {got!r}, wanted {want!r}")


def skip(name, reason):
    global skipped, failed
    with counting:
        print(f"SKIP {name}: {reason}", flush=True)
        if os.environ.get("CI") == "true":
            failed += 1
        else:
            skipped += 1


def each(function, items):
    """Calls the function for each; one that breaks must not hide those after it."""
    for item in items:
        try:
            function(item)
        except Exception:
            check(getattr(item, "name", item), False, traceback.format_exc().strip())


def side_by_side(function, items):
    """As each(), all at the same time: for those that mostly wait."""
    def one(item):
        start = time.monotonic()
        each(function, [item])
        if os.environ.get("TEST_TIMES"):
            print(f"{time.monotonic() - start:8.2f} s  {item}", flush=True)
    threads = [threading.Thread(target=one, args=(item,)) for item in items]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def run(names):
    """Calls every test_*() of a module (or those that the command line names) and ends the program."""
    wanted = sys.argv[1:]
    if not os.access(STOA, os.X_OK):
        check("the program", False, f"{STOA} is not there: make, or set STOA")
    for name, function in list(names.items()):
        if not name.startswith("test_") or failed and not os.access(STOA, os.X_OK) or wanted and name not in wanted:
            continue
        start = time.monotonic()
        try:
            function()
        except Exception:       # a test that breaks must not hide those after it
            check(name, False, traceback.format_exc().strip())
        if os.environ.get("TEST_TIMES"):
            print(f"{time.monotonic() - start:8.2f} s  {name}", flush=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    sys.exit(1 if failed else 0)


# ---- models ----
def have_model(name, model="smollm2"):
    if not os.path.isfile(real(model)):
        skip(name, f"{model} is not at {real(model)}: scripts/model {model} fetches it, {REAL[model][0]} says where else")
        return False
    return True


def have_tiny(name):
    if not os.path.isfile(tiny("tiny-mixed")):
        skip(name, "no tiny models: scripts/tiny-models makes them and prints their folder, for STOA_TINY")
        return False
    return True


def tiny(name):
    """The path of a tiny model; of the first part where it has several."""
    path = os.path.join(TINY, name + ".gguf")
    return path if os.path.exists(path) else os.path.join(TINY, name + "-00001-of-00003.gguf")


# ---- the program ----
class Result:
    def __init__(self, args, code, out, err, seconds):
        self.args, self.code, self.out, self.err, self.seconds = args, code, out, err, seconds

    @property
    def json(self):
        return json.loads(self.out)

    def __str__(self):
        return f"stoa {' '.join(self.args)[:400]}: exit code {self.code}, stdout {self.out[-300:]!r}, stderr {self.err[-600:]!r}"


def stoa(*args, input=None, timeout=TIMEOUT_S, env=None, command=()):
    """Runs it to its end; after the timeout the whole process group is gone and the code is None.  `command` goes before."""
    args = [str(a) for a in args]
    start = time.monotonic()
    p = subprocess.Popen([*command, STOA, *args], stdin=subprocess.PIPE if input is not None else subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, start_new_session=True)
    try:
        out, err = p.communicate(input.encode() if input is not None else None, timeout)
        code = p.returncode
    except subprocess.TimeoutExpired:
        p.terminate()           # the launcher ends its ranks on a signal
        try:
            out, err = p.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            p.kill()
            out, err = p.communicate()
        code = None
    return Result(args, code, out.decode(errors="replace"), err.decode(errors="replace"), time.monotonic() - start)


def stoa_json(*args, **more):
    """The object that `stoa ... --json` prints; an exception with both streams when it fails."""
    r = stoa(*args, "--json", **more)
    if r.code != 0:
        raise AssertionError(str(r))
    return r.json


@functools.lru_cache(maxsize=None)
def cpu_isas():
    """The instruction sets that this CPU can run, portable C first."""
    with open("/proc/cpuinfo") as f:
        line = next((x for x in f if x.startswith(("flags", "Features"))), "")
    flags, isas = set(line.split()), ["c"]
    if {"avx2", "fma", "f16c"} <= flags:
        isas.append("avx2")
        if "avx_vnni" in flags:
            isas.append("avxvnni")
        if {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"} <= flags:
            isas.append("avx512")
            if {"amx_tile", "amx_int8"} <= flags:
                isas.append("amx")
    if "asimddp" in flags:
        isas.append("neon")
    return tuple(isas)
