#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: make_sentencepiece.py [FOLDER]

Writes the golden cases of tokenizer.model files: small models of both kinds that the `sentencepiece` package trains,
and what it makes of some texts. FOLDER is this script's own unless given. With --compare ENCODER nothing is written:
models of more kinds, with the package's own maps of characters, are compared live. ENCODER is
build/release/bin/encode_documents.
"""
import argparse
import importlib.metadata
import json
import pathlib
import random
import sys
import tempfile

import sentencepiece

import texts
from compare import ours

# Ligatures, digits in circles, wide and half-wide forms, blanks, a letter with its accent, one that goes away.
RULES = """FB01\t66 69
2460\t31
FF21\t41
FF76 FF9E\t30AC
FF76\t30AB
65 301\tE9
3000\t20
9\t20
A\t20
200B\t
"""
SMALL = {
    "sentencepiece_unigram": dict(model_type="unigram", vocab_size=500),
    "sentencepiece_bpe": dict(model_type="bpe", vocab_size=700, byte_fallback=True, character_coverage=0.99,
                              remove_extra_whitespaces=False),
}
MORE = {
    "unigram": dict(model_type="unigram", vocab_size=600),
    "unigram_bytes": dict(model_type="unigram", vocab_size=1200, byte_fallback=True, remove_extra_whitespaces=False,
                          normalization_rule_name="identity"),
    "bpe": dict(model_type="bpe", vocab_size=1000, character_coverage=0.99),
    "bpe_bytes": dict(model_type="bpe", vocab_size=1200, byte_fallback=True, character_coverage=0.995,
                      remove_extra_whitespaces=False, normalization_rule_name="identity"),
    "no_prefix": dict(model_type="unigram", vocab_size=600, add_dummy_prefix=False),
    "folded": dict(model_type="unigram", vocab_size=600, normalization_rule_name="nmt_nfkc_cf"),
}
BLANKS = ["", " ", "   ", " a  b ", "\u2581x \u2581", "\n\n", "a\u3000b", "\uFB01\u2460 \uFF76\uFF9E\uFF76e\u0301e", "\u200B"]


def train(folder, name, options):
    words = [word for text in texts.SENTENCES for word in text.split()]
    draw = random.Random(1)
    lines = [line for text in texts.SENTENCES for line in text.splitlines() if line.strip()] * 20
    lines += [" ".join(draw.choices(words, k=8)) for _ in range(2000)]
    corpus = folder / "corpus.txt"
    corpus.write_text("\n".join(lines))
    rules = folder / "rules.tsv"
    rules.write_text(RULES)
    if "normalization_rule_name" not in options and name in SMALL:
        options = dict(options, normalization_rule_tsv=str(rules))
    sentencepiece.SentencePieceTrainer.train(
        input=str(corpus), model_prefix=str(folder / name), minloglevel=2, hard_vocab_limit=False, num_threads=1, **options)
    return (folder / f"{name}.model").read_bytes()


def documents(fuzzed):
    of_words = random.Random(2)
    words = [word for text in texts.SENTENCES for word in text.split()]
    found = texts.SENTENCES + BLANKS + [texts.fuzzed(2_000_000 + i).decode("utf-8", "replace") for i in range(fuzzed)]
    found += [" ".join(of_words.choices(words, k=400)) for _ in range(fuzzed // 10)]
    # The package takes what is spelled as a control piece for text.
    return [text for text in found if not any(name in text for name in ("<s>", "</s>", "<unk>"))]


def cases_of(model, fuzzed):
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    for text in documents(fuzzed):
        tokens = processor.encode(text)
        yield {"bytes": text.encode().hex(), "tokens": tokens, "text": processor.decode(tokens)}


def differences(encoder, name, model, fuzzed):
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "tokenizer.model").write_bytes(model)
        cases = list(cases_of(model, fuzzed))
        results = ours(encoder, folder, [bytes.fromhex(case["bytes"]) for case in cases])
    wrong = 0
    for case, (plain, _, text) in zip(cases, results):
        if plain != case["tokens"] or text.decode() != case["text"]:
            wrong += 1
            print(f"  {bytes.fromhex(case['bytes'])[:100]!r}: {plain[:20]} instead of {case['tokens'][:20]}")
    print(f"{name}: {len(cases)} documents, {wrong} differ", flush=True)
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", default=pathlib.Path(__file__).parent, type=pathlib.Path)
    parser.add_argument("--compare", metavar="ENCODER")
    parser.add_argument("--fuzzed", type=int, default=1000)
    arguments = parser.parse_args()
    version = importlib.metadata.version("sentencepiece")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        if arguments.compare:
            return 1 if sum(differences(arguments.compare, name, train(path, name, options), arguments.fuzzed)
                            for name, options in {**SMALL, **MORE}.items()) else 0
        for name, options in SMALL.items():
            model = train(path, name, options)
            golden = {"made_by": f"sentencepiece {version}", "model": model.hex(), "cases": list(cases_of(model, 10))}
            text = json.dumps(golden, ensure_ascii=False, separators=(",", ":"))
            (arguments.folder / f"{name}.json").write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
