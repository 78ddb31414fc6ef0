#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The form check finds each kind of fault, by file and line.
set -euo pipefail
# shellcheck source=tests/house/assert.sh
. "$(dirname "$0")/assert.sh"
check=("$repository/scripts/check_files.sh" --root "$work")
licence='// SPDX-License-Identifier: Apache-2.0'

write kernels/good.h "$licence" '#pragma once' 'int f();'
write scripts/good.sh '#!/usr/bin/env bash' '# SPDX-License-Identifier: Apache-2.0'
write tests/golden/data.yaml 'anything'
run "${check[@]}"
expect_status 0 "good files"

expect_refused() {
  run "${check[@]}"
  expect_status 1 "$1"
  expect_line "$2" "$1"
  rm "$work/${2%%:*}"
}

write daemon/bare.cpp 'int main() {}'
expect_refused "no licence" "daemon/bare.cpp:1: no line"
write daemon/bare.h "$licence" 'int f();'
expect_refused "no guard" "daemon/bare.h:1: no #pragma once"
write daemon/tab.cpp "$licence" $'\tint x;'
expect_refused "tab" "daemon/tab.cpp:2: tab"
write daemon/blank.cpp "$licence" 'int x; '
expect_refused "blank" "daemon/blank.cpp:2: blank"
write daemon/mark.cpp "$licence" '' "// TO""DO: think"
expect_refused "mark" "daemon/mark.cpp:3: mark of unfinished work"
mapfile -t many < <(seq 1 500 | sed 's|^|// line |')
write daemon/long.cpp "$licence" "${many[@]}"
run "${check[@]}"
expect_status 0 "long"
expect_line "note: daemon/long.cpp has 501 lines, more than 500" "long"

run "${check[@]}" --sizes
expect_status 0 "sizes"
expect_line "kernels/good.h" "sizes"
finish
