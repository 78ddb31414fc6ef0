#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# MESHLOOM_CUDA takes OFF, AUTO and ON alone. ON where the toolkit is not there says what is missing instead of giving
# a program for CPUs alone; AUTO goes on, and keeps for scripts/test.sh what it leaves out.
set -euo pipefail
# shellcheck source=tests/house/assert.sh
. "$(dirname "$0")/assert.sh"

# What is in single quotes is CMake's.
# shellcheck disable=SC2016
write tree/CMakeLists.txt 'cmake_minimum_required(VERSION 3.25)' 'project(small LANGUAGES C CXX)' \
  'set(MESHLOOM_TESTS ON)' "include(\"$repository/scripts/cmake/MeshloomCuda.cmake\")" \
  'message(STATUS "built: ${MESHLOOM_CUDA_BUILT}, toolkit: [${MESHLOOM_CUDA_TOOLKIT_FOUND}]")' \
  'message(STATUS "plugins: ${MESHLOOM_PLUGIN_FOLDER}")'
mkdir "$work/none"
configure() { run cmake -G Ninja -S "$work/tree" -B "$work/build" -DMESHLOOM_CUDA_TOOLKIT="$work/none" "$@"; }

configure -DMESHLOOM_CUDA=ON
expect_status 1 "no toolkit"
expect_line "MESHLOOM_CUDA=ON, but there is no nvcc" "no toolkit"
expect_line "scripts/setup.sh --cuda" "no toolkit"

configure -DMESHLOOM_CUDA=YES
expect_status 1 "another word"
expect_line 'MESHLOOM_CUDA is "YES", expected OFF, AUTO or ON' "another word"

configure -DMESHLOOM_CUDA=AUTO
expect_status 0 "AUTO without a toolkit"
expect_line "built: FALSE, toolkit: []" "AUTO without a toolkit"
expect_line "plugins: ../lib/meshloom" "AUTO without a toolkit"
run cat "$work/build/CMakeCache.txt"
expect_line "MESHLOOM_CUDA_LEFT_OUT:INTERNAL=the CUDA backend (no nvcc" "AUTO without a toolkit"
expect_line "the tests on an emulated GPU (no CUDA headers)" "AUTO without a toolkit"

# A compiler that is too old, and one that does not work.
compiler() { write none/bin/nvcc '#!/bin/sh' "echo 'Cuda compilation tools, release $1, V$1.0'" && chmod +x "$work/none/bin/nvcc"; }
compiler 11.8
configure -DMESHLOOM_CUDA=ON
expect_status 1 "an old compiler"
expect_line "nvcc 12.8 or newer" "an old compiler"
expect_line "is 11.8" "an old compiler"

compiler 13.0
configure -DMESHLOOM_CUDA=OFF
expect_status 0 "OFF with a toolkit"
expect_line "built: FALSE, toolkit: [$work/none]" "OFF with a toolkit"
finish
