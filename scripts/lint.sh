#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: scripts/lint.sh [--all] [--fix] [--base REF] [PART...]
#
# Checks the sources; exits 1 if a part found something. Parts (default: all of them):
#
#   layers   who includes what (scripts/layers.txt)
#   files    licence lines, sizes and marks (scripts/check_files.sh)
#   cuda     what .cu files may not hold (scripts/check_cuda.sh)
#   shell    shellcheck over the scripts
#   comments comments of C++ lines that differ from REF: none begins with What, Whether, How, Where, Who, Why, Of, As,
#            Those or That of
#   format   clang-format 14 over the C++ files; another version formats differently and is not used
#   tidy     clang-tidy over the C++ sources that differ from REF; needs a configured build/release
#   sizes    prints the longest files and functions; finds nothing
#
#   --all        tidy looks at every source (slow)
#   --fix        format changes the files instead of complaining
#   --base REF   what comments and tidy compare with (default: where the branch left main; on main the commit before)
#
# scripts/setup.sh --lint installs the tools.
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

all=false fix=false base="" parts=()
while [ $# -gt 0 ]; do
  case $1 in
    --all) all=true ;;
    --fix) fix=true ;;
    --base) base=${2:?"--base needs a revision"} && shift ;;
    layers | files | cuda | shell | comments | format | tidy | sizes) parts+=("$1") ;;
    -h | --help) print_help && exit 0 ;;
    *) usage_error "unknown argument $1" ;;
  esac
  shift
done
[ ${#parts[@]} -gt 0 ] || parts=(layers files cuda shell comments format tidy sizes)
cd "$repository"
if [ -z "$base" ]; then
  base=$(git merge-base main HEAD 2>/dev/null || git rev-parse HEAD~1)
  [ "$base" != "$(git rev-parse HEAD)" ] || base=HEAD~1
fi

need() { command -v "$1" >/dev/null || die "$1 is not installed: scripts/setup.sh --lint"; }

cpp_files() {
  find kernels planner daemon examples tests -path tests/golden -prune -o -type f \
    \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print0 | sort -z
}

# Sources that differ from the base or are new, as far as they still exist.
changed_sources() {
  {
    git diff --name-only "$base" -- '*.cpp'
    git ls-files --others --exclude-standard -- '*.cpp'
  } | sort -u | while IFS= read -r file; do [ ! -f "$file" ] || printf '%s\n' "$file"; done
}

lint_layers() { scripts/check_layers.sh; }

lint_files() { scripts/check_files.sh; }

lint_cuda() { scripts/check_cuda.sh; }

lint_sizes() { scripts/check_files.sh --sizes; }

lint_shell() {
  need shellcheck
  find scripts tests .ci -type f \( -name '*.sh' -o -path .ci/run \) -print0 | xargs -0 shellcheck -x
  say "shell: no findings"
}

# What has been added to C++ files since the base, as a diff with a line before each change. A new file is all added.
added_lines() {
  git -c core.quotePath=off diff -M -U1 --no-ext-diff --no-color --src-prefix=a/ --dst-prefix=b/ "$base" \
    -- '*.h' '*.cpp' '*.cu' || return
  git ls-files -z --others --exclude-standard -- '*.h' '*.cpp' '*.cu' | while IFS= read -r -d '' file; do
    printf '\ndiff\n+++ b/%s\n@@ -0,0 +1 @@\n' "$file"
    sed 's/^/+/' "$file"
  done
}

# A line behind another line of comment continues its sentence, and may begin with any word.
lint_comments() {
  local found
  found=$(added_lines | awk '
    /^diff/ { header = 1 }
    header && /^\+\+\+ / { file = substr($0, 7); sub(/\t$/, "", file) }
    /^@@ / { header = 0; previous = ""; split($3, at, /[+,]/); number = at[2] - 1; next }
    header || !/^[+ ]/ { next }
    {
      number++
      line = substr($0, 2)
      if (/^\+/ && previous !~ /^[ \t]*\/\// &&
          line ~ /^[ \t]*\/\/[\/!]?[ \t]+(What|Whether|How|Where|Who|Why|Of|As|Those|That of)([^[:alnum:]_]|$)/)
        print file ":" number ": " line
      previous = line
    }')
  if [ -n "$found" ]; then
    say "$found"
    say "comments: those above begin with a clause and not with a subject or verb; write a whole sentence"
    return 1
  fi
  say "comments: no findings"
}

lint_format() {
  local tool=clang-format-14
  command -v $tool >/dev/null || tool=clang-format
  need $tool
  if ! $tool --version | grep -q 'version 14\.'; then
    say "format: skipped, $($tool --version) is not version 14"
    return
  fi
  if $fix; then
    cpp_files | xargs -0 $tool -i
  else
    local wrong
    wrong=$(cpp_files | xargs -0 $tool --dry-run 2>&1 | sed -n 's/:.*\[-Wclang-format-violations\]$//p' | uniq -c) || true
    if [ -n "$wrong" ]; then
      say "$wrong"
      say "format: the files above differ from clang-format (places, file); scripts/lint.sh --fix format"
      return 1
    fi
  fi
  say "format: in form"
}

# Clang cannot read what gcc has precompiled, and so sees whether each source includes what it uses.
write_tidy_database() {
  mkdir -p build/tidy
  sed -E 's# -Winvalid-pch| -fpch-preprocess| -include [^ ]*/cmake_pch\.hxx##g' \
    build/release/compile_commands.json >build/tidy/compile_commands.json
}

lint_tidy() {
  need clang-tidy
  [ -f build/release/compile_commands.json ] || die "tidy needs build/release: cmake --preset release"
  if grep -q '^MESHLOOM_UNITY:BOOL=ON' build/release/CMakeCache.txt; then
    die "tidy needs each source compiled by itself: cmake --preset release -DMESHLOOM_UNITY=OFF"
  fi
  local sources=()
  if $all; then
    mapfile -t sources < <(find kernels planner daemon tests -name '*.cpp' | sort)
  else
    mapfile -t sources < <(changed_sources)
  fi
  if [ ${#sources[@]} = 0 ]; then
    say "tidy: nothing changed"
    return
  fi
  write_tidy_database
  printf '%s\0' "${sources[@]}" | xargs -0 -n 1 -P "$(build_jobs)" clang-tidy --quiet -p build/tidy
  say "tidy: ${#sources[@]} sources, no findings"
}

# A part ends at its first command that fails. A function that is called in a condition would go on behind it and
# report the status of its last line.
failed=()
for part in "${parts[@]}"; do
  set +e
  (
    set -e
    "lint_$part"
  )
  status=$?
  set -e
  [ $status = 0 ] || failed+=("$part")
done
if [ ${#failed[@]} -gt 0 ]; then
  say "lint: FAILED: ${failed[*]}"
  exit 1
fi
say "lint: PASSED"
