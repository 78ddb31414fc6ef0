#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: scripts/test.sh [--preset NAME] [--filter REGEX] [--label REGEX] [--jobs N] [--no-setup]
#
# Installs what is missing, configures and builds a preset, and runs its tests. The last line says PASSED or
# FAILED; the exit code is 0 only where everything was built and every test passed. The CUDA backend is tested on an
# emulated GPU where CUDA's headers are there or pip gets them. It is built for real ones too, for compute capability 9.0
# alone, where a toolkit, cuDNN and NCCL are found, but not by the presets of sanitizers; the preset cuda builds it for all,
# with a toolkit that is there or that pip gets (1.1 GB). The line before the last one tells what of it was left out.
#
#   --preset NAME    release (default), debug, asan (with UBSan), tsan or cuda
#   --filter REGEX   only tests with a matching name
#   --label REGEX    only tests with a matching label
#   --jobs N         tests at once (default: the usable cores)
#   --no-setup       trust that all packages are there
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

preset=release setup=true jobs="" selection=()
while [ $# -gt 0 ]; do
  case $1 in
    --preset) preset=${2:?"--preset needs a name"} && shift ;;
    --filter) selection+=(--tests-regex "${2:?"--filter needs a regex"}") && shift ;;
    --label) selection+=(--label-regex "${2:?"--label needs a regex"}") && shift ;;
    --jobs) jobs=${2:?"--jobs needs a number"} && shift ;;
    --no-setup) setup=false ;;
    -h | --help) print_help && exit 0 ;;
    *) usage_error "unknown argument $1" ;;
  esac
  shift
done
case $preset in
  release | debug | asan | tsan | cuda) ;;
  *) usage_error "unknown preset $preset" ;;
esac

part="setting up"
report() {
  local status=$? left_out
  left_out=$(sed -n 's/^MESHLOOM_CUDA_LEFT_OUT:INTERNAL=//p' "$repository/build/$preset/CMakeCache.txt" 2>/dev/null) || true
  [ -z "$left_out" ] || say "test: left out: $left_out"
  if [ $status = 0 ]; then
    say "test: PASSED, preset $preset, ${SECONDS} s"
  else
    say "test: FAILED while $part (exit code $status), preset $preset, ${SECONDS} s"
  fi
}
trap report EXIT

# Sanitizers stop at the first finding; what libraries do is suppressed by name. Stack use after return is left
# out: gcc before 13.3 aligns those stacks to 32 bytes (its bug 110027), and AVX-512 spills fault there.
set_sanitizer_options() {
  local lists=$repository/scripts/sanitizers
  export ASAN_OPTIONS="detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=0:${ASAN_OPTIONS:-}"
  export LSAN_OPTIONS="suppressions='$lists/lsan.supp':print_suppressions=0:${LSAN_OPTIONS:-}"
  export UBSAN_OPTIONS="suppressions='$lists/ubsan.supp':print_stacktrace=1:halt_on_error=1:${UBSAN_OPTIONS:-}"
  export TSAN_OPTIONS="suppressions='$lists/tsan.supp':halt_on_error=1:second_deadlock_stack=1:ignore_noninstrumented_modules=1:${TSAN_OPTIONS:-}"
}

# The ThreadSanitizer of gcc 12 cannot map its shadow where addresses are randomised over many bits.
run_tests() {
  local command=(ctest --test-dir "build/$preset" --output-on-failure --no-tests=error --timeout 600
    --parallel "${jobs:-$(usable_cores)}" "${selection[@]}")
  if [ "$preset" = tsan ] && setarch "$(uname -m)" --addr-no-randomize true 2>/dev/null; then
    command=(setarch "$(uname -m)" --addr-no-randomize "${command[@]}")
  fi
  "${command[@]}" </dev/null
}

# Whoever keeps a long output may cut it in its middle: what cases, sanitizers and scripts said of their failures
# stands again at the end, without the lines of logs.
tell_failures() {
  say "test: what failed, of $log:"
  awk '/: Failure$/ || /(Address|Leak|Thread)Sanitizer/ || /runtime error: / || /^FAIL: / || /^Traceback/ { shown = 1 }
       /^<end of output>/ { shown = 0 }
       shown && !/^\[[0-9-]+ [0-9:.]+\] \[/ && lines++ < 300 { print "  " $0 }
       /^\[  FAILED  \]/ { shown = 0 }' "$log"
}

cd "$repository"
allow_mpi_as_root
export GTEST_BRIEF=1  # what a failed test prints is of those that failed
if $setup; then
  cuda=--cuda-headers
  [ "$preset" != cuda ] || cuda=--cuda
  scripts/setup.sh --python --terminal "$cuda"
fi
part="configuring"
mapfile -t options < <(first_build_options "$preset")
case $preset in
  release | debug) options+=(-DMESHLOOM_CUDA=AUTO -DMESHLOOM_CUDA_ARCHITECTURES=90) ;;
esac
cmake --preset "$preset" "${options[@]}"
part="building"
cmake --build "build/$preset" --parallel "$(build_jobs)"
part="running tests"
case $preset in
  asan | tsan) set_sanitizer_options ;;
esac
log=build/$preset/Testing/Temporary/LastTest.log
rm -f "$log"
run_tests || {
  status=$?
  tell_failures || true
  exit $status
}
