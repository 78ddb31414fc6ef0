#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: make.py [FOLDER]

Writes the golden cases of daemon/text: for a small tokenizer of every kind its tokenizer.json and what the
`tokenizers` package makes of some texts. FOLDER is this script's own unless given.
"""
import base64
import hashlib
import json
import pathlib
import sys

from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers

import texts
from character_map import character_map
from compare import theirs
from tokenizers_of import ALL, VERSION, state_of

FUZZED = 30
SCALARS = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CLASSES = [r"\p{%s}" % name for name in "L N M P S Z C Lu Ll Lt Lm Lo Mn Nd".split()] + [
    r"\s", r"\S", r"\d", r"\w", r"\W", r"\P{L}", r"[^\s\p{L}\p{N}]", r"[^\r\n\p{L}\p{N}]", "(?i:s)", "(?i:k)"]
NORMALIZERS = {
    "NFC": normalizers.NFC(), "NFD": normalizers.NFD(), "NFKC": normalizers.NFKC(), "NFKD": normalizers.NFKD(), "Lowercase": normalizers.Lowercase(),
    "StripAccents": normalizers.StripAccents(), "BertNormalizer": normalizers.BertNormalizer()}
SPLITTERS = {
    "Whitespace": pre_tokenizers.Whitespace(), "WhitespaceSplit": pre_tokenizers.WhitespaceSplit(),
    "BertPreTokenizer": pre_tokenizers.BertPreTokenizer()}


# Every first byte of a character to one letter: grapheme clusters of few bytes become one, others one a character.
FIRST_BYTES = character_map({bytes([byte]): "X" for byte in range(1, 256)})
# Where {} stands, each character stands once.
AROUND = ["a{}b", "{}a", "{}\u0301\u0301", "\r{}", "\u00a9{}\u200d\u00a9\u0301", "\u00a9\u200d{}\u0301",
          "\u0915{}\u094d\u0915\u0301", "\u0915{}\u0915\u0301", "\u0915\u094d{}\u0301", "{}\u094d\u0915\u0301",
          "\u1100{}\u0301", "\u1160{}\u0301", "\u11a8{}\u0301", "\uac00{}\u0301", "\uac01{}\u0301", "{}\u1160\u0301",
          "{}\u11a8\u0301", "\u0600{}\u0301"]


# Goes through all characters from one block to another.
STRIDE = 7919


# Where characters combine: (first, count).
COMBINING = [(0x41, 26), (0xA0, 0xE0), (0x300, 0x4F), (0xF40, 0x7A), (0x1100, 0x100), (0x1E00, 0x100), (0x3300, 0x58),
             (0xAC00, 0x40), (0xFB00, 0x50), (0xFF00, 0xF0)]


def combined(count):
    """Texts of six characters each out of these ranges, by a generator that the test has, too."""
    state = 1
    for _ in range(count):
        text = ""
        for _ in range(6):
            draws = []
            for _ in range(2):
                state = (state * 1103515245 + 12345) % 2**31
                draws.append(state >> 8)
            first, size = COMBINING[draws[0] % len(COMBINING)]
            text += chr(first + draws[1] % size)
        yield text


def strided(stride):
    """All characters, every `stride`th first: as far as the test goes, too."""
    return "".join(SCALARS[i * stride % len(SCALARS)] for i in range(len(SCALARS)))


def digest(lines):
    return hashlib.sha256("".join(line + "\n" for line in lines).encode()).hexdigest()


def every_character():
    """What the package makes of every character: the texts that are left, and digests of lists of them. A splitter
    sees the character between two letters; its pieces are joined by a line feed."""
    everything = "".join(SCALARS)
    return {
        "without_matches": {c: digest([normalizers.Replace(Regex(c), "").normalize_str(everything)]) for c in CLASSES},
        "normalized": {name: digest(n.normalize_str("a" + c + "b") for c in SCALARS) for name, n in NORMALIZERS.items()},
        "split": {name: digest("\n".join(piece for piece, _ in s.pre_tokenize_str("a" + c + "b")) for c in SCALARS)
                  for name, s in SPLITTERS.items()},
        "scripts": {str(stride): digest(
            piece for piece, _ in pre_tokenizers.UnicodeScripts().pre_tokenize_str(strided(stride)))
            for stride in (1, STRIDE)},
        "combining": COMBINING,
        "combined": {name: digest(map(NORMALIZERS[name].normalize_str, combined(20000)))
                     for name in ("NFC", "NFD", "NFKC", "NFKD")},
        "map_of_first_bytes": base64.b64encode(FIRST_BYTES).decode(),
        "clusters": {around: digest(normalizers.Precompiled(FIRST_BYTES).normalize_str(around.replace("{}", c))
                                    for c in SCALARS) for around in AROUND}}


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    documents = [s.encode() for s in texts.SENTENCES] + [texts.fuzzed(1_000_000 + i) for i in range(FUZZED)]
    for make in ALL:
        state = state_of(make)
        tokenizer = Tokenizer.from_str(state)
        cases = []
        for document in documents:
            tokens, around, text = theirs(tokenizer, document)
            cases.append({"bytes": document.hex(), "tokens": tokens, "around": around, "text": text.decode()})
        golden = {"made_by": f"tokenizers {VERSION}", "tokenizer": json.loads(state), "cases": cases}
        text = json.dumps(golden, ensure_ascii=False, separators=(",", ":"))
        (folder / f"{make.__name__}.json").write_text(text + "\n")
    characters = {"made_by": f"tokenizers {VERSION}", **every_character()}
    (folder / "characters" / "characters.json").write_text(json.dumps(characters, indent=1) + "\n")


if __name__ == "__main__":
    main()
