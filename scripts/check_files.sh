#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: scripts/check_files.sh [--root DIR] [--sizes]
#
# Checks the form of every source file below DIR (default: the repository): the licence line, #pragma once in
# headers, no tab or trailing blank, and no mark of unfinished work. Prints FILE:LINE and the reason, and exits 1 if
# there was one. A file of more than 500 lines is told and no error: it may well be one thing.
#
#   --sizes   instead print the longest files and functions and the number of lines by folder
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

root=$repository
mode=check
while [ $# -gt 0 ]; do
  case $1 in
    --root) root=${2:?} && shift ;;
    --sizes) mode=sizes ;;
    -h | --help) print_help && exit 0 ;;
    *) usage_error "unknown argument $1" ;;
  esac
  shift
done
cd "$root"

# All source files, null-separated; build trees and golden data are not sources.
source_files() {
  local top=()
  local name
  for name in proto kernels planner daemon examples configs scripts tests CMakeLists.txt Dockerfile .ci; do
    [ -e "$name" ] && top+=("$name")
  done
  find "${top[@]}" -path tests/golden -prune -o -type f \
    \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' -o -name '*.proto' -o -name '*.cmake' \
    -o -name '*.sh' -o -name '*.py' -o -name '*.supp' -o -name '*.yaml' -o -name 'CMakeLists.txt' -o -name 'Dockerfile' \
    -o -path '.ci/run' -o -path scripts/layers.txt \) -print0 | sort -z
}

check() {
  source_files | xargs -0 -r awk '
    function report(line, text) { printf "%s:%d: %s\n", FILENAME, line, text; bad = 1 }
    function finish(   limit) {
      if (name == "") return
      if (!licence) { printf "%s:1: no line \"SPDX-License-Identifier: Apache-2.0\" at the top\n", name; bad = 1 }
      if (name ~ /\.(h|cuh)$/ && !once) { printf "%s:1: no #pragma once\n", name; bad = 1 }
      if (lines > 500) printf "note: %s has %d lines, more than 500\n", name, lines
    }
    FNR == 1 { finish(); name = FILENAME; licence = once = lines = 0; ++files }
    { lines = FNR }
    FNR <= 2 && /SPDX-License-Identifier: Apache-2\.0/ { licence = 1 }
    # Headers that Highway compiles once a target guard themselves.
    /^#pragma once$/ || /HWY_TARGET_TOGGLE/ { once = 1 }
    /\t/ { report(FNR, "tab") }
    /[ \t\r]$/ { report(FNR, "blank at the end of the line") }
    # The marks are spelled with brackets so that this file does not find itself.
    /[T]ODO|[F]IXME|[f]or now|[p]laceholder|[n]ot implemented/ { report(FNR, "mark of unfinished work") }
    END {
      finish()
      if (!bad) printf "files: %d source files, all in form\n", files
      exit bad
    }' || exit 1
}

# A function ends at a } in the first column and starts at the last line before it that begins there and is
# not a comment, brace or namespace.
sizes() {
  say "lines by folder:"
  source_files | xargs -0 -r awk '
    { folder = FILENAME; if (!sub(/\/[^\/]*$/, "", folder)) folder = "."; ++lines[folder]; ++total }
    FNR == 1 { ++files[folder]; ++all }
    END {
      for (folder in lines) printf "%7d %4d files  %s\n", lines[folder], files[folder], folder | "sort -k4"
      close("sort -k4")
      printf "%7d %4d files  in all\n", total, all
    }'
  say "longest files:"
  source_files | xargs -0 -r awk '{ ++lines[FILENAME] }
    END { for (name in lines) printf "%7d %s\n", lines[name], name }' | sort -rn | sed -n 1,12p
  say "longest functions:"
  source_files | grep -zE '\.(h|cpp|cu|cuh)$' | xargs -0 -r awk '
    FNR == 1 { start = 0 }
    /^[A-Za-z_~]/ && !/^namespace|^struct|^class|^enum|^using|^constexpr|^extern/ { if (!start) start = FNR }
    /;[ \t]*$/ && /^[A-Za-z_]/ { start = 0 }
    /^}/ { if (start) printf "%7d %s:%d\n", FNR - start + 1, FILENAME, start; start = 0 }' |
    sort -rn | sed -n 1,15p
}

"$mode"
