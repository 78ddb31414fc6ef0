# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Assertions of the house tests; to be sourced. Sets `repository` and `work`, a folder that goes with the test.
# shellcheck disable=SC2034
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/meshloom house.XXXXXX")
trap 'rm -rf "$work"' EXIT
failures=0

# run COMMAND...: fills `output` (both streams) and `status`.
run() {
  status=0
  output=$("$@" 2>&1) || status=$?
}

fail() {
  printf 'FAIL: %s\n%s\n' "$1" "$output"
  failures=$((failures + 1))
}

expect_status() { [ "$status" = "$1" ] || fail "exit code $status, expected $1: $2"; }

expect_line() { grep -qF -- "$1" <<<"$output" || fail "no line with '$1': $2"; }

# write FILE LINE...: a file below `work`.
write() {
  local path=$work/$1
  shift
  mkdir -p "$(dirname "$path")"
  printf '%s\n' "$@" >"$path"
}

finish() {
  [ "$failures" = 0 ] || exit 1
  echo "all passed"
}
