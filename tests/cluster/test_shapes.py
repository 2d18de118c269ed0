#!/usr/bin/env python3
"""What --json prints (docs/architecture.md), and that the bytes it predicts are those that ranks take."""
import math
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import stoa_test as t

IDS = "1,2,3,4,5,6,7"
INT, NUMBER, TEXT = int, (int, float), str
LAYOUTS = ("tp=1", "tp=2", "tp=3", "tp=8", "pp=3", "pp=2,tp=2", "tp=2 --shares 5,3", "pp=2 --stages 2,5")


def has(name, value, shape):
    """Every field of `shape` is there with its type; a list's elements are all like its one."""
    if isinstance(shape, dict):
        if t.check(name, isinstance(value, dict) and shape.keys() <= value.keys(), f"wanted {list(shape)}, got {value!r:.300}"):
            for field, inner in shape.items():
                has(f"{name}.{field}", value[field], inner)
    elif isinstance(shape, list):
        if t.check(name, isinstance(value, list) and value, f"wanted a list, got {value!r:.300}"):
            for element in value[:3] + value[-1:]:
                has(name + "[]", element, shape[0])
    else:
        t.check(name, isinstance(value, shape) and isinstance(value, bool) == (shape is bool), f"wanted {shape}, got {value!r:.300}")


def test_logits():
    if not t.have_tiny("json of logits"):
        return
    shape = {"model": TEXT, "layout": TEXT, "tokens": [INT], "hash": TEXT,
             "positions": [{"position": INT, "top": [{"id": INT, "text": TEXT, "logit": NUMBER}], "logsumexp": NUMBER, "norm": NUMBER}]}
    for layout in ("tp=1", "pp=2,tp=2"):
        r = t.stoa("logits", t.tiny("tiny-mixed"), "--tokens", IDS, "--all", "--norms", "--json", "--layout", layout)
        got = r.json
        has("logits", got, {**shape, "hidden_norms": [NUMBER]})
        t.equal("logits.layout", got["layout"], layout)
        t.equal("logits.model", got["model"], t.tiny("tiny-mixed"))
        t.equal("logits.tokens", got["tokens"], [1, 2, 3, 4, 5, 6, 7])
        t.check("logits.hash", re.fullmatch("[0-9a-f]{32}", got["hash"]), got["hash"])
        t.equal("logits.positions", [p["position"] for p in got["positions"]], list(range(7)))
        t.equal("logits.hidden_norms", len(got["hidden_norms"]), 8)
        for p in got["positions"]:
            logits = [e["logit"] for e in p["top"]]
            t.check("logits: largest first", logits == sorted(logits, reverse=True) and len(logits) == 10, logits)
        numbers = re.findall(r'"logit": (-?[0-9.e+-]+)', r.out)
        digits = [len(x.split("e")[0].replace(".", "").lstrip("-0")) for x in numbers]
        t.check("logits: 9 digits", len(numbers) == 70 and max(digits) == 9 and sorted(digits)[len(digits) // 4] >= 8, numbers[:9])
    whole = t.stoa_json("logits", t.tiny("tiny-mixed"), "--tokens", IDS, "--top", "301")["positions"]
    t.equal("without --all: one position", [p["position"] for p in whole], [6])
    logits = [e["logit"] for e in whole[0]["top"]]
    t.equal("--top 301 is the vocabulary", sorted(e["id"] for e in whole[0]["top"]), list(range(301)))
    lse = max(logits) + math.log(sum(math.exp(x - max(logits)) for x in logits))
    t.check("logsumexp", abs(lse - whole[0]["logsumexp"]) < 1e-6, (lse, whole[0]["logsumexp"]))
    norm = math.sqrt(sum(x * x for x in logits))
    t.check("norm", abs(norm - whole[0]["norm"]) < 1e-5, (norm, whole[0]["norm"]))


def test_text_that_is_not_utf8():
    if not t.have_tiny("bytes"):
        return
    entries = t.stoa_json("logits", t.tiny("tiny-mixed"), "--tokens", IDS, "--top", "301")["positions"][0]["top"]
    parts = {e["id"]: e for e in entries if "bytes" in e}
    t.check("bytes beside what is not UTF-8", len(parts) == 128 and all("\ufffd" in e["text"] and bytes.fromhex(e["bytes"])[0] >= 128 for e in parts.values()), len(parts))
    t.check("no bytes beside what is UTF-8", all("\ufffd" not in e["text"] for e in entries if "bytes" not in e))
    r = t.stoa_json("run", t.tiny("tiny-mixed"), "--raw", "-p", "abc", "-n", "60", "--ignore-eos", "--temp", "2", "--seed", "1")
    t.check("run: bytes", ("bytes" in r) == ("\ufffd" in r["text"]) and "bytes" in r, r)
    t.equal("run: bytes are the text", bytes.fromhex(r["bytes"]).decode(errors="replace"), r["text"])
    got = t.stoa_json("tokenize", t.tiny("tiny-mixed"), "h\u00e9\u4e2d")
    pieces = b"".join(p.encode() if isinstance(p, str) else bytes.fromhex(p["bytes"]) for p in got["pieces"])
    t.equal("tokenize: pieces and bytes are the text", pieces.decode(), "h\u00e9\u4e2d")


def test_run():
    if not t.have_tiny("json of run"):
        return
    for layout in ("tp=1", "pp=2"):
        got = t.stoa_json("run", t.tiny("tiny-mixed"), "--raw", "-p", "abcd", "-n", "5", "--ignore-eos", "--layout", layout)
        has("run", got, {"text": TEXT, "tokens": [INT], "prompt_tokens": INT, "finish_reason": TEXT, "time_to_first_token_s": NUMBER, "tokens_per_s": NUMBER})
        t.equal("run.finish_reason", got["finish_reason"], "length")
        t.equal("run.tokens", len(got["tokens"]), 5)
        t.equal("run.prompt_tokens", got["prompt_tokens"], 4)
    if t.have_model("an end token"):
        got = t.stoa_json("run", t.MODEL, "-p", "Say yes.", "-n", "200")
        t.equal("run: ends by itself", got["finish_reason"], "stop")
        t.check("run: without the end token", 2 not in got["tokens"] and "<|" not in got["text"], got)


def test_bench():
    if not t.have_tiny("json of bench"):
        return
    for layout, n_ranks in (("tp=1", 1), ("pp=2,tp=2", 4)):
        got = t.stoa_json("bench", t.tiny("tiny-mixed"), "--prompt", "64", "--generate", "8", "--batch", "1,4", "--repeat", "2", "--layout", layout)
        has("bench", got, {"model": TEXT, "layout": TEXT, "threads": INT,
                           "results": [{"test": TEXT, "tokens": INT, "batch": INT, "tokens_per_s": {"min": NUMBER, "median": NUMBER, "max": NUMBER},
                                        "micro_batches": INT, "bubble_share": NUMBER}],
                           "ranks": [{"rank": INT, "weight_bytes": INT, "weights_mapped": bool, "peak_bytes": INT, "compute_s": NUMBER, "wait_s": NUMBER, "wire_s": NUMBER, "bytes_sent": INT}]})
        t.equal("bench: its tests", [(r["test"], r["tokens"], r["batch"]) for r in got["results"]], [("prefill", 64, 1), ("decode", 8, 1), ("decode", 8, 4)])
        t.equal("bench: its ranks", [r["rank"] for r in got["ranks"]], list(range(n_ranks)))
        for r in got["results"]:
            speed = r["tokens_per_s"]
            t.check("bench: min, median, max", 0 < speed["min"] <= speed["median"] <= speed["max"], speed)
            t.check("bench: bubble_share", 0 <= r["bubble_share"] < 1, r)
        t.check("bench: who sends", all((r["bytes_sent"] > 0) == (n_ranks > 1) for r in got["ranks"]), got["ranks"])


def test_tokenize():
    if t.have_tiny("json of tokenize"):
        got = t.stoa_json("tokenize", t.tiny("tiny-mixed"), "the <|im_end|>")
        has("tokenize", got, {"tokens": [INT], "pieces": [TEXT]})
        t.equal("tokenize: lengths", len(got["tokens"]), len(got["pieces"]))
        t.check("tokenize: special tokens are recognised", got["tokens"][-1] == 2, got)


def test_inspect():
    if not t.have_tiny("json of inspect"):
        return
    got = t.stoa_json("inspect", t.tiny("tiny-3heads"), "--layout", "pp=2")
    has("inspect", got, {"architecture": TEXT, "parameters": INT, "layers": INT, "context": INT, "tensors": [{"name": TEXT, "type": TEXT, "shape": [INT]}],
                         "ranks": [{"rank": INT, "weight_bytes": INT, "kv_bytes_per_token": INT}]})
    t.equal("inspect: figures", (got["architecture"], got["layers"], got["context"]), ("llama", 7, 1024))
    by_name = {e["name"]: e for e in got["tensors"]}
    t.equal("inspect: a shape in the file's order", by_name["blk.3.ffn_down.weight"]["shape"], [224, 96])
    t.equal("inspect: parameters", got["parameters"], sum(math.prod(e["shape"]) for e in got["tensors"]))
    t.equal("inspect: bytes of cache for a token", sum(r["kv_bytes_per_token"] for r in got["ranks"]), 7 * 2 * 32 * 2)


# ---- bytes ----
def predicted_and_allocated(path, layout):
    predicted = [r["weight_bytes"] for r in t.stoa_json("inspect", path, "--layout", *layout)["ranks"]]
    ranks = t.stoa_json("bench", path, "--prompt", "8", "--generate", "2", "--repeat", "1", "--context", "64", "--layout", *layout)["ranks"]
    return predicted, [r["weight_bytes"] for r in ranks], [r["peak_bytes"] for r in ranks]


def test_predicted_weights():
    jobs = []
    if t.have_tiny("predicted weights"):
        jobs += [(t.tiny(name), layout) for name in ("tiny-mixed", "tiny-3heads") for layout in LAYOUTS]
        jobs += [(t.tiny("tiny-wide"), "tp=5"), (t.tiny("tiny-f32"), "tp=2"), (t.tiny("tiny-split"), "tp=4")]
    if t.have_model("predicted weights of SmolLM2"):
        jobs += [(t.MODEL, layout) for layout in ("tp=1", "pp=2,tp=2", "tp=3")]
    whole = {}
    for path, layout in jobs:
        name = f"{os.path.basename(path)}, {layout}"
        predicted, allocated, peak = predicted_and_allocated(path, layout.split())
        for rank, (a, b) in enumerate(zip(predicted, allocated)):
            t.check(f"{name}, rank {rank}: weights as predicted", abs(a - b) <= 0.02 * b, f"predicted {a}, allocated {b}")
        t.equal(f"{name}: ranks", len(predicted), len(allocated))
        whole.setdefault(path, predicted[0] if layout == "tp=1" else sum(predicted))
        t.check(f"{name}: all ranks hold at least the whole", sum(predicted) >= whole[path], f"{sum(predicted)} of {whole[path]}")
        t.check(f"{name}: a rank holds its share", len(predicted) == 1 or max(predicted) < 0.95 * whole[path], predicted)
        t.check(f"{name}: peak memory is more than the weights", all(p > w for p, w in zip(peak, allocated)), (peak, allocated))


def test_peak_memory():
    """At most the file and a quarter, and the cache."""
    if not t.have_model("peak memory"):
        return
    size, context = os.path.getsize(t.MODEL), 256
    cache = context * t.stoa_json("inspect", t.MODEL)["ranks"][0]["kv_bytes_per_token"]
    alone = None
    for layout in ("tp=1", "tp=2", "pp=2,tp=2"):
        ranks = t.stoa_json("run", t.MODEL, "-p", "Why is the sky blue?", "-n", "8", "--context", context, "--layout", layout)["ranks"]
        alone = alone or ranks[0]["peak_bytes"]
        for r in ranks:
            t.check(f"{layout}: peak memory of rank {r['rank']}", r["weight_bytes"] < r["peak_bytes"] <= 1.25 * size + cache, r)
        if len(ranks) > 1:
            own = max(r["peak_bytes"] - r["weight_bytes"] for r in ranks)
            t.check(f"{layout}: a rank does not hold the whole", all(r["peak_bytes"] < 0.9 * alone for r in ranks), f"{own} beside the weights: {ranks}")


if __name__ == "__main__":
    t.run(globals())
