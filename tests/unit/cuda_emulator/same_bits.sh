#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a test program with --seed 1 to N and compares what it prints of its downloads: same_bits.sh N PROGRAM ARGUMENTS...
set -euo pipefail

if (($# < 2)); then
  echo "usage: same_bits.sh N PROGRAM ARGUMENTS..." >&2
  exit 2
fi
seeds=$1
shift

first=""
for ((seed = 1; seed <= seeds; ++seed)); do
  output=$("$@" --seed "$seed") || {
    printf '%s\nfailed with --seed %s\n' "$output" "$seed" >&2
    exit 1
  }
  bits=$(sed -n 's/^bits of all downloads on .*: //p' <<<"$output")
  if [[ -z $bits ]]; then
    echo "the program prints no line \"bits of all downloads on DEVICE: DIGEST\"" >&2
    exit 1
  fi
  first=${first:-$bits}
  if [[ $bits != "$first" ]]; then
    echo "--seed $seed gives the bits $bits, --seed 1 gave $first" >&2
    exit 1
  fi
done
echo "the bits are $first with $seeds seeds"
