#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every script can be run, explains itself with --help and refuses an argument it does not know with exit code 2.
set -euo pipefail
# shellcheck source=tests/house/assert.sh
. "$(dirname "$0")/assert.sh"
cd "$work"

for script in "$repository"/scripts/*.sh "$repository"/scripts/python/*.sh; do
  name=${script#"$repository/scripts/"}
  output=$name
  [ "$name" = common.sh ] && continue
  [ -x "$script" ] || fail "$name may not be executed"
  run bash -n "$script"
  expect_status 0 "$name parses"
  run "$script" --help
  expect_status 0 "$name --help"
  expect_line "Usage: scripts/$name" "$name --help"
  run "$script" --no-such-argument
  expect_status 2 "$name --no-such-argument"
done
[ -x "$repository/.ci/run" ] || fail ".ci/run may not be executed"
finish
