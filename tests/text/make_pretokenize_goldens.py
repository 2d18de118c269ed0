"""Writes tests/golden/pretokenize.json: how Hugging Face tokenizers cuts text, to judge src/text/pretokenize.c by.

    python3 -m venv V && V/bin/pip install tokenizers==0.23.3
    V/bin/python tests/text/make_pretokenize_goldens.py > tests/golden/pretokenize.json

{"texts": [..], "bytes": {NAME: [[bytes of each piece of text 0], ..]}}.  The texts are hard_strings.json and, from a fixed
seed, strings of characters that the expressions treat differently.
"""
import json
import pathlib
import random
import sys

from tokenizers import Regex, pre_tokenizers

CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
ALPHABET = list("'''sStdmlLrevE  \n\n\r\t.-_aé中\u0301\u017f\u212a1234½²Ⅷ٣\u00a0\u3000🙂") + ["'ll", "'re", "don't", "  ", "\r\n"]
HARD = pathlib.Path(__file__).parents[1] / "golden" / "hard_strings.json"


def byte_level():
    return pre_tokenizers.ByteLevel(add_prefix_space=False)


def split(expression):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(expression), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def main():
    kinds = {
        "gpt-2": byte_level(),
        "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level()]),
        "qwen2": split(CL100K % ""),
        "llama-bpe": split(CL100K % "{1,3}"),
    }
    dice = random.Random(1)
    texts = json.loads(HARD.read_text())
    texts += ["".join(dice.choice(ALPHABET) for _ in range(dice.randint(2, 40))) for _ in range(150)]
    # ByteLevel writes each byte as one character, so characters of its pieces are bytes of the text.
    cut = {name: [[len(piece) for piece, _ in pre.pre_tokenize_str(text)] for text in texts] for name, pre in kinds.items()}
    json.dump({"texts": texts, "bytes": cut}, sys.stdout, separators=(",", ":"))
    print()


main()
