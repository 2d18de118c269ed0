#!/usr/bin/env python3
"""Model files that are well-formed GGUF and make no sense: each is refused with exit code 3 and one line that names the key or tensor,
before anything is computed; what only looks odd is answered."""
import math
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import gguf_file as gf
import stoa_test as t

IDS = "1,2,3,4,5,6,7,8,9,10,11,12"
NAN, INF = math.nan, math.inf
EXPS = "blk.1.ffn_up_exps.weight"


def key(name, kind, value=None):
    return lambda f: f.set(name, kind, value)


def keys(*changes):
    def change(f):
        for c in changes:
            c(f)
    return change


def gone(*names):
    return lambda f: f.without(*names)


def dims(name, *shape):
    """The same bytes under other dims."""
    def change(f):
        f.tensors[name].dims = shape
    return change


def floats(name, shape, values):
    return lambda f: f.put(name, shape, values)


def expert_of_another_type(f):
    """One of eight in f32."""
    tensor = f.tensors["blk.0.ffn_up.3.weight"]
    f.put("blk.0.ffn_up.3.weight", tensor.dims, [0.0] * (tensor.dims[0] * tensor.dims[1]))


def many_experts(n):
    """A mixture of n experts of the smallest kind, a stack for each matrix."""
    def change(f):
        f.set(".expert_count", gf.U32, n)
        for i in range(7):
            for name in ("gate", "up", "down"):
                f.without(f"blk.{i}.ffn_{name}_exps.weight").put(f"blk.{i}.ffn_{name}_exps.weight", (64, 64, n), [0.0] * 64 * 64 * n)
            f.put(f"blk.{i}.ffn_gate_inp.weight", (64, n), [0.0] * 64 * n)
    return change


F = gf.F32
YARN = keys(key(".rope.scaling.type", gf.STRING, "yarn"), key(".rope.scaling.factor", F, 4), key(".rope.scaling.original_context_length", gf.U32, 256))
LLAMA, MIXTRAL, LEGACY, MOE, GEMMA, ROPE = "tiny-f32", "tiny-mixtral", "tiny-legacy-mixtral", "golden-qwen3_moe", "golden-gemma3", "golden-llama-rope3"
CTX = ".rope.scaling.original_context_length"

REFUSED = (
    # mixtures of experts
    ("more experts used than there are", MIXTRAL, key(".expert_used_count", gf.U32, 9), "expert_used_count"),
    ("no expert used", MIXTRAL, key(".expert_used_count", gf.U32, 0), "expert_used_count"),
    ("-1 experts used", MIXTRAL, key(".expert_used_count", gf.I32, -1), "expert_used_count"),
    ("nobody says how many are used", MIXTRAL, gone(".expert_used_count"), "expert_used_count"),
    ("1025 experts", MIXTRAL, key(".expert_count", gf.U32, 1025), "expert_count"),
    ("2^32 - 1 experts", MIXTRAL, key(".expert_count", gf.U32, 0xffffffff), "expert_count"),
    ("a count of experts that is text", MIXTRAL, key(".expert_count", gf.STRING, "8"), "expert_count"),
    ("more experts than matrices", MIXTRAL, key(".expert_count", gf.U32, 16), "ffn_"),
    ("experts in the file and none by its keys", MIXTRAL, key(".expert_count", gf.U32, 0), "ffn_"),
    ("no key of experts", MIXTRAL, gone(".expert_count"), "ffn_"),
    ("no router in one layer", MIXTRAL, gone("blk.3.ffn_gate_inp.weight"), "blk.3.ffn_"),
    ("a router of other dims", MIXTRAL, floats("blk.1.ffn_gate_inp.weight", (64, 7), [0.0] * 448), "blk.1.ffn_gate_inp.weight"),
    ("a router that is a stack", MIXTRAL, floats("blk.1.ffn_gate_inp.weight", (8, 8, 8), [0.0] * 512), "blk.1.ffn_gate_inp.weight"),
    ("a stack that is missing", MIXTRAL, gone(EXPS), EXPS),
    ("a stack with its dims turned", MIXTRAL, dims(EXPS, 64, 32, 16), EXPS),
    ("a stack that is a matrix", MIXTRAL, dims(EXPS, 64, 512), EXPS),
    ("a stack of stacks", MIXTRAL, dims(EXPS, 64, 64, 4, 2), EXPS),
    ("an FFN of experts that is too wide", MOE, key(".expert_feed_forward_length", gf.U32, 4096), "ffn_gate_exps"),
    ("an FFN of experts of nothing", MOE, key(".expert_feed_forward_length", gf.U32, 0), "expert_feed_forward_length"),
    ("a scale that is not a number", MIXTRAL, key(".expert_weights_scale", F, NAN), "expert_weights_scale"),
    ("normalised by text", MIXTRAL, key(".expert_weights_norm", gf.STRING, "no"), "expert_weights_norm"),
    ("normalised by a number", MIXTRAL, key(".expert_weights_norm", gf.U32, 0), "expert_weights_norm"),
    ("a tensor for each expert, one is missing", LEGACY, gone("blk.0.ffn_up.3.weight"), "blk.0.ffn_up.3.weight"),
    ("a tensor for each expert, the first is missing", LEGACY, gone("blk.0.ffn_up.0.weight"), "blk.0.ffn_up"),
    ("a tensor for each expert, one of another type", LEGACY, expert_of_another_type, "blk.0.ffn_up.3.weight"),
    ("a tensor for each expert, one of other dims", LEGACY, dims("blk.2.ffn_down.7.weight", 32, 128), "blk.2.ffn_down.7.weight"),
    # windows
    ("no window's size", GEMMA, gone(".attention.sliding_window"), "attention.sliding_window"),
    ("a window of more than 2^30", GEMMA, key(".attention.sliding_window", gf.U32, (1 << 30) + 1), "attention.sliding_window"),
    ("a negative window", GEMMA, key(".attention.sliding_window", gf.I32, -8), "attention.sliding_window"),
    ("a window of floats", GEMMA, key(".attention.sliding_window", F, 8), "attention.sliding_window"),
    ("a pattern that is too short", GEMMA, key(".attention.sliding_window_pattern", (gf.BOOL, [True] * 5)), "sliding_window_pattern"),
    ("a pattern that is too long", GEMMA, key(".attention.sliding_window_pattern", (gf.BOOL, [True] * 7)), "sliding_window_pattern"),
    ("an empty pattern", GEMMA, key(".attention.sliding_window_pattern", (gf.BOOL, [])), "sliding_window_pattern"),
    ("a pattern of text", GEMMA, key(".attention.sliding_window_pattern", (gf.STRING, ["yes"] * 6)), "sliding_window_pattern"),
    ("a pattern of floats", GEMMA, key(".attention.sliding_window_pattern", (gf.F32, [1.0] * 6)), "sliding_window_pattern"),
    ("every 0th layer", GEMMA, key(".attention.sliding_window_pattern", gf.U32, 0), "sliding_window_pattern"),
    ("every 2^31st layer", GEMMA, key(".attention.sliding_window_pattern", gf.U32, 1 << 31), "sliding_window_pattern"),
    ("a pattern that is a bool", GEMMA, key(".attention.sliding_window_pattern", gf.BOOL, True), "sliding_window_pattern"),
    ("a window in a family that has none", LLAMA, key(".attention.sliding_window", gf.U32, 64), "attention.sliding_window"),
    # caps
    ("a negative cap of logits", GEMMA, key(".final_logit_softcapping", F, -30), "final_logit_softcapping"),
    ("a negative cap of attention", GEMMA, key(".attn_logit_softcapping", F, -50), "attn_logit_softcapping"),
    ("a cap that is not a number", GEMMA, key(".final_logit_softcapping", F, NAN), "final_logit_softcapping"),
    ("a cap of attention that is infinite", GEMMA, key(".attn_logit_softcapping", F, INF), "attn_logit_softcapping"),
    # RoPE
    ("a scaling that nobody knows", LLAMA, key(".rope.scaling.type", gf.STRING, "longrope"), "longrope"),
    ("a scaling without a name", LLAMA, key(".rope.scaling.type", gf.STRING, ""), "rope.scaling.type"),
    ("a scaling of the wrong type", LLAMA, key(".rope.scaling.type", gf.U32, 1), "rope.scaling.type"),
    *((f"a linear factor of {x}", LLAMA, keys(key(".rope.scaling.type", gf.STRING, "linear"), key(".rope.scaling.factor", F, x)), "rope.scaling.factor")
      for x in (-1, NAN, INF, 1e30, 1e-30)),
    *((f"a factor of {x} without a type", LLAMA, key(".rope.scaling.factor", F, x), "rope.scaling.factor") for x in (-4, NAN, 1e38)),
    *((f"an older factor of {x}", LLAMA, key(".rope.scale_linear", F, x), "rope.scal") for x in (-4, NAN)),
    ("a factor for no scaling", LLAMA, keys(key(".rope.scaling.type", gf.STRING, "none"), key(".rope.scaling.factor", F, -4)), "rope.scaling.factor"),
    *((f"YaRN with a factor of {x}", LLAMA, keys(YARN, key(".rope.scaling.factor", F, x)), "rope.scaling.factor") for x in (-1, NAN, INF, 1e38)),
    ("YaRN without the original context", LLAMA, keys(YARN, gone(CTX)), CTX[1:]),
    ("YaRN with an original context of 0", LLAMA, keys(YARN, key(CTX, gf.U32, 0)), CTX[1:]),
    ("YaRN with an original context of 2^32 - 1", LLAMA, keys(YARN, key(CTX, gf.U32, 0xffffffff)), CTX[1:]),
    ("YaRN with a negative beta", LLAMA, keys(YARN, key(".rope.scaling.yarn_beta_slow", F, -1)), "beta"),
    ("YaRN with betas the wrong way round", LLAMA, keys(YARN, key(".rope.scaling.yarn_beta_slow", F, 40)), "beta"),
    ("YaRN with a beta that is not a number", LLAMA, keys(YARN, key(".rope.scaling.yarn_beta_fast", F, NAN)), "yarn_beta_fast"),
    *((f"YaRN with a magnitude of {x}", LLAMA, keys(YARN, key(".rope.scaling.attn_factor", F, x)), "factor") for x in (0, -1, NAN, INF, 1e30)),
    *((f"a base of {x}", LLAMA, key(".rope.freq_base", F, x), "rope.freq_base") for x in (0, 1, -10000, NAN, INF, 1e30)),
    *((f"a base of {x} for windows", GEMMA, key(".rope.freq_base_swa", F, x), "rope.freq_base_swa") for x in (0, -1, NAN, INF, 1e30)),
    ("rope_freqs that are too short", ROPE, floats("rope_freqs.weight", (3,), [1.0] * 3), "rope_freqs.weight"),
    ("rope_freqs that are too long", ROPE, floats("rope_freqs.weight", (8,), [1.0] * 8), "rope_freqs.weight"),
    ("rope_freqs that are a matrix", ROPE, floats("rope_freqs.weight", (4, 1), [1.0] * 4), "rope_freqs.weight"),
    *((f"rope_freqs with a {x}", ROPE, floats("rope_freqs.weight", (4,), [1.0, 2.0, x, 4.0]), "rope_freqs.weight") for x in (0.0, -1.0, NAN, INF, -INF)),
    ("an odd number of rotated dims", LLAMA, key(".rope.dimension_count", gf.U32, 7), "rotated"),
    ("more rotated dims than there are", LLAMA, key(".rope.dimension_count", gf.U32, 16), "rope.dimension_count"),
    ("no rotated dims", LLAMA, key(".rope.dimension_count", gf.U32, 0), "rope.dimension_count"),
    # shapes
    ("heads of no dims", LLAMA, keys(key(".attention.key_length", gf.U32, 0), key(".attention.value_length", gf.U32, 0)), "attention.key_length"),
    ("heads of 9 dims", LLAMA, keys(key(".attention.key_length", gf.U32, 9), key(".attention.value_length", gf.U32, 9),
                                    gone(".rope.dimension_count")), "9"),
    ("heads of 257 dims", LLAMA, key(".attention.key_length", gf.U32, 257), "attention.key_length"),
    ("heads of other dims for values", LLAMA, key(".attention.value_length", gf.U32, 16), "attention.value_length"),
    ("more heads than the stream is wide", LLAMA, keys(key(".attention.head_count", gf.U32, 128), gone(".attention.key_length", ".attention.value_length",
                                                                                                    ".rope.dimension_count")), "head"),
    ("no heads", LLAMA, key(".attention.head_count", gf.U32, 0), "attention.head_count"),
    ("KV heads that do not divide heads", LLAMA, key(".attention.head_count_kv", gf.U32, 3), "head_count_kv"),
    ("no KV heads", LLAMA, key(".attention.head_count_kv", gf.U32, 0), "head_count_kv"),
    ("a list of KV heads", LLAMA, key(".attention.head_count_kv", (gf.U32, [2] * 7)), "head_count_kv"),
    ("no layers", LLAMA, key(".block_count", gf.U32, 0), "block_count"),
    ("more layers than tensors", LLAMA, key(".block_count", gf.U32, 8), "blk.7"),
    ("2^31 layers", LLAMA, key(".block_count", gf.U32, 1 << 31), "block_count"),
    ("no context", LLAMA, key(".context_length", gf.U32, 0), "context_length"),
    ("an epsilon that is not a number", LLAMA, key(".attention.layer_norm_rms_epsilon", F, NAN), "layer_norm_rms_epsilon"),
    ("a negative epsilon", LLAMA, key(".attention.layer_norm_rms_epsilon", F, -1e-5), "layer_norm_rms_epsilon"),
    ("a matrix where a norm should be", LLAMA, floats("blk.0.attn_norm.weight", (64, 1), [1.0] * 64), "blk.0.attn_norm.weight"),
    ("a norm of Q that is as wide as all heads", "tiny-qwen3", floats("blk.0.attn_q_norm.weight", (192,), [1.0] * 192), "blk.0.attn_q_norm.weight"),
    ("a bias of Q that is too short", "tiny-qwen2", floats("blk.0.attn_q.bias", (95,), [1.0] * 95), "blk.0.attn_q.bias"),
    ("no bias of K", "tiny-qwen2", gone("blk.3.attn_k.bias"), "blk.3.attn_k.bias"),
    ("a bias that the family does not have", LLAMA, floats("blk.0.attn_q.bias", (64,), [1.0] * 64), "blk.0.attn_q.bias"),
    ("no norm after attention", GEMMA, gone("blk.5.post_attention_norm.weight"), "blk.5.post_attention_norm.weight"),
    ("attention that is not causal", LLAMA, key(".attention.causal", gf.BOOL, False), "attention.causal"),
)

# What is odd and has an answer.
ANSWERED = (
    ("1024 experts, all alike", MIXTRAL, keys(many_experts(1024), key(".block_count", gf.U32, 1))),
    ("64 used of 64", MIXTRAL, keys(many_experts(64), key(".expert_used_count", gf.U32, 64), key(".block_count", gf.U32, 1))),
    ("one expert", MIXTRAL, keys(many_experts(1), key(".expert_used_count", gf.U32, 1))),
    ("a window of 1", GEMMA, key(".attention.sliding_window", gf.U32, 1)),
    ("a window of 2^30", GEMMA, key(".attention.sliding_window", gf.U32, 1 << 30)),
    ("a cap of 0 is none", GEMMA, keys(key(".final_logit_softcapping", F, 0), key(".attn_logit_softcapping", F, 0))),
    ("a cap of 1e-30", GEMMA, keys(key(".final_logit_softcapping", F, 1e-30), key(".attn_logit_softcapping", F, 1e-30))),
    ("a cap of 1e30", GEMMA, keys(key(".final_logit_softcapping", F, 1e30), key(".attn_logit_softcapping", F, 1e30))),
    ("a factor of 0 is none", LLAMA, key(".rope.scaling.factor", F, 0)),
    ("YaRN", LLAMA, YARN),
    ("YaRN with a factor of 1", LLAMA, keys(YARN, key(".rope.scaling.factor", F, 1))),
    ("YaRN with a context of 1", LLAMA, keys(YARN, key(CTX, gf.U32, 1))),
    ("YaRN with betas apart", LLAMA, keys(YARN, key(".rope.scaling.yarn_beta_fast", F, 1e30), key(".rope.scaling.yarn_beta_slow", F, 1e-30))),
    ("linear scaling", LLAMA, keys(key(".rope.scaling.type", gf.STRING, "linear"), key(".rope.scaling.factor", F, 1e6))),
    ("a context of 2^30", LLAMA, key(".context_length", gf.U32, 1 << 30)),
)


def ask(path, *more):
    return t.stoa("logits", path, "--tokens", IDS, "--threads", "2", *more)


def each_file(rows, look):
    by_model = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, model, change, *words in rows:
            if model not in by_model:
                with open(t.tiny(model), "rb") as f:
                    by_model[model] = f.read()
            file = gf.read(t.tiny(model))
            change(file)
            look(name, ask(file.write(os.path.join(folder, "odd.gguf"))), *words)


def check_refused(name, r, word):
    lines = [line for line in r.err.splitlines() if line.startswith("stoa: ")]
    ok = r.code == 3 and len(lines) == len(r.err.splitlines()) == 1 and word in lines[0] and not r.out
    t.check(name, ok, f"wanted exit code 3 and one line with {word}: {r}")


def test_refused():
    if t.have_tiny("odd model files"):
        each_file(REFUSED, check_refused)


def test_answered():
    if t.have_tiny("odd model files"):
        each_file(ANSWERED, lambda name, r: t.check(name, r.code == 0 and r.out.startswith("hash "), r))


def test_more_tensors():
    """GL-15: factors of RoPE are used; a tensor that nobody knows is named and the model answers as without it."""
    if not t.have_tiny("GL-15"):
        return
    with tempfile.TemporaryDirectory() as folder:
        def asked(name, change, model=LLAMA):
            f = gf.read(t.tiny(model))
            change(f)
            return ask(f.write(os.path.join(folder, name)))

        plain = asked("plain", lambda f: None)
        r = asked("unknown", floats("blk.0.nobody_knows.weight", (4,), [1.0] * 4))
        t.check("GL-15: an unknown tensor is named once", r.code == 0 and r.err.count("blk.0.nobody_knows.weight") == 1, r)
        t.equal("GL-15: and changes nothing", r.out, plain.out)
        ones = asked("ones", floats("rope_freqs.weight", (4,), [1.0] * 4))
        t.equal("GL-15: factors of 1", (ones.out, ones.err), (plain.out, plain.err))
        t.check("GL-15: other factors count", asked("twos", floats("rope_freqs.weight", (4,), [2.0] * 4)).out != plain.out)


def test_scaling_that_is_none():
    """A factor of 1 or 0, named or not, is no scaling: the same bits."""
    if not t.have_tiny("no scaling"):
        return
    want = ask(t.tiny(LLAMA)).out
    linear, none = (key(".rope.scaling.type", gf.STRING, x) for x in ("linear", "none"))
    rows = [(str(x), LLAMA, keys(*first, key(".rope.scaling.factor", F, x))) for x in (0, 1) for first in ((), (linear,), (none,))]
    each_file(rows, lambda name, r: t.equal(f"a factor of {name}", r.out, want))


def test_files_cut_short():
    """GL-01: the last 100 bytes are missing; on one rank and on two."""
    if not t.have_tiny("GL-01"):
        return
    with open(t.tiny(LLAMA), "rb") as f:
        data = f.read()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "cut.gguf")
        with open(path, "wb") as f:
            f.write(data[:-100])
        for layout in ("tp=1", "tp=2"):
            check_refused(f"GL-01: cut short, {layout}", ask(path, "--layout", layout), "output.weight: needs")


if __name__ == "__main__":
    t.run(globals())
