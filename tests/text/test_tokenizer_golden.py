#!/usr/bin/env python3
"""`stoa tokenize` from outside: it needs a file's tokenizer and nothing else; real models' ids.  test_real_tokenizers.c has every string."""
import json
import os
import sys
import tempfile

import gguf

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
import stoa_test as t

GOLDEN = os.path.join(HERE, "..", "golden")
NORMAL, CONTROL = 1, 3
BYTES = [chr(b) if 0x20 < b < 0x7F or 0xA0 < b != 0xAD else None for b in range(256)]
BYTES = [c or chr(0x100 + BYTES[:b].count(None)) for b, c in enumerate(BYTES)]


def write(path, pieces=("ab",), merges=("a b",), **more):
    """Byte-level BPE of all bytes, `pieces` and <s>, </s>; of an architecture that nobody has, and without tensors."""
    writer = gguf.GGUFWriter(path, "nobody-has-this")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([*BYTES, *pieces, "<s>", "</s>"])
    writer.add_token_types([NORMAL] * (256 + len(pieces)) + [CONTROL] * 2)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(256 + len(pieces))
    writer.add_eos_token_id(257 + len(pieces))
    for key, value in more.items():
        getattr(writer, key)(value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_only_the_tokenizer():
    with tempfile.TemporaryDirectory() as folder:
        path = write(os.path.join(folder, "a.gguf"), add_add_bos_token=True, add_add_eos_token=True)
        t.equal("ids with both edges", t.stoa_json("tokenize", path, "abc")["tokens"], [257, 256, ord("c"), 258])
        t.equal("ids of a text that has both", t.stoa_json("tokenize", path, "<s>ab</s>")["tokens"], [257, 256, 258])
        t.equal("ids of nothing", t.stoa_json("tokenize", path, "")["tokens"], [257, 258])
        path = write(os.path.join(folder, "b.gguf"))
        t.equal("ids without edges", t.stoa_json("tokenize", path, "abc")["tokens"], [256, ord("c")])
        t.equal("no warning", t.stoa("tokenize", path, "abc").err, "")


def test_tk_04_three_parts():
    with tempfile.TemporaryDirectory() as folder:
        path = write(os.path.join(folder, "a.gguf"), merges=("a b c",))
        r = t.stoa("tokenize", path, "ab")
        t.check("TK-04: a merge of three parts is a named error", r.code == 3 and "tokenizer.ggml.merges: merge 0" in r.err, r)


def text_of(pieces):
    return b"".join(bytes.fromhex(p["bytes"]) if isinstance(p, dict) else p.encode() for p in pieces)


def check_real(name, model, golden, begin):
    if not t.have_model(name, model):
        return
    with open(os.path.join(GOLDEN, "hard_strings.json"), encoding="utf-8") as f:
        texts = json.load(f)
    with open(os.path.join(GOLDEN, golden), encoding="utf-8") as f:
        want = json.load(f)
    for i in (0, 80, 98, 134, 139, 187):        # accents, Hangul, marks of blanks, NUL, <unk>
        got = t.stoa_json("tokenize", t.real(model), "-", input=texts[i])
        t.equal(f"{name}: ids of string {i}", got["tokens"], begin + want["ids"][i])
        text = want["decoded"].get(str(i), texts[i])
        t.equal(f"{name}: text of string {i}", text_of(got["pieces"][len(begin):]), text.encode())


def test_gemma():
    check_real("Gemma 3", "gemma3-270m", "gemma3_tokens.json", [2])


def test_qwen():
    check_real("Qwen2.5", "qwen2.5-coder-0.5b", "qwen2_tokens.json", [])


if __name__ == "__main__":
    t.run(globals())
