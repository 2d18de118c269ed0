"""Writes tests/golden/spm.json: ids of sentencepiece for a made-up vocabulary, to judge src/text/spm.c by.

    python3 -m venv V && V/bin/pip install sentencepiece==0.2.3 protobuf
    V/bin/python tests/text/make_spm_goldens.py > tests/golden/spm.json

The pieces are all strings of one and two letters and some of three, with and without the mark of a blank, and the scores are
few, so that ties are many.  {"pieces", "types", "scores": one a line, "texts": [..], "ids": [[..], ..], "ids_no_prefix": the same
without a blank before texts, where three blanks are a user-defined piece, as in Gemma}.  SentencePiece finds such pieces after it has
put a blank before the text, other readers before: with that blank they are none here.
"""
import itertools
import json
import pathlib
import random
import string
import sys

import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as pb2

BLANKS = "\u2581\u2581\u2581"
UNKNOWN, CONTROL, USER_DEFINED, BYTE, NORMAL = 2, 3, 4, 6, 1
HARD = pathlib.Path(__file__).parents[1] / "golden" / "hard_strings.json"


def vocabulary():
    words = ["".join(w) for k in (1, 2) for w in itertools.product("abcdet", repeat=k)] + ["the", "abc", "eee", "tab"]
    words += [mark + w for mark in ("\u2581",) for w in words] + ["\u2581", "\u2581\u2581", "é", "世界"]
    words += [c for c in string.printable[:94] if c not in words]
    yield from [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)]
    yield from ((f"<0x{byte:02X}>", BYTE) for byte in range(256))
    yield from ((word, NORMAL) for word in words)
    yield from [("<sep>", USER_DEFINED), (BLANKS, NORMAL)]


def main():
    dice = random.Random(1)
    rows = [(piece, kind, float(-dice.randint(1, 5)) if kind == NORMAL else 0.0) for piece, kind in vocabulary()]
    model = pb2.ModelProto()
    for piece, kind, score in rows:
        model.pieces.add(piece=piece, score=score, type=kind)
    model.trainer_spec.model_type = pb2.TrainerSpec.BPE
    model.trainer_spec.byte_fallback = True
    model.trainer_spec.vocab_size = len(rows)
    model.normalizer_spec.name = "identity"
    model.normalizer_spec.add_dummy_prefix = True
    model.normalizer_spec.remove_extra_whitespaces = False
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())
    model.normalizer_spec.add_dummy_prefix = False
    model.pieces[-1].type = USER_DEFINED
    without = sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())
    texts = [t for t in json.loads(HARD.read_text()) if "\0" not in t]
    texts += ["".join(dice.choice("abcdetéz1. \n世界") for _ in range(dice.randint(1, 60))) for _ in range(150)]
    texts += ["This is a test", "", " ", "hello<sep> world", "hello<sep>world", "hello <sep>  world", "a<sep>", "a<sep><sep> <sep>a",
              "a   b", "a    b", "a\u2581 \u2581b", "a\u2581\u2581\u2581\u2581b"]
    json.dump({"pieces": "\n".join(r[0] for r in rows), "types": "\n".join(str(r[1]) for r in rows),
               "types_no_prefix": "\n".join(str(USER_DEFINED if r[0] == BLANKS else r[1]) for r in rows),
               "scores": "\n".join(str(r[2]) for r in rows), "texts": texts, "ids": [processor.encode(t) for t in texts],
               "ids_no_prefix": [without.encode(t) for t in texts]},
              sys.stdout, separators=(",", ":"))
    print()


main()
