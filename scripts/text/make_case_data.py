#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: make_case_data.py FILE

Writes daemon/text/template/case_data.cpp: what this Python takes the case of every character for, and which it takes
for digits, found by asking str about each of them. Templates of chats call str's methods, so Python is what counts.
"""
import sys
import unicodedata

SCALARS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
HEAD = """// SPDX-License-Identifier: Apache-2.0
// Written by scripts/text/make_case_data.py from Unicode {version} of Python; do not edit.
// clang-format off
#include "daemon/text/template/case_data.h"

namespace meshloom::text::chat::case_data {{
namespace {{

"""


def runs(characters, same=lambda a, b: True):
    """(first, last, step) of characters in order; steps are 1 or 2."""
    found = []
    for c in characters:
        if found:
            first, last, step = found[-1]
            distance = c - last
            if same(first, c) and distance in (1, 2) and (first == last or distance == step):
                found[-1] = (first, c, distance)
                continue
        found.append((c, c, 1))
    return found


def ignorable(c):
    """Whether the rule for the sigma at the end of a word looks past it."""
    return ("a" + chr(c) + "\u03a3").lower()[-1] == "\u03c2" and (chr(c) + "\u03a3").lower()[-1] == "\u03c3"


def table(name, kind, rows):
    lines, line = [], ""
    for row in rows:
        text = "{" + ",".join(hex(value) for value in row) + "},"
        if len(line) + len(text) > 118:
            lines.append(line)
            line = ""
        line += text
    body = "\n".join(lines + [line])
    return f"constexpr {kind} {name}[] = {{\n{body}\n}};\n"


def main():
    def where(condition):
        return runs([c for c in SCALARS if condition(chr(c))])

    upper = {c: chr(c).upper() for c in SCALARS if chr(c).upper() != chr(c)}
    title = {c: chr(c).title() for c in SCALARS if chr(c).title() != chr(c).upper()}
    single = [c for c in upper if len(upper[c]) == 1]

    def distance(c):
        return ord(upper[c]) - c

    shifts = [(*run, distance(run[0])) for run in runs(single, lambda a, b: distance(a) == distance(b))]

    def expansions(of):
        return [(c, *(list(map(ord, of[c])) + [0, 0])[:3]) for c in of]

    tables = [
        ("kLower", "Range", where(str.islower)),
        ("kUpper", "Range", where(str.isupper)),
        ("kTitle", "Range", where(lambda c: unicodedata.category(c) == "Lt")),
        ("kCaseIgnorable", "Range", runs([c for c in SCALARS if ignorable(c)])),
        ("kDigits", "Range", where(lambda c: c.isdigit() and not c.isdecimal())),
        ("kNumerics", "Range", where(lambda c: c.isnumeric() and not c.isdigit())),
        ("kToUpper", "Shift", shifts),
        ("kToUpperMany", "Expansion", expansions({c: upper[c] for c in upper if len(upper[c]) > 1})),
        ("kToTitle", "Expansion", expansions(title)),
    ]
    with open(sys.argv[1], "w") as out:
        out.write(HEAD.format(version=unicodedata.unidata_version))
        for name, kind, rows in tables:
            out.write(table(name + "Rows", kind, rows))
        out.write("\n}  // namespace\n\n")
        for name, kind, _ in tables:
            out.write(f"const std::span<const {kind}> {name}(std::begin({name}Rows), std::end({name}Rows));\n")
        out.write("\n}  // namespace meshloom::text::chat::case_data\n")


main()
