#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: tests/faults/floods.sh [--build DIR] [--only NAME]
#
# Floods a daemon of two ranks that trains a job: silent connections, watchers, downloads and readers of a large
# result that never read, cancelled calls, storms of calls that read files and search, strangers at the ranks'
# ports, HTTP/2 that is no call. Prints a line for each flood with what rank 0 had before, at most and after, and exits 1 where
# the job stopped, a later client was not served, or something grew without bound.
#
#   --build DIR   build folder (default: build/release)
#   --only NAME   one of Connections, Watchers, Downloads, CancelledCalls, UnaryCalls, Readers, Strangers, RawHttp2
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/../../scripts/common.sh"

build=$repository/build/release
only='*'
while [ $# -gt 0 ]; do
  case $1 in
    --build) build=${2:?} && shift ;;
    --only) only=${2:?} && shift ;;
    -h | --help) print_help && exit 0 ;;
    *) usage_error "unknown argument $1" ;;
  esac
  shift
done

cmake --build "$build" --target meshloomd meshloom faults_floods >&2
"$build/bin/faults_floods" --gtest_brief=1 --gtest_filter="Floods.$only"
