#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A build for CUDA is refused, and says why, instead of giving a program for CPUs alone.
set -euo pipefail
# shellcheck source=tests/house/assert.sh
. "$(dirname "$0")/assert.sh"

run cmake -G Ninja -S "$repository" -B "$work/build" -DMESHLOOM_CUDA=ON
expect_status 1 "MESHLOOM_CUDA=ON"
expect_line "this tree has no CUDA backend yet" "MESHLOOM_CUDA=ON"
finish
