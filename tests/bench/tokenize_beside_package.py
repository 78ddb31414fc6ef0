#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: tokenize_beside_package.py MESHLOOM_BENCH [--tokenizer FILE] [--text FILE] [--rounds N]

Runs `meshloom-bench tokenize` and one thread of the `tokenizers` package in turn on one text, each in documents of 1
MB, and prints the best rounds and their ratio as JSON,
by CPU time: a shared machine's clock says little. Without --text the sources of this repository are the text;
without --tokenizer the package trains ones of 16384 tokens on it, with the split patterns of GPT-2, Llama 3 and Qwen 2.
Exits 77 if the package is not there.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
try:
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
except ImportError as error:
    print(f"SKIPPED: {error}")
    sys.exit(77)

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests/golden/tokenizer"))
from texts import code  # noqa: E402
from tokenizers_of import LLAMA3, QWEN2  # noqa: E402

DOCUMENT = 1_000_000


def trained(text, expression, normalizer):
    tokenizer = Tokenizer(models.BPE())
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    split = [pre_tokenizers.Split(Regex(expression), "isolated")] if expression else []
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [*split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not split)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator([text], trainers.BpeTrainer(
        vocab_size=16384, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False))
    return tokenizer


def package_seconds(tokenizer, documents):
    start = time.thread_time()
    tokens = sum(len(tokenizer.encode(d, add_special_tokens=False).ids) for d in documents)
    return time.thread_time() - start, tokens


def measure(name, tokenizer, bench, path, rounds):
    data = pathlib.Path(path).read_bytes()
    documents = [data[i:i + DOCUMENT].decode("utf-8", "replace") for i in range(0, len(data), DOCUMENT)]
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        tokenizer.save(file.name)
        ours, theirs = [], []
        for _ in range(rounds):
            out = subprocess.run([bench, "tokenize", "--tokenizer", file.name, "--text", path, "--rounds", "1",
                                  "--document-bytes", str(DOCUMENT)], stdout=subprocess.PIPE, check=True).stdout
            ours.append(json.loads(out))
            theirs.append(package_seconds(tokenizer, documents))
    ours, theirs = min(ours, key=lambda r: r["cpu_seconds_best"]), min(theirs)
    mine, other = len(data) / ours["cpu_seconds_best"] / 1e6, len(data) / theirs[0] / 1e6
    print(json.dumps({"tokenizer": name, "bytes": len(data), "tokens": ours["tokens"], "package_tokens": theirs[1],
                      "mb_per_second": round(mine, 1), "package_mb_per_second": round(other, 2),
                      "ratio": round(mine / other, 1)}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench")
    parser.add_argument("--tokenizer")
    parser.add_argument("--text")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.NamedTemporaryFile(suffix=".txt") as file:
        path = options.text or file.name
        if not options.text:
            file.write("\n".join(code()).encode())
            file.flush()
        if options.tokenizer:
            measure(options.tokenizer, Tokenizer.from_file(options.tokenizer), options.bench, path, options.rounds)
            return
        text = pathlib.Path(path).read_text(errors="replace")
        for name, expression, normalizer in (("gpt2", None, None), ("llama3", LLAMA3, None),
                                             ("qwen2", QWEN2, normalizers.NFC())):
            measure(name, trained(text, expression, normalizer), options.bench, path, options.rounds)


if __name__ == "__main__":
    main()
