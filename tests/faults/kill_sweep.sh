#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: tests/faults/kill_sweep.sh [--build-dir DIR] [--ranks N] [--kills N] [--steps N] [--seed N]
#
# Kills a training daemon again and again, and starts it on the same state folder: all of it, one rank or mpirun alone,
# by turns at a random moment and inside a save. Prints a line a kill, and at the end how many of the losses equal,
# digit for digit, those of the same job without a kill. Exits 1 where one differs or the job does not succeed.
#
#   --build-dir DIR   the programs in DIR/bin (default build/release)
#   --ranks N         ranks (default 2)
#   --kills N         kills (default 20)
#   --steps N         steps of the job (default 20000; it must outlast the kills)
#   --seed N          of the random moments (default 1)
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/../../scripts/common.sh"

build_dir=$repository/build/release ranks=2 kills=20 steps=20000 seed=1
while [ $# -gt 0 ]; do
  case $1 in
    --build-dir) build_dir=$(cd "${2:?"--build-dir needs a folder"}" && pwd) && shift ;;
    --ranks) ranks=${2:?"--ranks needs a number"} && shift ;;
    --kills) kills=${2:?"--kills needs a number"} && shift ;;
    --steps) steps=${2:?"--steps needs a number"} && shift ;;
    --seed) seed=${2:?"--seed needs a number"} && shift ;;
    -h | --help) print_help && exit 0 ;;
    *) usage_error "unknown argument $1" ;;
  esac
  shift
done
need_programs "$build_dir"
RANDOM=$seed
allow_mpi_as_root

work=$(mktemp -d)
daemon_session=""
clean_up() {
  [ -z "$daemon_session" ] || end_session "$daemon_session" 0 KILL
  rm -rf "$work"
}
trap clean_up EXIT

meshloom() { MESHLOOM_ADDRESS=$(cat "$work/state/address") "$build_dir/bin/meshloom" "$@"; }

start_daemon() {
  rm -f "$work/state/address"
  setsid mpirun -n "$ranks" --bind-to none --oversubscribe "$build_dir/bin/meshloomd" --listen 127.0.0.1:0 \
    --state-dir "$work/state" --data-dir "$work/data" --threads 1 \
    --max-stalled-attempts 1000 </dev/null >>"$work/daemon.log" 2>&1 &
  daemon_session=$!
  disown
  wait_until 60 daemon_serves "$work/state" || die "the daemon did not start: $(tail -n 5 "$work/daemon.log")"
}

# shellcheck disable=SC2317  # it is called by wait_until
nobody_left() { [ -z "$(session_members "$daemon_session")" ]; }
wait_until_gone() {
  wait_until 30 nobody_left ||
    die "processes outlived the kill: $(session_members "$daemon_session" | tr '\n' ' ')"
  daemon_session=""
}

# state_of JOB: its state, as `job show` tells it.
state_of() { meshloom job show "$1" --json | sed -n 's/^  "state": "\(.*\)",\{0,1\}$/\1/p'; }

write_job() {
  mkdir -p "$work/data"
  awk 'BEGIN { srand(7); for (i = 0; i < 60000; ++i) printf "%s%s", substr("abcdefghijklmnop", 1 + int(rand() * 16), 1), i % 7 ? "" : " " }' \
    >"$work/data/text.txt"
  cat >"$work/job.yaml" <<YAML
run:
  model: {preset: byte_gpt_tiny}
  plan: {dtype: float32}
  training: {steps: $steps, seq_len: 64, global_batch_size: 4, seed: 1}
  data: {path: text.txt}
  checkpoint: {interval: 10, keep_latest_k: 2}
YAML
}

# A rank's process id, of those that run now.
rank_process() {
  local member
  for member in $(session_members "$daemon_session"); do
    tr '\0' ' ' 2>/dev/null <"/proc/$member/cmdline" | grep -q "^[^ ]*meshloomd" && say "$member"
  done | sed -n "$((1 + RANDOM % ranks))p"
}

# Returns at a random moment of the next second, or as soon as a save is under way.
wait_for_moment() {
  if [ "$1" = random ]; then
    sleep "$(awk -v r="$RANDOM" 'BEGIN { printf "%.3f", 0.2 + r / 32768 }')"
    return
  fi
  local tries=20000
  until compgen -G "$work/state/jobs/swept/checkpoints/.tmp-*" >/dev/null; do
    [ "$tries" -gt 0 ] || return 0
    tries=$((tries - 1))
  done
}

losses() { grep -o '^{"step":[0-9]*,"loss":[^,]*' "$work/state/jobs/$1/metrics.jsonl"; }

write_job
start_daemon
meshloom job submit "$work/job.yaml" --name whole --follow >/dev/null
meshloom job submit "$work/job.yaml" --name swept >/dev/null
say "kill  whom     moment  last step on disk"
done_kills=0
while [ "$done_kills" -lt "$kills" ]; do
  moment=random whom=all
  [ $((done_kills % 2)) = 0 ] || moment=save
  case $((done_kills % 3)) in
    1) whom=rank ;;
    2) whom=mpirun ;;
  esac
  wait_for_moment $moment
  [ "$(state_of swept)" != succeeded ] || die "the job ended after $done_kills kills: give it more --steps"
  case $whom in
    all) mapfile -t victims < <(session_members "$daemon_session") ;;
    rank) mapfile -t victims < <(rank_process) ;;
    mpirun) victims=("$daemon_session") ;;
  esac
  kill -KILL "${victims[@]}" 2>/dev/null || true
  wait_until_gone
  done_kills=$((done_kills + 1))
  printf '%4d  %-7s  %-6s  %s\n' "$done_kills" "$whom" "$moment" \
    "$(find "$work/state/jobs/swept/checkpoints" -maxdepth 1 -name 'step-*' -printf '%f\n' | sort -V | tail -n 1)"
  start_daemon
done
# shellcheck disable=SC2317  # it is called by wait_until
has_ended() { state=$(state_of swept) && ! [[ $state =~ ^(running|preparing|recovering)$ ]]; }
wait_until 600 has_ended || die "the job does not end"
[ "$state" = succeeded ] || die "the job is $state: $(meshloom job show swept)"
equal=$(comm -12 <(losses whole | sort) <(losses swept | sort) | wc -l)
say "kills $done_kills, losses equal $equal of $steps, state $state"
meshloom shutdown >/dev/null
[ "$equal" = "$steps" ]
