#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: cuda_plugin_test.sh PLUGIN
#
# The CUDA backend's library links neither the driver nor CUDA's runtime as a shared library, exports its own entry
# alone, and looks for libraries beside itself first.
set -euo pipefail
# shellcheck source=tests/house/assert.sh
. "$(dirname "$0")/assert.sh"
plugin=${1:?"a library is needed"}

run readelf -d "$plugin"
expect_status 0 "readelf"
expect_line "[libcudnn.so." "what it needs"
expect_line "[libcublasLt.so." "what it needs"
! grep -qE 'NEEDED.*\[lib(cuda|cudart|meshloom[a-z_]*)\.so' <<<"$output" || fail "the driver, or the runtime, is linked"
# shellcheck disable=SC2016
expect_line 'path: [$ORIGIN:' "where it looks first"
run nm -D --defined-only "$plugin"
expect_status 0 "nm"
others=$(awk '$3 != "" && $3 !~ /^meshloom_/ { print $3 }' <<<"$output")
[ -z "$others" ] || fail "it exports more than its entry"
expect_line " T meshloom_" "its entry"
finish
