#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every relative link of a README leads somewhere, the paths that the root README names in `code` exist, and it
# has at most 150 lines.
set -euo pipefail
# shellcheck source=tests/house/assert.sh
. "$(dirname "$0")/assert.sh"
cd "$repository"
output=""

while IFS= read -r readme; do
  folder=$(dirname "$readme")
  while IFS= read -r link; do
    case $link in
      http://* | https://* | '#'*) continue ;;
    esac
    [ -e "$folder/${link%%#*}" ] || fail "$readme links to $link, which does not exist"
  done < <(grep -oE '\]\([^) ]+\)' "$readme" | sed 's/^](//; s/)$//')
done < <(find . -path ./build -prune -o -name '*.md' -print)

# `path/with/slash` from the top folders, in code marks.
# shellcheck disable=SC2016
while IFS= read -r path; do
  [ -e "$path" ] || fail "README.md names $path, which does not exist"
done < <(grep -oE '`(proto|kernels|planner|daemon|configs|examples|scripts|tests)/[A-Za-z0-9_./-]*`' README.md | tr -d '`')

lines=$(wc -l <README.md)
[ "$lines" -le 150 ] || fail "README.md has $lines lines, at most 150"
finish
