#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: examples_test.sh BUILD_DIR
#
# The examples are built by find_package(Meshloom) against what cmake --install gives to developers, and nothing of the
# source tree, and find on two ranks what one rank computes. Each installed header has all that it includes beside it.
set -euo pipefail
# shellcheck source=tests/house/assert.sh
. "$(dirname "$0")/assert.sh"
build=${1:?"a build folder is needed"}
prefix=$work/prefix

cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }

run cmake --install "$build" --prefix "$prefix" --component Development
expect_status 0 "install"
include=$prefix/include/meshloom
headers=$(find "$include" -name '*.h' | wc -l)
[ "$headers" -gt 200 ] || fail "only $headers headers were installed"
while IFS= read -r header; do
  [ -f "$include/$header" ] || fail "an installed header includes \"$header\", which is not installed"
done < <(grep -rhoE '^ *# *include +"[^"]+"' "$include" | sed 's/.*"\(.*\)"/\1/' | sort -u)

# A program of a build with sanitizers needs them too. Objects of an earlier run of this test serve again.
options=(-DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_COMPILER="$(cached CMAKE_CXX_COMPILER)")
sanitizers=$(cached MESHLOOM_SANITIZE)
[ -z "$sanitizers" ] || options+=(-DCMAKE_CXX_FLAGS="-fsanitize=$sanitizers")
if command -v ccache >/dev/null; then
  export CCACHE_BASEDIR=$work CCACHE_NOHASHDIR=1
  options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
fi
cp -r "$repository/examples" "$work/examples"
run cmake -G Ninja -S "$work/examples" -B "$work/build" "${options[@]}"
expect_status 0 "find_package(Meshloom)"
run cmake --build "$work/build" --parallel 2
expect_status 0 "building the examples"

# expect_passed RANKS EXAMPLE
expect_passed() {
  run "$repository/tests/mpi/run_mpi.sh" "$1" 60 "$work/build/$2"
  expect_status 0 "$2 on $1 ranks"
  expect_line PASSED "$2 on $1 ranks"
}
for example in distributed_tensors context_parallel own_module; do
  expect_passed 2 "$example"
done
expect_passed 4 own_module  # sharded over both dims of its mesh
finish
