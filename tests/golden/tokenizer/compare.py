#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: compare.py ENCODE_DOCUMENTS [--mb MB] [--fuzzed N] [--only NAME] [--tokenizer FILE]

Compares the program encode_documents with the `tokenizers` package: tokens without and with the template, and the
decoded text, of MB megabytes of mixed documents and N fuzzed ones, for small tokenizers of every kind or for a
tokenizer.json. Prints a line for each, the first documents that differ, and exits 1 if there are any. Exits 77 if the
package is not there.
"""
import argparse
import pathlib
import struct
import subprocess
import sys
import tempfile

try:
    from tokenizers import Tokenizer
except ImportError as error:
    print(f"SKIPPED: {error}")
    sys.exit(77)

import texts
from tokenizers_of import ALL, state_of


def ours(program, path, documents):
    data = b"".join(struct.pack("=I", len(d)) + d for d in documents)
    out = subprocess.run([program, path], input=data, stdout=subprocess.PIPE, check=True).stdout
    at, results = 0, []

    def block(width):
        nonlocal at
        (count,) = struct.unpack_from("=I", out, at)
        at += 4 + count * width
        return out[at - count * width:at]

    for _ in documents:
        plain, around, text = block(4), block(4), block(1)
        results.append((list(memoryview(plain).cast("i")), list(memoryview(around).cast("i")), text))
    return results


def theirs(tokenizer, document):
    text = document.decode("utf-8", "replace")
    plain = tokenizer.encode(text, add_special_tokens=False).ids
    return plain, tokenizer.encode(text).ids, tokenizer.decode(plain, skip_special_tokens=True).encode()


def compare(name, state, program, documents):
    """`state`: the text of a tokenizer.json."""
    tokenizer = Tokenizer.from_str(state)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "tokenizer.json"
        path.write_text(state)
        results = ours(program, str(path), documents)
    wrong, tokens = 0, 0
    for document, found in zip(documents, results):
        expected = theirs(tokenizer, document)
        tokens += len(expected[0])
        for what, a, b in zip(("tokens", "with the template", "decoded"), found, expected):
            if a == b:
                continue
            wrong += 1
            if wrong <= 3:
                at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
                print(f"  {what} of {document[:300]!r} at {at}: {a[max(0, at - 3):at + 5]} instead of "
                      f"{b[max(0, at - 3):at + 5]}")
                if what == "tokens":
                    print("   ", [tokenizer.id_to_token(i) for i in a[max(0, at - 3):at + 5]],
                          [tokenizer.id_to_token(i) for i in b[max(0, at - 3):at + 5]])
            break
    print(f"{name}: {len(documents)} documents, {sum(map(len, documents))} bytes, {tokens} tokens, {wrong} differ",
          flush=True)
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--mb", type=float, default=10)
    parser.add_argument("--fuzzed", type=int, default=10000)
    parser.add_argument("--only")
    parser.add_argument("--tokenizer")
    options = parser.parse_args()
    documents = texts.mixed(int(options.mb * 1e6)) + [texts.fuzzed(i) for i in range(options.fuzzed)]
    if options.tokenizer:
        cases = [(options.tokenizer, pathlib.Path(options.tokenizer).read_text())]
    else:
        cases = [(make.__name__, state_of(make)) for make in ALL if options.only in (None, make.__name__)]
    return 1 if sum(compare(name, made, options.program, documents) for name, made in cases) else 0


if __name__ == "__main__":
    sys.exit(main())
