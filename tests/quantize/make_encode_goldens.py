"""Writes tests/golden/encode.json: the error of llama.cpp's quantizers, without an importance matrix, on the weights that
tests/quantize/test_encode.c makes.

    ~/.cache/stoa/peer/bin/python tests/quantize/make_encode_goldens.py > tests/golden/encode.json     (bench/peer.py makes that environment)

{"TYPE": {"gauss": root of the mean squared error over that of the weights, "tails": .., "shifted": ..}}
"""
import ctypes
import glob
import json
import os

import llama_cpp
import numpy as np

N = 1 << 16
TYPES = {"Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "Q2_K": 10, "Q3_K": 11, "Q4_K": 12, "Q5_K": 13, "Q6_K": 14, "IQ4_NL": 20, "IQ4_XS": 23}
ggml = ctypes.CDLL(glob.glob(os.path.join(os.path.dirname(llama_cpp.__file__), "lib", "libggml-base.so*"))[0])
ggml.ggml_quantize_chunk.restype = ctypes.c_size_t
ggml.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]


def weights():
    """The sums of twelve 16-bit draws are exact in f32, so C makes the same."""
    state, draws = 1, np.empty(12 * N, np.int64)
    for i in range(len(draws)):
        state = (state * 1664525 + 1013904223) & 0xffffffff
        draws[i] = state >> 16
    gauss = ((draws.reshape(N, 12).sum(1) - 393216) / 65536).astype(np.float32)
    return {"gauss": gauss, "tails": gauss * gauss * gauss, "shifted": gauss + np.float32(1.5)}


def error(name, number, x):
    blocks, y = np.zeros(4 * N, np.uint8), np.zeros(N, np.float32)
    ggml.ggml_quantize_chunk(number, x.ctypes.data, blocks.ctypes.data, 0, N // 256, 256, None)
    back = getattr(ggml, "dequantize_row_" + name.lower().replace("_k", "_K"))
    back.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    back(blocks.ctypes.data, y.ctypes.data, N)
    x, y = x.astype(np.float64), y.astype(np.float64)
    return float(f"{np.sqrt(((x - y) ** 2).sum() / (x ** 2).sum()):.6g}")


rows = weights()
print("{" + ",\n".join(f"{json.dumps(name)}: {json.dumps({what: error(name, number, x) for what, x in rows.items()})}" for name, number in TYPES.items()) + "}")
