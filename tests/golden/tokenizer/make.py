#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: make.py [FOLDER]

Writes the golden cases of daemon/text: for a small tokenizer of every kind its tokenizer.json and what the
`tokenizers` package makes of some texts. FOLDER is this script's own unless given.
"""
import hashlib
import json
import pathlib
import sys

from tokenizers import Regex, normalizers, pre_tokenizers

import texts
from compare import theirs
from tokenizers_of import ALL, VERSION

FUZZED = 30
SCALARS = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CLASSES = [r"\p{%s}" % name for name in "L N M P S Z C Lu Ll Lt Lm Lo Mn Nd".split()] + [
    r"\s", r"\S", r"\d", r"\w", r"\W", r"\P{L}", r"[^\s\p{L}\p{N}]", r"[^\r\n\p{L}\p{N}]", "(?i:s)", "(?i:k)"]
NORMALIZERS = {
    "NFC": normalizers.NFC(), "NFD": normalizers.NFD(), "Lowercase": normalizers.Lowercase(),
    "StripAccents": normalizers.StripAccents(), "BertNormalizer": normalizers.BertNormalizer()}
SPLITTERS = {
    "Whitespace": pre_tokenizers.Whitespace(), "WhitespaceSplit": pre_tokenizers.WhitespaceSplit(),
    "BertPreTokenizer": pre_tokenizers.BertPreTokenizer()}


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
                  for name, s in SPLITTERS.items()}}


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    documents = [s.encode() for s in texts.SENTENCES] + [texts.fuzzed(1_000_000 + i) for i in range(FUZZED)]
    for make in ALL:
        tokenizer = make()
        cases = []
        for document in documents:
            tokens, around, text = theirs(tokenizer, document)
            cases.append({"bytes": document.hex(), "tokens": tokens, "around": around, "text": text.decode()})
        golden = {"made_by": f"tokenizers {VERSION}", "tokenizer": json.loads(tokenizer.to_str()), "cases": cases}
        text = json.dumps(golden, ensure_ascii=False, separators=(",", ":"))
        (folder / f"{make.__name__}.json").write_text(text + "\n")
    characters = {"made_by": f"tokenizers {VERSION}", **every_character()}
    (folder / "characters" / "characters.json").write_text(json.dumps(characters, indent=1) + "\n")


if __name__ == "__main__":
    main()
