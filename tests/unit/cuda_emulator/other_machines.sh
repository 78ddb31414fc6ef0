#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: other_machines.sh PROGRAM
#
# Runs some kernel tests on emulated machines of other kinds: what the backend says where no GPU, an old GPU or an old
# driver is, and that the bits do not depend on the architecture.
set -euo pipefail
program=$1
failures=0

fail() {
  printf 'FAIL: %s\n' "$*" >&2
  failures=$((failures + 1))
}

# run_on VARIABLES...: fills `output` and `status`.
run_on() {
  status=0
  output=$(env "$@" "$program" --device cuda-emulated --gtest_filter='Fill.*:Unary.*' 2>&1) || status=$?
}

# expect_refusal TEXT VARIABLES...
expect_refusal() {
  local text=$1
  shift
  run_on "$@"
  [ $status != 0 ] || fail "$*: exit code 0"
  grep -qF -- "$text" <<<"$output" || fail "$*: expected \"$text\", got: $(tail -n 3 <<<"$output")"
}

expect_refusal "the NVIDIA driver finds no GPU" MESHLOOM_EMULATED_DEVICES=0
expect_refusal "has compute capability 7.5, but 8.0 or higher is needed" MESHLOOM_EMULATED_SM=75
expect_refusal "the NVIDIA driver is for CUDA 11.0, but CUDA" MESHLOOM_EMULATED_DRIVER=11000
expect_refusal 'MESHLOOM_EMULATED_SM is "83", expected 75, 80, 90 or 100' MESHLOOM_EMULATED_SM=83

first=""
for sm in 80 90 100; do
  run_on "MESHLOOM_EMULATED_SM=$sm"
  [ $status = 0 ] || fail "sm_$sm: exit code $status: $(tail -n 3 <<<"$output")"
  bits=$(sed -n 's/^bits of all downloads on .*: //p' <<<"$output")
  first=${first:-$bits}
  [[ -n $bits && $bits = "$first" ]] || fail "sm_$sm gives the bits \"$bits\", sm_80 \"$first\""
done
[ $failures = 0 ] || exit 1
echo "all passed"
