"""Writes tests/golden/dtype.json: what blocks of quantized weights stand for, to judge src/base/dtype.c by.

    python3 -m venv V && V/bin/pip install gguf==0.19.0 numpy
    V/bin/python tests/base/make_dtype_goldens.py > tests/golden/dtype.json

Blocks are random bytes with chosen scales; {"TYPE": [bytes of the blocks, their f32 after gguf.quants.dequantize]}, in hex.
"""
import json

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as T
from gguf.quants import dequantize

# Where a block's f16 scales are.  MXFP4 has a byte, E8M0.
SCALES = {T.Q8_0: (0,), T.Q4_0: (0,), T.Q4_1: (0, 2), T.Q5_0: (0,), T.Q5_1: (0, 2), T.Q2_K: (80, 82), T.Q3_K: (108,), T.Q4_K: (0, 2),
          T.Q5_K: (0, 2), T.Q6_K: (208,), T.IQ4_NL: (0,), T.IQ4_XS: (0,), T.MXFP4: ()}
F16 = np.array([0.01234, -0.0567, 3e-7, 60000], np.float16).view(np.uint8).reshape(-1, 2)
E8M0 = (0, 1, 2, 121, 254, 255)

random = np.random.default_rng(1)
golden = {}
for qtype, offsets in SCALES.items():
    n_blocks = 2 if GGML_QUANT_SIZES[qtype][0] > 32 else 4 if offsets else len(E8M0)
    blocks = random.integers(0, 256, (n_blocks, GGML_QUANT_SIZES[qtype][1]), np.uint8)
    for i, block in enumerate(blocks):
        for j, at in enumerate(offsets):
            block[at:at + 2] = F16[(i + j) % len(F16)]
        if not offsets:
            block[0] = E8M0[i]
    golden[qtype.name] = [blocks.tobytes().hex(), dequantize(blocks.reshape(-1), qtype).astype("<f4").tobytes().hex()]
print("{" + ",\n".join(f"{json.dumps(name)}: {json.dumps(hexes)}" for name, hexes in golden.items()) + "}")
