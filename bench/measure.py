"""measure.py: what the scripts of bench/ share: running `stoa bench`, waiting for a calm machine, and printing figures.

A figure of one engine alone means nothing on a shared machine.  So measurements alternate, each notes how much of the
machine others took meanwhile, and what counts is the ratio of figures that were taken side by side."""
import json
import os
import resource
import statistics
import subprocess
import sys
import time

sys.dont_write_bytecode = True

HERE = os.path.dirname(os.path.abspath(__file__))
STOA = os.path.join(HERE, "..", "stoa")
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "stoa")
SMOLLM2 = os.path.join(CACHE, "SmolLM2-135M-Instruct.Q4_1.gguf")
# Some 40 tokens, as a short question in a chat template has.
PROMPT = ("A distributed engine splits a model over several workers. Each worker keeps a part of the weights, and they exchange "
          "partial results at every layer. Why does the order of a sum matter?")
TICK = os.sysconf("SC_CLK_TCK")


def log(*what):
    print(*what, file=sys.stderr, flush=True)


def busy_seconds():
    """CPU seconds of all processes since boot, those that a hypervisor took included."""
    with open("/proc/stat") as f:
        user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, f.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / TICK


def process_seconds(pid):
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def children_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Others:
    """The cores that processes other than the measured one took, on average: others = Others(own); ...; others.cores().
    own() tells the CPU seconds of the measured one."""

    def __init__(self, own=children_seconds):
        self.own = own
        self.start = time.monotonic(), busy_seconds(), own()

    def cores(self):
        wall, busy, own = time.monotonic() - self.start[0], busy_seconds() - self.start[1], self.own() - self.start[2]
        return max(busy - own, 0) / max(wall, 1e-9)


def wait_for_calm(limit_s, most_cores=0.15):
    """Returns when all processes together use few cores, or when limit_s have passed."""
    until = time.monotonic() + limit_s
    while True:
        others = Others(lambda: 0)
        time.sleep(0.3)
        if others.cores() <= most_cores or time.monotonic() >= until:
            return


def stoa_bench(stoa, model, *flags, repeat=1):
    """One `stoa bench`: its JSON, with the cores that others took meanwhile as "others" and its CPU seconds as "cpu_s"."""
    others, own = Others(), children_seconds()
    done = subprocess.run([stoa, "bench", model, "--json", "--repeat", str(repeat), *flags], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"stoa bench {model} {' '.join(flags)}: exit code {done.returncode}")
    answer = json.loads(done.stdout)
    answer["others"] = others.cores()
    answer["cpu_s"] = children_seconds() - own
    return answer


def stoa_rate(stoa, model, *flags):
    """Tokens per second of the only test that the flags leave, and the cores that others took."""
    answer = stoa_bench(stoa, model, *flags)
    return answer["results"][0]["tokens_per_s"]["median"], answer["others"]


def stoa_cpu_rate(stoa, model, *flags, extra=2):
    """The same by CPU seconds instead of wall seconds: what a few repeats more cost.  Tokens of all sequences count."""
    less = stoa_bench(stoa, model, *flags)
    more = stoa_bench(stoa, model, *flags, repeat=1 + extra)
    test = less["results"][0]
    return extra * test["tokens"] * test["batch"] / (more["cpu_s"] - less["cpu_s"]), (less["others"] + more["others"]) / 2


def stoa_first_token(stoa, model, *flags):
    """Seconds from the start of the process to the end of it, one token of an answer to PROMPT, and its greatest resident memory."""
    start = time.perf_counter()
    process = subprocess.Popen([stoa, "run", model, "--raw", "-p", PROMPT, "-n", "1", *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"stoa run {model}: exit code {process.returncode}")
    return time.perf_counter() - start, used.ru_maxrss * 1024


def figures(samples):
    """samples: [(rate, cores of others)]"""
    rates = [rate for rate, _ in samples]
    return {"best": max(rates), "median": statistics.median(rates), "min": min(rates), "n": len(rates),
            "others": statistics.median(cores for _, cores in samples)}


def ratio_figures(samples, base):
    """How samples stand to base, which was measured beside them round by round."""
    ratios = sorted(a / b for (a, _), (b, _) in zip(samples, base))
    return {"best": figures(samples)["best"] / figures(base)["best"], "median": statistics.median(ratios),
            "min": ratios[0], "max": ratios[-1]}


def round_digits(value):
    """What of a figure is worth printing in JSON: five digits."""
    if isinstance(value, dict):
        return {key: round_digits(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [round_digits(one) for one in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def print_table(rows):
    """The first row is the head; the first column goes left, the others right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for n, row in enumerate(rows):
        print("| " + " | ".join(cell.rjust(w) if i else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths))) + " |")
        if n == 0:
            print("| " + " | ".join("-" * (w - 1) + ":" if i else "-" * w for i, w in enumerate(widths)) + " |")
    sys.stdout.flush()


def machine():
    """The processor and the number of cores, for the head of a report."""
    name = "unknown processor"
    with open("/proc/cpuinfo") as f:
        for line in f:
            if line.startswith("model name"):
                name = line.split(":", 1)[1].strip()
                break
    return f"{name}, {len(os.sched_getaffinity(0))} cores"
