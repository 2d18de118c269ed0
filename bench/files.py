"""files.py: the model files that goals are about, made or fetched when they are first wanted, and kept in Stoa's cache.

Real models come through scripts/model, which checks their hashes.  Files of real shapes with random weights come from make_gguf.py in
shared/bench beside the repository: beside each stands the hash of the script that made it, and another script makes it anew.
Q4_K, which that script does not write, is what the peer's quantizer makes of the F16 file, every matrix alike."""
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys

from measure import CACHE, HERE, log
import peer

ROOT = os.path.join(HERE, "..")
MAKER = os.path.join(ROOT, "..", "shared", "bench", "make_gguf.py")
GB = 10**9


def output_of(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def made_by(kind):
    with open(MAKER, "rb") as f:
        script = hashlib.sha256(f.read()).hexdigest()
    return script + (f" quantized by {peer.PACKAGE}" if kind == "Q4_K" else "")


def is_made(path, by):
    try:
        with open(path + ".made-by") as f:
            return os.path.exists(path) and f.read() == by
    except FileNotFoundError:
        return False


def make(path, shape, kind):
    if kind == "Q4_K":
        peer.quantize(random_file(shape, "F16"), path)
    else:
        python = output_of(os.path.join(ROOT, "scripts", "test-python"))
        subprocess.run([python, MAKER, "--shape", shape, "--type", kind, "--out", path], check=True, stdout=sys.stderr)


def random_file(shape, kind):
    """One process makes it; others wait and find it there."""
    path = os.path.join(CACHE, f"random-{shape}-{kind}.gguf")
    if not os.path.isfile(MAKER):
        sys.exit(f"{os.path.normpath(MAKER)} is not there: it makes models of random weights")
    by = made_by(kind)
    os.makedirs(CACHE, exist_ok=True)
    with open(path + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_made(path, by):
            if shutil.disk_usage(CACHE).free < 8 * GB:
                sys.exit(f"{CACHE} has less than 8 GB free for {os.path.basename(path)}")
            log(f"making {path}")
            make(path + ".new", shape, kind)
            os.rename(path + ".new", path)
            with open(path + ".made-by", "w") as f:
                f.write(by)
    return path


def real_file(name):
    return output_of(os.path.join(ROOT, "scripts", "model"), name)


def warm(path):
    """Into the page cache."""
    with open(path, "rb", buffering=0) as f:
        while f.read(1 << 22):
            pass
