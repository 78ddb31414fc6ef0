#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every broken case must FAIL with a text that says what is wrong, on all ranks, and stop nothing:
# check_malformed.sh FOLDER COMMAND... (the runner with its launcher; FOLDER is added as PATH)
set -uo pipefail

folder=$1
shift
words=$(dirname "$0")/malformed_words.txt
output=$(timeout --kill-after=5 60 "$@" "$folder")
status=$?
wrong=0

complain() {
  echo "check_malformed: $1" >&2
  wrong=1
}

[[ $status -eq 1 ]] || complain "exit status $status, expected 1"
last=$(tail -n 1 <<<"$output")
[[ $last == "1 passed, 27 failed, 0 skipped" ]] || complain "last line '$last'"
grep -q '^PASS good$' <<<"$output" || complain "'good' did not pass"
while IFS=$'\t' read -r name expected; do
  line=$(grep "^FAIL $name: " <<<"$output") || complain "no FAIL line for $name"
  message=${line#"FAIL $name: "}
  for word in $expected; do
    grep -qiF -- "$word" <<<"$message" || complain "$name: '$word' is not in '$message'"
  done
done <"$words"
exit $wrong
