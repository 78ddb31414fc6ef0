#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: compare_trained.py MESHLOOM [--text FILE] [--vocab N] [--most-seconds S]

Trains a byte-level BPE with "MESHLOOM data train-tokenizer" and with the `tokenizers` package's own trainer, on a file
or on the sources of this repository, and compares: ids of the program's tokenizer read by the package, bytes of it for
one and for two threads, and how many tokens each makes of the text, which must agree within 1 %. Exits 77 if the
package is not there.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

try:
    from tokenizers import Tokenizer
except ImportError as error:
    print(f"SKIPPED: {error}")
    sys.exit(77)

import texts
from make_trained import SPECIAL, train


def ours(program, text, vocab, out, threads):
    special = [word for token in SPECIAL for word in ("--special", token)]
    begin = time.monotonic()
    told = subprocess.run([program, "--json", "data", "train-tokenizer", "--vocab", str(vocab), "--out", str(out),
                           "--threads", str(threads), *special, str(text)], stdout=subprocess.PIPE, check=True).stdout
    return json.loads(told), time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--text")
    parser.add_argument("--vocab", type=int, default=2048)
    parser.add_argument("--most-seconds", type=float, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        path = pathlib.Path(options.text) if options.text else folder / "text.txt"
        if not options.text:
            path.write_text("\n".join(texts.code()[:200]), newline="")
        text = path.read_text(errors="replace")
        one, _ = ours(options.program, path, options.vocab, folder / "one", 1)
        told, seconds = ours(options.program, path, options.vocab, folder / "two", 2)
        same = all((folder / "one" / file).read_bytes() == (folder / "two" / file).read_bytes()
                   for file in ("tokenizer.json", "tokenizer_config.json"))
        tokens = len(Tokenizer.from_file(str(folder / "two" / "tokenizer.json")).encode(text).ids)
        package = len(train([text], options.vocab, 2).encode(text).ids)
    print(f"{path.name}: {len(text.encode())} bytes, {tokens} tokens, the package's trainer {package} "
          f"({tokens / package - 1:+.3%}); {seconds:.1f} s with two threads")
    wrong = []
    if not same or one["tokens"] != told["tokens"]:
        wrong.append("one and two threads differ")
    # The trainer takes a word of more than 256 bytes for several.
    if abs(told["tokens"] - tokens) > 1 + tokens / 10_000:
        wrong.append(f"the program says {told['tokens']} tokens")
    if abs(tokens / package - 1) > 0.01:
        wrong.append("the package's trainer does better, or worse")
    if options.most_seconds and seconds > options.most_seconds:
        wrong.append(f"it took more than {options.most_seconds} s")
    if wrong:
        sys.exit("; ".join(wrong))


if __name__ == "__main__":
    main()
