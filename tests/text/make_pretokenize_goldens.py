"""Writes tests/golden/pretokenize.json: how Hugging Face tokenizers cuts text, to judge src/text/pretokenize.c by.

    python3 -m venv V && V/bin/pip install tokenizers==0.23.3
    V/bin/python tests/text/make_pretokenize_goldens.py > tests/golden/pretokenize.json

{"texts": [..], "bytes": {NAME: [[bytes of each piece of text 0], ..]}, "same": {NAME: another with the same expressions}, "nfc": [..]}.
The texts are hard_strings.json and, from a fixed seed, strings of characters that the expressions treat differently.

Where the expressions come from: read in the models' own tokenizer.json for llama-bpe and deepseek-v3; quoted from there by others for
gpt-2, smollm, starcoder, refact, command-r, falcon, qwen2, deepseek-llm and deepseek-coder. The rest, and which names share a list, is
what GGUF's own reader says the names mean, "default" included, which no model has. NFC is stated for qwen2, command-r and GPT-NeoX (mpt,
olmo, modern-bert); for deepseek-r1-qwen, megrez, stablelm2, hunyuan and qwen35 it is inferred from their being made after Qwen's.
"""
import json
import pathlib
import random
import sys

from tokenizers import Regex, pre_tokenizers

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
SEED_CODER = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+"
              r"|\s+(?!\S)|\s+")
BAILING = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+")
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
NOT_HAN = r"&&[^\p{Han}]"


def cased(contraction, without=""):
    return (rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}{without}]*[{LOWER}{without}]+{contraction}"
            rf"|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}{without}]+[{LOWER}{without}]*{contraction}")


CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
GPT4O = cased(CONTRACTION) + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEKKEN = cased("") + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
KIMI = r"[\p{Han}]+|" + cased(CONTRACTION, NOT_HAN) + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
DEEPSEEK_V3 = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
               r"|\s*[\r\n]+|\s+(?!\S)|\s+")
# What DeepSeek LLM takes for letters: ranges of code points.
DEEPSEEK_LETTERS = """
41-5A 61-7A B5 C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376-377 37B-37D 37F 386 388-38A 38C 38E-3A1 3A3-3F5 3F7-481 48A-52F
531-556 10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA 1CBD-1CBF 1D00-1D2B 1D6B-1D77 1D79-1D9A 1E00-1F15 1F18-1F1D 1F20-1F45 1F48-1F4D 1F50-1F57
1F59 1F5B 1F5D 1F5F-1F7D 1F80-1FB4 1FB6-1FBC 1FBE 1FC2-1FC4 1FC6-1FCC 1FD0-1FD3 1FD6-1FDB 1FE0-1FEC 1FF2-1FF4 1FF6-1FFC 2102 2107
210A-2113 2115 2119-211D 2124 2126 2128 212A-212D 212F-2134 2139 213C-213F 2145-2149 214E 2183-2184 2C00-2C7B 2C7E-2CE4 2CEB-2CEE
2CF2-2CF3 A640-A66D A680-A69B A722-A76F A771-A787 A78B-A78E AB70-ABBF FB00-FB06 FB13-FB17 FF21-FF3A FF41-FF5A 10400-1044F 104B0-104D3
104D8-104FB 10C80-10CB2 10CC0-10CF2 118A0-118DF 1E900-1E943"""
DEEPSEEK_LETTERS = r"\s?[" + "".join("-".join(chr(int(x, 16)) for x in r.split("-")) for r in DEEPSEEK_LETTERS.split()) + "]+"
DEEPSEEK_MARKS = "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"

SAME = {
    "gpt-2": "phi-2 roberta-bpe jina-v1-en jina-v2-code jina-v2-de jina-v2-es jina-de jina-es gigachat a.x-4.0 mellum jais exaone4 trillion "
             "granite-docling mpt olmo modern-bert",
    "smollm": "starcoder refact codeshell exaone minerva-7b mellum2 command-r",
    "llama-bpe": "llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano dbrx smaug-bpe chatglm-bpe glm4",
    "qwen2": "deepseek-r1-qwen megrez stablelm2 hunyuan grok-2 solar-open",
    "bailingmoe": "bailingmoe2 llada-moe", "gpt-4o": "llama4 kanana2 minimax-m2", "bloom": "poro-chat gpt3-finnish",
    "deepseek-v3": "hunyuan-dense joyai-llm",
}
NFC = "mpt olmo modern-bert command-r qwen2 deepseek-r1-qwen megrez stablelm2 hunyuan qwen35".split()
ALPHABET = list("'''sStdmlLrevE  \n\n\r\t.-_/aBé中\u0301\u017f\u212a1234½²Ⅷ٣\u00a0\u3000🙂,!?。、，(|$<^~`\u01c5ʰぁカ한〇々\u0903\u2028\u0007"
                "\ufeff\u200dБя«》￥") + ["'ll", "'re", "'D", "don't", "  ", "\r\n", "HTTPServer", "12345678", ".js", "//"]
HARD = pathlib.Path(__file__).parents[1] / "golden" / "hard_strings.json"


def byte_level(use_regex=True):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def digits():
    return pre_tokenizers.Digits(individual_digits=True)


def expression(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def split(*steps):
    steps = [expression(s) if isinstance(s, str) else s for s in steps]
    return pre_tokenizers.Sequence([*steps, byte_level(use_regex=False)])


KINDS = {
    "default": split(r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"),
    "gpt-2": byte_level(),
    # Falcon's own second to last step is Digits, over the characters that stand for bytes: see pretokenize.c.
    "falcon": pre_tokenizers.Sequence([pre_tokenizers.Punctuation("contiguous"), byte_level(), expression("[0-9]+"),
                                       expression("[0-9][0-9][0-9]")]),
    "smollm": pre_tokenizers.Sequence([digits(), byte_level()]),
    "llama-bpe": split(CL100K % "{1,3}"),
    "qwen2": split(CL100K % ""),
    "qwen35": split(QWEN35),
    "seed-coder": split(SEED_CODER),
    "bailingmoe": split(BAILING),
    "gpt-4o": split(GPT4O),
    "tekken": split(TEKKEN),
    "kimi-k2": split(KIMI),
    "superbpe": split(r"\p{N}+", r"(?=(\d{3})+(?!\d))"),
    "bloom": split(BLOOM),
    "viking": split(BLOOM, r"\p{N}"),
    "deepseek-llm": split("[\r\n]", DEEPSEEK_LETTERS, DEEPSEEK_MARKS, r"\s+$", CJK, digits()),
    "deepseek-coder": split("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK, digits()),
    "deepseek-v3": split(r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", DEEPSEEK_V3),
}


def main():
    dice = random.Random(1)
    texts = json.loads(HARD.read_text())
    texts += ["".join(dice.choice(ALPHABET) for _ in range(dice.randint(2, 40))) for _ in range(200)]
    # ByteLevel writes each byte as one character, so characters of its pieces are bytes of the text.
    cut = {name: [[len(piece) for piece, _ in pre.pre_tokenize_str(text)] for text in texts] for name, pre in KINDS.items()}
    same = {name: first for first, names in SAME.items() for name in names.split()}
    json.dump({"texts": texts, "bytes": cut, "same": same, "nfc": NFC}, sys.stdout, separators=(",", ":"))
    print()


main()
