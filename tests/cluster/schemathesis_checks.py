"""What `stoa serve` promises beyond its description, as checks of Schemathesis; it loads this file (see long_schemathesis.py)."""
import re

import schemathesis
from schemathesis.specs.openapi import checks


def length(prompt):
    """How many prompts that is."""
    return len(prompt) if isinstance(prompt, list) and not isinstance(prompt[0], (int, float)) else 1


def most_tokens(body):
    given = [body[name] for name in ("max_completion_tokens", "max_tokens", "n_predict") if body.get(name) is not None]
    asked = given[0] if given else 16 if "prompt" in body else -1
    return asked if asked >= 0 else float("inf")


# Rules between fields, for which JSON schema has no words: what a 400 names, and when it is right.
UNSAID = {
    "repeat_penalty": lambda b: b["repeat_penalty"] != (b.get("repetition_penalty") or b["repeat_penalty"]),
    "n": lambda b: length(b.get("prompt")) * b["n"] > 128,
    "best_of": lambda b: b["best_of"] != (b.get("n") or 1),
    "min_tokens": lambda b: b["min_tokens"] > most_tokens(b),
    "messages": lambda b: b.get("continue_final_message") and not b["messages"][-1].get("content"),
}


def is_unsaid(error, body):
    try:
        return error["code"] == "context_length_exceeded" or error["param"] in UNSAID and UNSAID[error["param"]](body)
    except (TypeError, KeyError, IndexError):       # a body whose types are wrong
        return False


@schemathesis.check
def valid_data_is_taken(ctx, response, case):
    """positive_data_acceptance, but for UNSAID."""
    if response.status_code == 400 and is_unsaid(response.json()["error"], case.body):
        return None
    return checks.positive_data_acceptance(ctx, response, case)


@schemathesis.check
def errors_name_the_field(ctx, response, case):
    """A 400 for an object of JSON names a field that the object has, or must have."""
    if response.status_code != 400 or not isinstance(case.body, dict):
        return
    param = response.json()["error"]["param"]
    assert param and re.split(r"[.[]", param)[0] in {*case.body, "messages", "prompt", "tokens"}, f"a 400 that names no field of the body: {response.text}"
