"""Writes tests/golden/nfc.json: texts and their Normalization Form C, to judge src/text/nfc.c by.

    python3 -m venv V && V/bin/pip install unicodedata2==16.0.0
    V/bin/python tests/text/make_nfc_goldens.py > tests/golden/nfc.json

[[text, its NFC], ..]: every character that has a canonical decomposition, as itself and decomposed, a hundred to a text, and from a
fixed seed, strings of starters, marks of many orders and the three kinds of Hangul letters.
"""
import json
import random
import sys

import unicodedata2

MARKS = [c for c in map(chr, range(0x300, 0x1F000)) if unicodedata2.combining(c)]
SECONDS = "\u0cd5\u09be\u1b35\u0ddf\u1161\u1175\u11a8\u11c2\u11a7"      # starters that join what stands before them
STARTERS = "aAeoZ \u00e9\u1e69\u03b1\u0915\u1100\u1112\uac00\uac01\ud788\u0958\u0344\u2126\u0cc6\u09c7\u1b05\u0dd9\u00c5\U0001d15e中"


def main():
    dice = random.Random(1)
    changing = [chr(c) for c in range(0x110000) if unicodedata2.decomposition(chr(c)) and "<" not in unicodedata2.decomposition(chr(c))]
    changing += [chr(c) for c in range(0xAC00, 0xD7A4, 97)]
    texts = [".".join(c + "." + unicodedata2.normalize("NFD", c) for c in changing[i:i + 100]) for i in range(0, len(changing), 100)]
    for _ in range(400):
        some = dice.sample(MARKS, 3) + ["\u0301", "\u0323", "\u0327"]
        texts.append("".join(dice.choice(dice.choice([STARTERS, SECONDS, some, some])) for _ in range(dice.randint(1, 20))))
    json.dump([[t, unicodedata2.normalize("NFC", t)] for t in texts], sys.stdout, separators=(",", ":"))
    print()


main()
