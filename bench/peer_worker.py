"""peer_worker.py: llama.cpp behind its Python binding, in the environment that peer.py makes.

    peer_worker.py serve MODEL THREADS CONTEXT PLAIN SEQUENCES      a line of JSON in, a line of JSON out:
        {"test": "prefill", "tokens": N}            -> {"seconds": S, "cpu_s": S}  one batch of N tokens, logits of the last
        {"test": "decode", "tokens": N}             -> {"seconds": S, "cpu_s": S}  N tokens of each sequence, one of each in a batch
        {"test": "logits", "ids": [..], "to": PATH} -> {"rows": N}      f32 logits after each id, row after row
    peer_worker.py first MODEL THREADS CONTEXT PLAIN PROMPT         loads, answers one token, and says how long that took
    peer_worker.py quantize FROM TO THREADS                         every matrix as Q4_K

Only the calls of llama_decode are timed, so Python is no part of the figures.  Settings are the defaults of llama.cpp's own
benchmark: n_batch 2048, n_ubatch 512, f16 cache, flash attention as it chooses, threads for prefill as for decode.
PLAIN is 1 for weights as they are in the file: no repacking, and so no matrix unit (AMX)."""
import ctypes
import json
import os
import sys
import time

import llama_cpp as L
import numpy as np


def peak_bytes():
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmHWM"))


class Engine:
    def __init__(self, path, threads, context, plain, sequences=1):
        self.quiet = L.llama_log_callback(lambda level, text, user: None)
        L.llama_log_set(self.quiet, ctypes.c_void_p(0))
        L.llama_backend_init()
        params = L.llama_model_default_params()
        params.use_extra_bufts = not plain
        self.model = L.llama_model_load_from_file(path.encode(), params)
        if not self.model:
            sys.exit(f"llama.cpp cannot load {path}")
        params = L.llama_context_default_params()
        params.n_ctx = context * sequences
        params.n_seq_max = self.n_sequences = sequences
        params.n_batch = 2048
        params.n_ubatch = 512
        params.n_threads = params.n_threads_batch = threads
        self.context = L.llama_init_from_model(self.model, params)
        self.vocab = L.llama_model_get_vocab(self.model)
        self.n_vocab = L.llama_vocab_n_tokens(self.vocab)

    def clear(self):
        L.llama_memory_clear(L.llama_get_memory(self.context), True)

    def decode(self, batch):
        err = L.llama_decode(self.context, batch)
        if err:
            sys.exit(f"llama_decode: {err}")

    def timed_decode(self, batch):
        """Wall seconds and CPU seconds."""
        start = np.array([time.perf_counter(), time.process_time()])
        self.decode(batch)
        L.llama_synchronize(self.context)
        return np.array([time.perf_counter(), time.process_time()]) - start

    def ids(self, n):
        """The same ids as `stoa bench` takes; any would do."""
        return (L.llama_token * n)(*((i * 7919 + 13) % self.n_vocab for i in range(n)))

    def prefill(self, ids):
        batch = L.llama_batch_get_one(ids, len(ids))
        self.clear()
        return self.timed_decode(batch)

    def generate(self, n):
        """As llama.cpp's benchmark of batches does it: every sequence adds a token to each batch."""
        ids = self.ids(n * self.n_sequences)
        batch = self.batch([(0, s) for s in range(self.n_sequences)])
        self.clear()
        total = np.zeros(2)
        for i in range(n):
            for s in range(self.n_sequences):
                batch.token[s] = ids[i * self.n_sequences + s]
                batch.pos[s] = i
            total += self.timed_decode(batch)
        L.llama_batch_free(batch)
        return total

    @staticmethod
    def batch(places):
        """A token for each (position, sequence), with logits of all."""
        batch = L.llama_batch_init(len(places), 0, 1)
        batch.n_tokens = len(places)
        for i, (position, sequence) in enumerate(places):
            batch.pos[i] = position
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = sequence
            batch.logits[i] = True
        return batch

    def logits(self, ids):
        """Yields a row of f32 for each position."""
        batch = self.batch([(i, 0) for i in range(len(ids))])
        for i, token in enumerate(ids):
            batch.token[i] = token
        self.clear()
        self.decode(batch)
        for i in range(len(ids)):
            row = L.llama_get_logits_ith(self.context, i)
            yield np.ctypeslib.as_array(row, shape=(self.n_vocab,))
        L.llama_batch_free(batch)

    def tokenize(self, text):
        raw = text.encode()
        ids = (L.llama_token * (len(raw) + 8))()
        n = L.llama_tokenize(self.vocab, raw, len(raw), ids, len(ids), True, True)
        return (L.llama_token * n)(*ids[:n])


def answer(engine, question):
    if question["test"] == "prefill":
        return dict(zip(("seconds", "cpu_s"), engine.prefill(engine.ids(question["tokens"]))))
    if question["test"] == "decode":
        return dict(zip(("seconds", "cpu_s"), engine.generate(question["tokens"])))
    with open(question["to"], "wb") as out:
        for row in engine.logits(question["ids"]):
            row.tofile(out)
    return {"rows": len(question["ids"])}


def serve(path, threads, context, plain, sequences):
    engine = Engine(path, threads, context, plain, sequences)
    engine.prefill(engine.ids(64))
    engine.generate(8)
    print(json.dumps({"n_vocab": engine.n_vocab}), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(engine, json.loads(line))), flush=True)
    sys.stdout.flush()
    os._exit(0)                 # without tearing llama.cpp down, which may print


def first_token(path, threads, context, plain, prompt):
    before, start = peak_bytes(), time.perf_counter()
    engine = Engine(path, threads, context, plain)
    ids = engine.tokenize(prompt)
    engine.prefill(ids)
    row = L.llama_get_logits_ith(engine.context, -1)
    token = int(np.ctypeslib.as_array(row, shape=(engine.n_vocab,)).argmax())
    print(json.dumps({"seconds": time.perf_counter() - start, "token": token, "prompt_tokens": len(ids), "peak_bytes": peak_bytes(),
                      "import_bytes": before}), flush=True)
    os._exit(0)


def quantize(source, to, threads):
    quiet = L.llama_log_callback(lambda level, text, user: None)
    L.llama_log_set(quiet, ctypes.c_void_p(0))
    params = L.llama_model_quantize_default_params()
    params.ftype, params.pure, params.nthread = L.LLAMA_FTYPE_MOSTLY_Q4_K_S, True, threads
    if L.llama_model_quantize(source.encode(), to.encode(), ctypes.byref(params)):
        sys.exit(f"llama.cpp cannot quantize {source}")


if __name__ == "__main__":
    what, arguments = sys.argv[1], sys.argv[2:]
    if what == "quantize":
        quantize(arguments[0], arguments[1], int(arguments[2]))
    else:
        model, threads, context, plain = arguments[0], int(arguments[1]), int(arguments[2]), arguments[3] == "1"
        if what == "first":
            first_token(model, threads, context, plain, arguments[4])
        else:
            serve(model, threads, context, plain, int(arguments[4]))
