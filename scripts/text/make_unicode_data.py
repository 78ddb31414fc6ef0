#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: make_unicode_data.py FOLDER

Writes unicode_classes.cpp, unicode_lowercase.cpp, unicode_compositions.cpp, unicode_compatibility.cpp,
unicode_graphemes.cpp and unicode_scripts.cpp of daemon/text into FOLDER: what the `tokenizers` package takes every
character for, found by asking the package about each of them. The package mixes several versions of Unicode (its
regular expressions, Rust's own tables, those for BERT, its normal forms, its grapheme clusters, its scripts), so no
table of the Unicode Consortium would do.
Python's own table only proposes which pairs of characters may compose and which combining class a character may have;
the package is asked whether it does so.
"""
import argparse
import pathlib
import sys
import unicodedata

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tests/golden/tokenizer"))
from character_map import character_map

CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cn Co Cs".split()
SCALARS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
TEXT = "".join(map(chr, SCALARS))
HEAD = """// SPDX-License-Identifier: Apache-2.0
// Written by scripts/text/make_unicode_data.py from tokenizers {version}; do not edit.
// clang-format off
#include "daemon/text/unicode_data.h"

namespace meshloom::text::unicode_data {{

"""
TAIL = "\n}  // namespace meshloom::text::unicode_data\n"


def matched(pattern):
    """The characters that a regular expression of the package takes."""
    rest = normalizers.Replace(Regex(pattern), "").normalize_str(TEXT)
    return set(SCALARS) - set(map(ord, rest))


def splits(pre_tokenizer):
    """The characters that stand between two letters as more than a letter would."""
    return {c for c in SCALARS if len(pre_tokenizer.pre_tokenize_str("a" + chr(c) + "b")) > 1}


def removed(normalizer):
    return {c for c in SCALARS if normalizer.normalize_str(chr(c)) == ""}


def bert(**parts):
    options = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    return normalizers.BertNormalizer(**{**options, **parts})


def class_bits():
    """Category and flags of every code point; the order of the flags is that of unicode_data.h."""
    bits = [CATEGORIES.index("Cs")] * 0x110000
    for number, name in enumerate(CATEGORIES[:-1]):
        for c in matched(r"\p{%s}" % name):
            bits[c] = number
    words = pre_tokenizers.Whitespace()
    flags = [
        matched(r"\s"), matched(r"\w"), {c for c in SCALARS if len(words.pre_tokenize_str("!" + chr(c) + "!")) == 3},
        splits(pre_tokenizers.Digits()), splits(pre_tokenizers.Punctuation()),
        removed(bert(clean_text=True)), removed(bert(strip_accents=True)), removed(normalizers.StripAccents())]
    spaces = splits(pre_tokenizers.WhitespaceSplit())
    assert spaces == flags[0], "the package's two notions of white space differ"
    for place, members in enumerate(flags):
        for c in members:
            bits[c] |= 1 << (5 + place)
    return bits


def rows(numbers, width=118):
    lines, line = [], ""
    for number in numbers:
        word = f"{number:#x},"
        if len(line) + len(word) > width:
            lines.append(line)
            line = ""
        line += word
    return "\n".join(lines + [line])


def array(kind, name, numbers):
    return f"const {kind} {name}[] = {{\n{rows(numbers)}\n}};\nconst std::size_t {name}_size = {len(numbers)};\n"


def runs(kinds, order):
    """Where a run of characters of one kind begins: first << 8 | place of the kind in `order`."""
    assert len(order) <= 256
    return [c << 8 | order.index(kinds[c]) for c in range(0x110000) if c == 0 or kinds[c] != kinds[c - 1]]


def classes():
    bits = class_bits()
    kinds = sorted(set(bits))
    return array("std::uint16_t", "kKinds", kinds) + array("std::uint32_t", "kRuns", runs(bits, kinds))


def lowercase():
    """Ranges (first, last, step) and the distance to the lower-case character."""
    lower = {c: normalizers.Lowercase().normalize_str(chr(c)) for c in SCALARS}
    several = {c: text for c, text in lower.items() if len(text) != 1}
    assert several == {0x130: "i\u0307"}, "unicode.cpp knows one character with two lower-case ones"
    pairs = [(c, ord(text)) for c, text in lower.items() if len(text) == 1 and ord(text) != c]
    ranges = []
    for c, small in pairs:
        if ranges:
            first, last, step, distance = ranges[-1]
            if distance == small - c and (first == last and c - last <= 2 or c - last == step):
                ranges[-1] = (first, c, c - last, distance)
                continue
        ranges.append((c, c, 1, small - c))
    return array("std::int32_t", "kLowercase", [n for r in ranges for n in r])


def compositions():
    """(character, first, second) of canonical decompositions, second 0 where it becomes one other character; which
    of them do not compose again; and (character, combining class)."""
    nfd, nfc = normalizers.NFD(), normalizers.NFC()
    steps, only_apart = [], []
    for c in SCALARS:
        if 0xAC00 <= c < 0xD7A4 or nfd.normalize_str(chr(c)) == chr(c):
            continue
        parts = [int(word, 16) for word in unicodedata.decomposition(chr(c)).split()]
        assert len(parts) in (1, 2), hex(c)
        steps += [c, parts[0], parts[1] if len(parts) == 2 else 0]
        if len(parts) == 2 and nfc.normalize_str("".join(map(chr, parts))) != chr(c):
            only_apart.append(c)
    combining = []  # Runs of characters of one class: the first one and its class, and how many.
    for c in SCALARS:
        # U+0345 has the largest class, 240: characters of any other class but 0 go before it.
        if nfd.normalize_str(chr(c)) != chr(c):
            continue
        if c == 0x345 or nfd.normalize_str("a\u0345" + chr(c)) != "a\u0345" + chr(c):
            number = unicodedata.combining(chr(c))
            assert number, hex(c)
            if combining and combining[-2] + (combining[-1] << 8) == c << 8 | number:
                combining[-1] += 1
            else:
                combining += [c << 8 | number, 1]
    return (array("std::uint32_t", "kDecompositions", steps) + array("std::uint32_t", "kOnlyApart", only_apart) +
            array("std::uint32_t", "kCombining", combining))


def compatibility():
    """(character << 8 | count, characters): the whole decompositions of NFKD where they are not those of NFD."""
    nfd, nfkd = normalizers.NFD(), normalizers.NFKD()
    texts = []
    for c in SCALARS:
        parts = nfkd.normalize_str(chr(c))
        if parts != nfd.normalize_str(chr(c)):
            texts += [c << 8 | len(parts), *map(ord, parts)]
    return array("std::uint32_t", "kCompatible", texts)


GRAPHEMES = "kOther kControl kExtend kExtendAlone kLinker kSpacingMark kPrepend kPictographic kConsonant kL kV kT".split()


def graphemes():
    """Runs (first << 8 | index into GRAPHEMES) of what characters are where texts are cut into grapheme clusters.

    The package shows its clusters where Precompiled replaces those of at most five bytes by the normal form of their
    first bytes: with a map of every first byte to one character, a cluster becomes one character if it is short, else
    as many as it has."""
    clusters = normalizers.Precompiled(character_map({bytes([byte]): "X" for byte in range(1, 256)}))

    def count(*characters):
        return len(clusters.normalize_str("".join(map(chr, characters))))

    accent, joiner, copyright, ka, virama = 0x301, 0x200D, 0xA9, 0x915, 0x94D
    kinds = ["kOther"] * 0x110000
    for c in SCALARS:
        if count(ord("a"), c) == 1:  # Joined to what is before it.
            if count(ka, c, ka, accent) == 4 and c != joiner:
                kinds[c] = "kLinker"
            elif count(copyright, c, joiner, copyright, accent) != 5 and c != joiner:
                kinds[c] = "kSpacingMark"
            else:
                kinds[c] = "kExtend" if count(ka, c, virama, ka, accent) == 5 else "kExtendAlone"
        elif count(c, accent, accent) == 2:
            kinds[c] = "kControl"
        elif count(c, ord("a")) == 1:
            kinds[c] = "kPrepend"
        elif count(copyright, joiner, c) == 3:
            kinds[c] = "kPictographic"
        elif count(c, virama, ka, accent) == 4:
            kinds[c] = "kConsonant"
        elif 0xAC00 <= c < 0xD7A4:
            continue  # Syllables are told apart by their numbers.
        elif c >= 0x10000:  # With four bytes it shows by what follows alone.
            kinds[c] = "kV" if count(c, 0x1160, accent) == 3 else "kOther"
        elif count(0x11A8, c, accent) == 3:
            kinds[c] = "kT"
        elif count(0x1100, c, accent) == 3:
            kinds[c] = "kV" if count(0x1160, c, accent) == 3 else "kL"
    return array("std::uint32_t", "kGraphemes", runs(kinds, GRAPHEMES))


def scripts():
    """Runs (first << 8 | number) of the characters of one script, by the numbers of their first characters' order; 0
    for those that belong to any script. The package shows scripts where it splits, and those that belong to any where
    it leaves them out."""
    splitter = pre_tokenizers.UnicodeScripts()

    def pieces(text):
        return [piece for piece, _ in splitter.pre_tokenize_str(text)]

    numbers = [0] * 0x110000
    members = [c for c in SCALARS if pieces(chr(c))]
    firsts = []  # Of each script its first character.
    for piece in pieces("".join(map(chr, members))):
        number = next((n for n, first in enumerate(firsts) if len(pieces(first + piece[0])) == 1), len(firsts))
        if number == len(firsts):
            firsts.append(piece[0])
        for c in map(ord, piece):
            numbers[c] = number + 1
    return array("std::uint32_t", "kScripts", runs(numbers, range(256)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    folder = parser.parse_args().folder
    head = HEAD.format(version=tokenizers.__version__)
    version = f'const char* const kVersion = "tokenizers-{tokenizers.__version__}";\n'
    (folder / "unicode_classes.cpp").write_text(head + version + classes() + TAIL)
    (folder / "unicode_lowercase.cpp").write_text(head + lowercase() + TAIL)
    (folder / "unicode_compositions.cpp").write_text(head + compositions() + TAIL)
    (folder / "unicode_compatibility.cpp").write_text(head + compatibility() + TAIL)
    (folder / "unicode_graphemes.cpp").write_text(head + graphemes() + TAIL)
    (folder / "unicode_scripts.cpp").write_text(head + scripts() + TAIL)


if __name__ == "__main__":
    main()
