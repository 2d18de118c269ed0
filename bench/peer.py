"""peer.py: llama.cpp as a peer: PyPI's llama-cpp-python in an environment of its own, and a process that answers.

The environment is ${XDG_CACHE_HOME:-~/.cache}/stoa/peer, made when it is missing and used again after that; remove the
folder to build it anew.  The package is built from its source for the processor at hand (some minutes; needs a C++
compiler), since a prebuilt wheel knows only old instructions."""
import json
import os
import subprocess
import sys
import venv

from measure import CACHE, HERE, log, process_seconds

PACKAGE = "llama-cpp-python==0.3.36"
HOME = os.path.join(CACHE, "peer")
PYTHON = os.path.join(HOME, "bin", "python3")
STAMP = os.path.join(HOME, "installed")
WORKER = os.path.join(HERE, "peer_worker.py")


def install():
    """Returns once the environment is there."""
    if os.path.exists(STAMP):
        with open(STAMP) as f:
            if f.read().strip() == PACKAGE:
                return
    if subprocess.run([PYTHON, "-c", f"import llama_cpp, sys; sys.exit(llama_cpp.__version__ != '{PACKAGE.split('==')[1]}')"],
                      stderr=subprocess.DEVNULL).returncode if os.path.exists(PYTHON) else True:
        log(f"building {PACKAGE} in {HOME}; this takes some minutes, once")
        venv.create(HOME, with_pip=True)
        arguments = f"-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF '-DCMAKE_CXX_FLAGS=-include {HERE}/compare_amx.h'"
        environment = dict(os.environ, CMAKE_ARGS=arguments, CMAKE_BUILD_PARALLEL_LEVEL=str(os.cpu_count()))
        subprocess.run([PYTHON, "-m", "pip", "install", "--quiet", "--no-binary", "llama-cpp-python", PACKAGE],
                       env=environment, check=True, stdout=sys.stderr)
    with open(STAMP, "w") as f:
        f.write(PACKAGE + "\n")


class Peer:
    """A process that holds the model and answers one question at a time; see peer_worker.py for the questions, and for plain.
    context: most tokens of each of the sequences."""

    def __init__(self, model, threads, context, plain=False, sequences=1):
        self.process = subprocess.Popen([PYTHON, "-B", WORKER, "serve", model, str(threads), str(context), str(int(plain)), str(sequences)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.hello = self.read()

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"the peer ended with exit code {self.process.wait()}")
        return json.loads(line)

    def ask(self, **question):
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return self.read()

    def cpu_seconds(self):
        return process_seconds(self.process.pid)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def quantize(source, to):
    """Every matrix of an F16 file as Q4_K."""
    subprocess.run([PYTHON, "-B", WORKER, "quantize", source, to, str(os.cpu_count())], check=True)


def first_token(model, threads, prompt, plain=False, context=0):
    """A fresh process loads the model and picks the first token of an answer to the raw prompt.  What it says has "seconds"
    (from before the model is loaded, Python's start and imports left out), "peak_bytes" and "import_bytes".  context: 0 for the model's."""
    done = subprocess.run([PYTHON, "-B", WORKER, "first", model, str(threads), str(context), str(int(plain)), prompt], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)
