#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/lint.sh fails if one of its parts finds something, names the part, and still runs the others. Stand-ins for
# the tools: one has a finding in every file that holds the word FAULTY. The part comments needs no tool.
set -euo pipefail
# shellcheck source=tests/house/assert.sh
. "$(dirname "$0")/assert.sh"

if ! command -v git >/dev/null; then
  echo "skipped: git is not installed, and lint.sh asks it what has changed"
  exit 77
fi

tree=$work/tree
for tool in clang-tidy shellcheck clang-format-14; do
  # shellcheck disable=SC2016
  write "bin/$tool" '#!/bin/sh' '[ "$1" != --version ] || { echo "version 14.0.6"; exit; }' \
    'found=0' 'for file; do [ ! -f "$file" ] || ! grep -n FAULTY "$file" || found=1; done' 'exit $found'
  chmod +x "$work/bin/$tool"
done
export PATH=$work/bin:$PATH
mkdir -p "$tree/.ci"
cp -r "$repository/scripts" "$tree"
for folder in kernels planner daemon tests; do write "tree/$folder/right.cpp" 'int right;'; done
old=('/// Of a file that is there.' 'int old();' '/// Begins a sentence.' 'int last();')
write tree/daemon/old.h "${old[@]}"
write tree/build/release/compile_commands.json '[]'
write tree/.ci/run '#!/bin/sh'
write tree/.gitignore build
git -C "$tree" init -q -b main
git -C "$tree" add -A
git -C "$tree" -c user.name=test -c user.email=test@localhost commit -q -m "tree: Begin"

lint() { run "$tree/scripts/lint.sh" --base HEAD "$@"; }

lint tidy shell
expect_status 0 "nothing to find"
expect_line "tidy: nothing changed" "nothing to find"
expect_line "lint: PASSED" "nothing to find"

lint comments
expect_status 0 "a comment of the base"
expect_line "comments: no findings" "a comment of the base"

write tree/daemon/old.h "${old[@]:0:3}" '/// Of a line that continues it.' 'int last();' 'int of();  ///< of a member' \
  '/// Tells where a file lies.' '/// As a link does.' '/// Where it lies.' 'int more();' '/// Offers a file.' \
  'int offer();' '/// Ashes of one.' 'int ashes();' '/// Whoever calls it waits.' 'int wait();' \
  '/// Wherever it lies, it is found.' 'int find();' 'int how();  ///< How it is done'
lint comments
expect_status 0 "comments that begin with sentences"

write tree/daemon/old.h "${old[@]}" '' '  // That of the file.' '  //! Those files.'
lint comments shell
expect_status 1 "a new comment in an old file"
expect_line "daemon/old.h:6:   // That of the file." "a new comment in an old file"
[ "$(grep -c '^daemon/' <<<"$output")" = 1 ] || fail "one finding: a new comment in an old file"
expect_line "shell: no findings" "the part behind one that failed"
expect_line "lint: FAILED: comments" "a new comment in an old file"
write tree/daemon/old.h "${old[@]}"

for clause in 'What it holds.' 'Whether it is there.' 'How it goes.' 'Where it lies.' 'Who calls it.' 'Why it ends.' \
  'As a file.' 'Those of a file.' 'What: a file.' 'How'; do
  write tree/daemon/new.h "/// $clause" 'int a();'
  lint comments
  expect_status 1 "a comment that begins with a clause: $clause"
  expect_line "daemon/new.h:1: /// $clause" "a comment that begins with a clause: $clause"
done

write tree/daemon/new.h 'int a();' '// Ends a file.'
write 'tree/tests/a new.cpp' '// As a file is.' 'int a;'
lint comments
expect_status 1 "a comment in a new file"
expect_line "tests/a new.cpp:1: // As a file is." "a comment in a new file"
rm "$tree/daemon/new.h" "$tree/tests/a new.cpp"

run "$tree/scripts/lint.sh" --base nowhere comments
expect_status 1 "a base that is not there"

git -C "$tree" mv daemon/old.h planner/moved.h
lint comments
expect_status 0 "a comment of a file that moved"
git -C "$tree" mv planner/moved.h daemon/old.h

write tree/daemon/new.cpp 'int fine;'
lint tidy
expect_status 0 "a new source without a finding"
expect_line "tidy: 1 sources, no findings" "a new source without a finding"

write tree/daemon/a.cpp 'int FAULTY;'
lint tidy shell
expect_status 1 "a finding of tidy"
expect_line "1:int FAULTY;" "a finding of tidy"
expect_line "shell: no findings" "the part behind one that failed"
expect_line "lint: FAILED: tidy" "a finding of tidy"
rm "$tree/daemon/a.cpp"

write tree/tests/a.sh 'FAULTY'
lint shell tidy
expect_status 1 "a finding of shellcheck"
expect_line "lint: FAILED: shell" "a finding of shellcheck"
expect_line "tidy: 1 sources, no findings" "the part behind one that failed"
rm "$tree/tests/a.sh"

write tree/daemon/a.cpp 'int FAULTY;'
lint --fix format
expect_status 1 "a tool that fails"
expect_line "lint: FAILED: format" "a tool that fails"
finish
