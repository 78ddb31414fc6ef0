#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: scripts/check_cuda.sh [--root DIR]
#
# Checks what .cu files below DIR/kernels (default: the repository's) hold: kernels and launch functions of plain data.
# Prints FILE:LINE and the reason, and exits 1 if there was one. They hold none of these:
#
#   CUB, Thrust, libcu++   a file that includes CUB takes 7 s more to compile, for each architecture
#   standard containers    and strings: what is allocated and formatted is of the host, in the .cpp file beside it
#   memcpy, printf         and the like: the emulated device sees single reads and writes alone
#   function pointers      a kernel calls what the compiler can inline
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

root=$repository
while [ $# -gt 0 ]; do
  case $1 in
    --root) root=${2:?"--root needs a folder"} && shift ;;
    -h | --help) print_help && exit 0 ;;
    *) usage_error "unknown argument $1" ;;
  esac
  shift
done
cd "$root"

mapfile -d '' files < <(find kernels -type f \( -name '*.cu' -o -name '*.cuh' \) -print0 | sort -z)
if [ ${#files[@]} = 0 ]; then
  say "cuda: no .cu files"
  exit
fi
awk '
  function report(text) { printf "%s:%d: %s\n", FILENAME, FNR, text; bad = 1 }
  { sub(/\/\/.*/, "") }
  /#[ ]*include[ ]*<(cub|thrust|cuda)\// || /(^|[^A-Za-z0-9_])(cub|thrust)::/ || /cuda::std::/ {
    report("CUB, Thrust and libcu++ are not used: write the reduction with kernels/cuda/primitives")
  }
  /#[ ]*include[ ]*<(array|vector|deque|list|map|set|unordered_map|unordered_set|string|string_view|span|tuple|optional|variant|functional|memory|iostream|sstream|algorithm)>/ ||
  /std::(array|vector|deque|list|map|set|unordered_map|unordered_set|basic_string|string|string_view|span|tuple|optional|variant|function|unique_ptr|shared_ptr)([^A-Za-z0-9_]|$)/ {
    report("a container of the standard library: kernels and launch functions take plain data, the .cpp file makes it")
  }
  /(^|[^A-Za-z0-9_])(memcpy|memmove|memset|memcmp|printf|fprintf|puts|malloc|free)[ ]*\(/ {
    report("memcpy, printf and the like are not used: the emulated device does not see into them")
  }
  /\([ ]*\*[ ]*[A-Za-z_]*[A-Za-z0-9_]*(\[[^]]*\])?[ ]*\)[ ]*\(/ {
    report("a function pointer: pass a template parameter")
  }
  END {
    if (!bad) printf "cuda: %d .cu files hold plain kernels and launches\n", ARGC - 1
    exit bad
  }' "${files[@]}"
