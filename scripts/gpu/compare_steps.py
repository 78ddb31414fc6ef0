#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the last loss and gradient norm of two runs of `meshloom-bench train`, each a file with its JSON line.

    compare_steps.py A.json B.json                   they have the same bits
    compare_steps.py --tolerance 1e-4 A.json B.json  they differ by so much of their size at most
"""
import argparse
import json
import sys

KEYS = ("last_loss", "last_grad_norm")


def read(path):
    with open(path) as file:
        line = json.load(file)
    return {key: line[key] for key in KEYS}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs=2)
    parser.add_argument("--tolerance", type=float, default=0.0)
    options = parser.parse_args()
    first, second = map(read, options.files)
    off = {key: abs(first[key] - second[key]) / max(abs(first[key]), abs(second[key]), 1e-30) for key in KEYS}
    words = ", ".join(f"{key} {first[key]!r} and {second[key]!r} ({off[key]:.1e})" for key in KEYS)
    print(words)
    # A number that is not finite is no agreement.
    sys.exit(0 if all(value <= options.tolerance for value in off.values()) else 1)


if __name__ == "__main__":
    main()
