"""Writes tests/golden/unigram.json and nmt_nfkc.bin: ids of sentencepiece's unigram models, to judge src/text/unigram.c by.

    python3 -m venv V && V/bin/pip install sentencepiece==0.2.3 protobuf
    V/bin/python tests/text/make_unigram_goldens.py tests/golden

Three small models are trained here; what they are trained on matters little.  {"texts": [..], "models": [{"name", "pieces", "types" and
"scores": one a line, "charsmap": a file or "", "prefix", "merge": whether a blank is put first, whether runs of blanks are one,
"ids": [[..], ..]}, ..]}.  The map of characters of a rule that sentencepiece brings (240 kB) is a file of its own; that of the model
with rules of its own is written as a list of numbers, "rules".
"""
import io
import json
import pathlib
import random
import sys
import tempfile

import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as pb2

WORDS = ("the of and to in is that it was for on are with as his they at be this from have or by one had not but what all were when we "
         "there can an your which their said if do will each about how up out them then she many some so these would other into has more "
         "her two like him see time could no make than first been its who now people my made over did down only way find use may water "
         "long little very after words called just where most know get through back much before go good new write our used me man too any "
         "day same right look think also around another came come work three word must because does part even place well such here take "
         "Straße naïve café élan 世界 中文 日本語 カタカナ ひらがな привет мир שלום مرحبا token tokens tokenizer tokenization").split()
ODD = list("ab the  \u00a0\u3000\t\u200b\u2581\u2581ﬁＡｂ½²①Å\u030aé\u0301e\u0301世한글한ㄱ🙂\u00ad\u0007\ufeff…ﷺ.,<>/1234İß") + \
    ["  ", "   ", "A", "AB", "token", "izer", " the", "<sep>", " <sep> ", "<sep>", "zq", "qzqz"]
# ab -> def, - -> two blanks, z -> nothing, A -> a, AB -> tok, two dashes -> a blank
RULES = "61 62\t64 65 66\n2D\t20 20\n7A\t\n41\t61\n41 42\t74 6F 6B\n2014 2014\t20\n"


def train(**options):
    dice = random.Random(1)
    lines = [" ".join(dice.choice(WORDS) for _ in range(12)) for _ in range(2000)]
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=out, model_type="unigram", num_threads=1,
                                             minloglevel=2, user_defined_symbols=["<sep>"], hard_vocab_limit=False, **options)
    return out.getvalue()


def models():
    yield "nmt_nfkc", train(vocab_size=700, normalization_rule_name="nmt_nfkc")
    yield "bytes", train(vocab_size=800, normalization_rule_name="identity", add_dummy_prefix=False, remove_extra_whitespaces=False,
                         byte_fallback=True)
    with tempfile.TemporaryDirectory() as folder:
        rules = pathlib.Path(folder, "rules.tsv")
        rules.write_text(RULES)
        yield "rules", train(vocab_size=600, normalization_rule_tsv=str(rules), remove_extra_whitespaces=False)


def main():
    folder = pathlib.Path(sys.argv[1])
    dice = random.Random(2)
    texts = [t for t in json.loads((folder / "hard_strings.json").read_text()) if "\0" not in t]
    texts += ["hello<sep> world", "hello<sep>world", "hello <sep>", "  hello", "hello  ", "a  b", "", " ", "   ", "zz", "a-b", "ab-", "-", "——"]
    texts += ["".join(dice.choice(ODD) for _ in range(dice.randint(1, 25))) for _ in range(300)]
    # A blank that would go before a special token is one of the few things that GGUF's readers do otherwise.
    texts = [t for t in texts if not t.strip().startswith("<sep>")]
    rows = []
    for name, trained in models():
        processor = sentencepiece.SentencePieceProcessor(model_proto=trained)
        model = pb2.ModelProto.FromString(trained)
        charsmap = model.normalizer_spec.precompiled_charsmap
        assert not any("\n" in p.piece for p in model.pieces)
        row = {"name": name, "pieces": "\n".join(p.piece for p in model.pieces), "types": "\n".join(str(p.type) for p in model.pieces),
               "scores": "\n".join(f"{p.score:.9g}" for p in model.pieces), "charsmap": "", "rules": "",
               "prefix": model.normalizer_spec.add_dummy_prefix, "merge": model.normalizer_spec.remove_extra_whitespaces,
               "ids": [processor.encode(t) for t in texts]}
        if len(charsmap) > 100000:
            row["charsmap"] = name + ".bin"
            (folder / row["charsmap"]).write_bytes(charsmap)
        else:
            row["rules"] = "\n".join(map(str, charsmap))
        rows.append(row)
    with open(folder / "unigram.json", "w", encoding="utf-8") as out:
        json.dump({"texts": texts, "models": rows}, out, separators=(",", ":"))
        out.write("\n")


main()
