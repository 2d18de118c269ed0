#!/usr/bin/env python3
"""Schemathesis against `stoa serve`: it makes requests out of /openapi.json, good ones and bad ones, and holds each answer against it.

SCHEMATHESIS_PYTHON is a Python that has it: scripts/schemathesis prints it.  The same seed makes the same requests, on any machine."""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import stoa_test as t
from server import Server

PYTHON = os.environ.get("SCHEMATHESIS_PYTHON")
N_FUZZED = 200              # of each operation, besides those that cover each rule of the description
CHECKS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "schemathesis_checks.py")


def run(*args, **more):
    return subprocess.run([PYTHON, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)


def test_requests():
    if not t.have_tiny("schemathesis"):
        return
    if not PYTHON:
        return t.skip("schemathesis", "SCHEMATHESIS_PYTHON is not set: scripts/schemathesis prints it")
    with tempfile.TemporaryDirectory() as folder, Server(t.tiny("tiny-mixed"), "--threads", "1", "--context", "128") as s:
        path = os.path.join(folder, "openapi.json")
        with open(path, "w") as f:
            json.dump(s.get("/openapi.json").json, f)
        valid = run("-m", "openapi_spec_validator", "--schema", "3.1.0", path)
        t.check("/openapi.json is OpenAPI 3.1", valid.returncode == 0, valid.stdout)
        # Not those that need users or resources to be made and lost.
        r = run("-m", "schemathesis.cli", "run", path, "--url", f"http://127.0.0.1:{s.port}", "--seed", "6", "--max-examples", str(N_FUZZED),
                "--phases", "coverage,fuzzing", "--continue-on-failure", "--no-shrink", "--request-timeout", "60",
                "--generation-database", "none", "--no-color",
                "--output-sanitize", "false", "--exclude-checks",
                "positive_data_acceptance,use_after_free,ensure_resource_availability,ignored_auth,object_level_authorization",
                cwd=folder, env={**os.environ, "SCHEMATHESIS_HOOKS": CHECKS})
        t.check("schemathesis finds nothing", r.returncode == 0, r.stdout)
        t.equal("the replica has not died", s.metrics()["stoa_replica_restarts_total"], 0)
        t.equal("the server would serve", s.status("/ready"), 200)
        s.process.terminate()
        s.end("schemathesis")


if __name__ == "__main__":
    t.run(globals())
