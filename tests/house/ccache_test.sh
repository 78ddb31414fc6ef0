#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A second clone finds the objects of the first, in unity builds and with precompiled headers, and a changed header,
# precompiled header, option or compiler never meets an old object. Skipped (77) without ccache.
set -euo pipefail
# shellcheck source=tests/house/assert.sh
. "$(dirname "$0")/assert.sh"
command -v ccache >/dev/null || {
  echo "skipped: ccache is not installed"
  exit 77
}
# Paths with a blank are a case of their own below.
rm -rf "$work" && work=$(mktemp -d "${TMPDIR:-/tmp}/meshloom-ccache.XXXXXX")
export CCACHE_DIR=$work/cache CCACHE_CONFIGPATH=$work/none.conf
unset CCACHE_DISABLE CCACHE_BASEDIR CCACHE_MAXSIZE

# A compiler that can be replaced: its file is what ccache knows it by.
compiler() { write g++ '#!/bin/sh' "exec g++ -DCOMPILER=$1 \"\$@\"" && chmod +x "$work/g++"; }

# What is in single quotes is CMake's.
# shellcheck disable=SC2016
make_tree() {
  write "$1/CMakeLists.txt" 'cmake_minimum_required(VERSION 3.25)' 'project(small CXX)' \
    "set(scripts \"$repository/scripts/cmake\")" \
    'foreach(name spdlog::spdlog fmt::fmt CLI11::CLI11 nlohmann_json::nlohmann_json)' \
    '  add_library(${name} INTERFACE IMPORTED)' 'endforeach()' \
    'foreach(part Compiler Unity Precompile)' '  include(${scripts}/Meshloom${part}.cmake)' 'endforeach()' \
    'add_library(tree INTERFACE)' 'target_include_directories(tree INTERFACE ${PROJECT_SOURCE_DIR})' \
    'meshloom_precompiled(headers LIBRARY HEADERS <string> <first.h> LIBRARIES tree)' \
    'meshloom_library(parts PRECOMPILED headers SOURCES one.cpp two.cpp)' \
    'add_executable(small main.cpp)' 'target_link_libraries(small PRIVATE parts)' \
    'target_compile_definitions(parts PRIVATE OPTION=${OPTION})' 'meshloom_unity(${PROJECT_SOURCE_DIR})'
  mkdir -p "$work/$1/scripts/cmake"
  cp "$repository/scripts/cmake/without_old_output.sh" "$work/$1/scripts/cmake"
  write "$1/first.h" '#pragma once' 'inline int first() { return 1; }'
  write "$1/second.h" '#pragma once' 'inline int second() { return 1; }'
  write "$1/one.cpp" '#include "second.h"' 'int one() { return first() * 1000 + second() * 100; }' \
    'const char* file_of_one() { return __FILE__; }'
  write "$1/two.cpp" '#include "second.h"' 'int two() { return OPTION * 10 + COMPILER; }'
  write "$1/main.cpp" '#include <cstdio>' 'int one();' 'int two();' 'const char* file_of_one();' \
    'int main() { std::printf("%d %s\n", one() + two(), file_of_one()); }'
}

# build TREE OPTION: builds it and fills `output` with what its program prints; `misses` with what was compiled.
build() {
  ccache --zero-stats >/dev/null
  run cmake -G Ninja -S "$work/$1" -B "$work/$1/build" -DCMAKE_CXX_COMPILER="$work/g++" -DMESHLOOM_UNITY=ON \
    -DCMAKE_BUILD_TYPE=RelWithDebInfo -DOPTION="$2"
  expect_status 0 "configuring $1"
  run cmake --build "$work/$1/build"
  expect_status 0 "building $1"
  misses=$(ccache --print-stats | awk '$1 == "cache_miss" { print $2 }')
  run "$work/$1/build/bin/small"
}

# two_clones ROOT: builds one tree below ROOT, and again in a second folder, whose headers then change.
two_clones() {
  make_tree "$1/a"
  make_tree "$1/b"
  build "$1/a" 1
  expect_line "1111 " "the first clone"
  [ "$misses" -ge 3 ] || fail "$misses objects were compiled in the first clone"
  build "$1/b" 1
  expect_line "1111 " "the second clone"
  [ "$misses" = 0 ] || fail "the second clone compiled $misses objects"
  run grep -c "$work/$1/a" "$work/$1/b/build/bin/small"
  expect_status 1 "the second clone's program names the first"

  write "$1/b/second.h" '#pragma once' 'inline int second() { return 2; }'
  build "$1/b" 1
  expect_line "1211 " "a changed header"
}

compiler 1
two_clones plain
for value in 2 1 2 1; do
  write plain/b/first.h '#pragma once' "inline int first() { return $value; }"
  build plain/b 1
  expect_line "${value}211 " "a precompiled header that was changed to $value"
done
build plain/b 3
expect_line "1231 " "a changed option"
compiler 2
rm -rf "$work/plain/b/build"
build plain/b 3
expect_line "1232 " "another compiler"
[ "$misses" -ge 3 ] || fail "only $misses objects were compiled by another compiler"
compiler 1
two_clones "with blanks"
finish
