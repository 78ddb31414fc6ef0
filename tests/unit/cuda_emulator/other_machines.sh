#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: other_machines.sh PROGRAM
#
# Runs some kernel tests on emulated machines of other kinds: what the backend says where no GPU, an old GPU or an old
# driver is, and that the bits do not depend on the architecture.
set -euo pipefail
# shellcheck source=tests/house/assert.sh
. "$(dirname "$0")/../../house/assert.sh"
program=$1

# run_on VARIABLE: on a machine that the variable tells of.
run_on() { run env "$1" "$program" --device cuda-emulated --gtest_filter='Fill.*:Unary.*'; }

# expect_refusal VARIABLE TEXT
expect_refusal() {
  run_on "$1"
  [ "$status" != 0 ] || fail "exit code 0 with $1"
  expect_line "$2" "$1"
}

expect_refusal MESHLOOM_EMULATED_DEVICES=0 "the NVIDIA driver finds no GPU"
expect_refusal MESHLOOM_EMULATED_SM=75 "has compute capability 7.5, but 8.0 or higher is needed"
expect_refusal MESHLOOM_EMULATED_DRIVER=11000 "the NVIDIA driver is for CUDA 11.0, but CUDA"
expect_refusal MESHLOOM_EMULATED_SM=83 'MESHLOOM_EMULATED_SM is "83", expected 75, 80, 90 or 100'

first=""
for sm in 80 90 100; do
  run_on "MESHLOOM_EMULATED_SM=$sm"
  expect_status 0 "sm_$sm"
  bits=$(sed -n 's/^bits of all downloads on .*: //p' <<<"$output")
  first=${first:-$bits}
  [[ -n $bits && $bits = "$first" ]] || fail "sm_$sm gives the bits \"$bits\", sm_80 \"$first\""
done
finish
