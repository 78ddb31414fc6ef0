#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a test program on a GPU: on_gpu.sh PLUGIN PROGRAM ARGUMENTS... PLUGIN is the CUDA backend's shared library, empty
# where the build has none. Says "no GPU: WHY" and ends with 77 where there is no plugin, no device or no driver.
set -euo pipefail

if (($# < 2)); then
  echo "usage: on_gpu.sh PLUGIN PROGRAM ARGUMENTS..." >&2
  exit 2
fi
plugin=$1
shift

skip() {
  echo "no GPU: $1" >&2
  exit 77
}

[[ -n $plugin ]] || skip "this build has no CUDA backend (MESHLOOM_CUDA)"
[[ -e $plugin ]] || skip "$plugin is not built"
compgen -G "/dev/nvidia[0-9]*" >/dev/null || skip "this machine has no device /dev/nvidia0"
# The driver's library lies in the loader's path wherever programs can use the device. All of the list is read, since a
# reader that ends early would end ldconfig with a signal.
grep libcuda.so.1 < <(ldconfig -p) >/dev/null || skip "the loader does not find the driver's libcuda.so.1"
MESHLOOM_TEST_BACKEND=$plugin exec "$@"
