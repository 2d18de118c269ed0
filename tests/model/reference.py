"""The families of src/model in plain numpy and float64, read from the GGUF file: slow, short, and written from the papers and from
the masks of Hugging Face's transformers, not from the C code.  What it cannot do is not needed by the tests.

    a query at position p of a layer with window w sees the keys p - w + 1 .. p         (masking_utils.sliding_window_overlay)
    an expert's weight is its softmax over all experts; with normalisation divided by the sum over the chosen
"""
import gguf
import numpy as np


class Model:
    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.arch = reader.get_field("general.architecture").contents()
        self.reader = reader
        self.weights = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float64) for t in reader.tensors}
        self.gemma = self.arch == "gemma3"
        self.n_layers, self.n_heads = self.key("block_count"), self.key("attention.head_count")
        self.n_kv = self.key("attention.head_count_kv", self.n_heads)
        self.head_dim = self.key("attention.key_length", self.key("embedding_length") // self.n_heads)
        self.eps = self.key("attention.layer_norm_rms_epsilon")
        self.base = self.key("rope.freq_base", 1e6 if self.gemma else 1e4)
        self.local_base = self.key("rope.freq_base_swa", 1e4)
        self.window = self.key("attention.sliding_window", 0) if self.gemma else 0
        pattern = self.key("attention.sliding_window_pattern", 6)
        self.local = [bool(self.window and (pattern[i] if isinstance(pattern, list) else (i + 1) % pattern)) for i in range(self.n_layers)]
        self.n_used = self.key("expert_used_count", 0)
        self.normalise = self.key("expert_weights_norm", True)

    def key(self, suffix, default=None):
        field = self.reader.get_field(f"{self.arch}.{suffix}")
        return default if field is None else field.contents()

    def w(self, layer, name):
        return self.weights[f"blk.{layer}.{name}"]

    def norm(self, x, weight):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * weight

    # ---- attention ----
    def rotated(self, x, local):
        """x [tokens][heads][head_dim]; Llama rotates neighbours, the others halves."""
        n = self.head_dim // 2
        base = self.local_base if local else self.base
        angle = np.arange(len(x))[:, None] * base ** (-np.arange(n) / n)
        if not local and "rope_freqs.weight" in self.weights:
            angle = angle / self.weights["rope_freqs.weight"]
        c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
        a, b = (x[..., 0::2], x[..., 1::2]) if self.arch == "llama" else (x[..., :n], x[..., n:])
        out = np.empty_like(x)
        if self.arch == "llama":
            out[..., 0::2], out[..., 1::2] = a * c - b * s, a * s + b * c
        else:
            out[..., :n], out[..., n:] = a * c - b * s, a * s + b * c
        return out

    def sees(self, n_tokens, local):
        """[query][key]"""
        query, key = np.arange(n_tokens)[:, None], np.arange(n_tokens)[None]
        return (key <= query) & (key > query - self.window) if local else key <= query

    def attention(self, i, h):
        heads = {}
        for x, n in (("q", self.n_heads), ("k", self.n_kv), ("v", self.n_kv)):
            y = h @ self.w(i, f"attn_{x}.weight").T
            if f"blk.{i}.attn_{x}.bias" in self.weights:
                y = y + self.w(i, f"attn_{x}.bias")
            y = y.reshape(len(h), n, self.head_dim)
            if f"blk.{i}.attn_{x}_norm.weight" in self.weights:
                y = self.norm(y, self.w(i, f"attn_{x}_norm.weight"))
            heads[x] = y
        q, k = self.rotated(heads["q"], self.local[i]), self.rotated(heads["k"], self.local[i])
        k, v = (np.repeat(x, self.n_heads // self.n_kv, axis=1) for x in (k, heads["v"]))
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(self.head_dim)
        cap = self.key("attn_logit_softcapping", 0)
        if cap:
            scores = cap * np.tanh(scores / cap)
        scores = np.where(self.sees(len(h), self.local[i]), scores, -np.inf)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        out = np.einsum("hqk,khd->qhd", p / p.sum(-1, keepdims=True), v)
        return out.reshape(len(h), -1) @ self.w(i, "attn_output.weight").T

    # ---- feed-forward ----
    def gated(self, gate, up):
        if self.gemma:
            return 0.5 * gate * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate ** 3))) * up
        return gate / (1 + np.exp(-gate)) * up

    def routed(self, i, h):
        """[tokens][experts]: the weight of each, 0 where it is not chosen."""
        logits = h @ self.w(i, "ffn_gate_inp.weight").T
        p = np.exp(logits - logits.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        chosen = np.argsort(-logits, axis=-1, kind="stable")[:, :self.n_used]
        weights = np.zeros_like(p)
        np.put_along_axis(weights, chosen, np.take_along_axis(p, chosen, -1), -1)
        return weights / weights.sum(-1, keepdims=True) if self.normalise else weights

    def feed_forward(self, i, h):
        if f"blk.{i}.ffn_gate_inp.weight" not in self.weights:
            return self.gated(h @ self.w(i, "ffn_gate.weight").T, h @ self.w(i, "ffn_up.weight").T) @ self.w(i, "ffn_down.weight").T
        out, weights = np.zeros_like(h), self.routed(i, h)
        for e in range(weights.shape[1]):
            y = self.gated(h @ self.w(i, "ffn_gate_exps.weight")[e].T, h @ self.w(i, "ffn_up_exps.weight")[e].T)
            out += weights[:, e:e + 1] * (y @ self.w(i, "ffn_down_exps.weight")[e].T)
        return out

    def logits(self, tokens):
        """[tokens][vocabulary]"""
        embedding = self.weights["token_embd.weight"]
        x = embedding[tokens]
        if self.gemma:
            x = x * np.sqrt(x.shape[1])
        for i in range(self.n_layers):
            y = self.attention(i, self.norm(x, self.w(i, "attn_norm.weight")))
            x = x + (self.norm(y, self.w(i, "post_attention_norm.weight")) if self.gemma else y)
            y = self.feed_forward(i, self.norm(x, self.w(i, "ffn_norm.weight")))
            x = x + (self.norm(y, self.w(i, "post_ffw_norm.weight")) if self.gemma else y)
        logits = self.norm(x, self.weights["output_norm.weight"]) @ self.weights.get("output.weight", embedding).T
        cap = self.key("final_logit_softcapping", 0)
        return cap * np.tanh(logits / cap) if cap else logits
