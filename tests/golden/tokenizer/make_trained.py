#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: make_trained.py

Writes trained.json: the vocabularies and merges that the `tokenizers` package's own trainer of byte-level BPE makes of
a text, for vocabularies of several sizes, the last of which is larger than the text has pairs for.
"""
import json
import pathlib

import tokenizers
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

import texts

HERE = pathlib.Path(__file__).resolve().parent
SPECIAL = ["<|endoftext|>", "[PAD]"]


def train(parts, vocab_size, min_frequency):
    """The trainer's tokenizer, which sees the texts one by one."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, min_frequency=min_frequency, special_tokens=SPECIAL,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(iter(parts), trainer)
    return tokenizer


def main():
    text = "\n".join(texts.training()[:60])
    cases = []
    for vocab_size, min_frequency in ((258, 2), (300, 2), (600, 2), (600, 5), (100_000, 2)):
        model = json.loads(train([text], vocab_size, min_frequency).to_str())["model"]
        ordered = sorted(model["vocab"], key=model["vocab"].get)
        merges = [" ".join(pair) if isinstance(pair, list) else pair for pair in model["merges"]]
        cases.append({"vocab_size": vocab_size, "min_frequency": min_frequency, "tokens": ordered, "merges": merges})
    golden = {"version": tokenizers.__version__, "special": SPECIAL, "text": text, "cases": cases}
    (HERE / "trained.json").write_text(json.dumps(golden, ensure_ascii=False, indent=0) + "\n")


if __name__ == "__main__":
    main()
