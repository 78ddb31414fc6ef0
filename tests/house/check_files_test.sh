#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The form check finds each kind of fault, by file and line.
# shellcheck disable=SC2016
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

# What a README says of the files beside it.
table=('# kernels' '' '| file | holds |' '| --- | --- |')
write kernels/pair.h "$licence" '#pragma once'
write kernels/pair.cpp "$licence"
write kernels/made.cpp.in "$licence"
write kernels/inner/CMakeLists.txt '# SPDX-License-Identifier: Apache-2.0'

expect_readme_refused() {
  write kernels/README.md "${@:3}"
  expect_refused "$1" "$2"
}

write kernels/README.md "${table[@]}" '| `good.h`, `pair` | a pair is one |' '| `inner/` | a folder |' '' '`made.*` is made.'
run "${check[@]}"
expect_status 0 "all named"
write kernels/README.md '# kernels' '' '```' 'good.h, pair.cpp   two' 'made               one' '```'
run "${check[@]}"
expect_status 0 "all named in a block"
write kernels/README.md "${table[@]}" '| `good`, `pair`, `made`, `../daemon/gone.h` | another folder |' '' \
  '| program | runs |' '| --- | --- |' '| `gone` | no file |'
run "${check[@]}"
expect_status 0 "names of other things"

expect_readme_refused "file that is not named" "kernels/README.md:1: does not name made.cpp.in" \
  "${table[@]}" '| `good.h`, `pair` | and made, without a mark |'
expect_readme_refused "file named in another folder alone" "kernels/README.md:1: does not name pair.cpp" \
  "${table[@]}" '| `good.h`, `made` | `inner/pair.cpp` |'
expect_readme_refused "stem that is gone" "kernels/README.md:5: no gone in kernels" \
  "${table[@]}" '| `good`, `gone`, `pair`, `made` | |'
expect_readme_refused "half of a pair that is gone" "kernels/README.md:5: no made.h in kernels" \
  "${table[@]}" '| `good`, `pair`, `made.h` | |'
expect_readme_refused "folder that is gone" "kernels/README.md:6: no outer/ in kernels" \
  "${table[@]}" '| `good`, `pair`, `made` | |' '| `outer/` | |'
expect_readme_refused "file column that is not the first" "kernels/README.md:5: no gone in kernels" \
  '# kernels' '' '| part | file | holds |' '| --- | --- | --- |' '| `x` | `good`, `pair`, `made`, `gone` | |'

run "${check[@]}" --sizes
expect_status 0 "sizes"
expect_line "kernels/good.h" "sizes"
finish
