#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: tests/faults/cut_off.sh [--build-dir DIR] [--steps N]
#
# Trains on two hosts of one rank each and takes the network between them away: first for 6 seconds, which the job must
# survive with the losses of an undisturbed one, then for good, which must end the daemon with the job saved to go on.
# Prints after how long the rank was named and the daemon ended. The hosts are two network namespaces with a cable
# between them: it needs root and iproute2, and exits 77 where they are missing. Exits 1 where an expectation failed.
#
#   --build-dir DIR   the programs in DIR/bin (default build/release)
#   --steps N         steps of the job (default 12000; it must outlast both cuts)
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/../../scripts/common.sh"

build_dir=$repository/build/release steps=12000
while [ $# -gt 0 ]; do
  case $1 in
    --build-dir) build_dir=$(cd "${2:?"--build-dir needs a folder"}" && pwd) && shift ;;
    --steps) steps=${2:?"--steps needs a number"} && shift ;;
    -h | --help) print_help && exit 0 ;;
    *) usage_error "unknown argument $1" ;;
  esac
  shift
done
need_programs "$build_dir"

skip() { say "cut_off: SKIPPED, $*" && exit 77; }
[ "$(id -u)" = 0 ] || skip "only root makes network namespaces"
[ -n "$(command -v ip)" ] || skip "the program ip (iproute2) is missing"
allow_mpi_as_root

# Names and subnet of their own, so that two runs do not meet.
here=meshloom-$$-a there=meshloom-$$-b subnet=10.$((64 + $$ % 64)).$(($$ / 64 % 256))
work=$(mktemp -d)
daemon_session=""
# shellcheck disable=SC2317  # the trap calls it
clean_up() {
  [ -z "$daemon_session" ] || end_session "$daemon_session" 0 KILL
  for host in "$here" "$there"; do
    ip netns pids "$host" 2>/dev/null | xargs -r kill -9 || true
    ip netns delete "$host" 2>/dev/null || true
  done
  rm -rf "$work"
}
trap clean_up EXIT

ip netns add "$here" 2>"$work/error" || skip "$(cat "$work/error")"
ip netns add "$there"
ip link add cable netns "$here" type veth peer name cable netns "$there"
for host in "$here 1" "$there 2"; do
  read -r name number <<<"$host"
  ip -n "$name" link set lo up
  ip -n "$name" address add "$subnet.$number/24" dev cable
  ip -n "$name" link set cable up
done

# What mpirun calls instead of ssh: host, then the command as a shell line. A host is also a process tree of its own:
# ranks that see each other's memory count as one host.
cat >"$work/agent" <<END
#!/bin/sh
shift
exec ip netns exec $there unshare --pid --fork --mount-proc sh -c "\$*"
END
chmod +x "$work/agent"
mkdir "$work/data"
for i in $(seq 5000); do echo "in the beginning there was line $i"; done >"$work/data/text.txt"
cat >"$work/job.yaml" <<END
run:
  model: {preset: byte_gpt_tiny}
  training: {steps: $steps, seq_len: 32, global_batch_size: 4, seed: 3}
  data: {path: text.txt, validation_split: 0.1}
  checkpoint: {interval: 500, keep_latest_k: 2}
END

meshloom() {
  MESHLOOM_ADDRESS=$(cat "$work/state/address") ip netns exec "$here" "$build_dir/bin/meshloom" "$@"
}

start_daemon() {
  rm -f "$work/state/address"
  setsid ip netns exec "$here" mpirun --mca plm_rsh_agent "$work/agent" --mca oob_tcp_if_include "$subnet.0/24" \
    --host "$subnet.1,$subnet.2" -n 2 --bind-to none "$build_dir/bin/meshloomd" --listen 127.0.0.1:0 \
    --mpi-interface "$subnet.0/24" --state-dir "$work/state" --data-dir "$work/data" --threads 1 \
    </dev/null >>"$work/daemon.log" 2>&1 &
  daemon_session=$!
  disown
  wait_until 60 daemon_serves "$work/state" || die "the daemon did not start: $(tail -n 20 "$work/daemon.log")"
}

now() { date +%s.%N; }
since() { echo "$(now) $1" | awk '{printf "%.2f", $1 - $2}'; }
step_of() { meshloom --json job show "$1" | tr -d ' \n' | grep -oE '"step":"?[0-9]+' | head -n 1 | grep -oE '[0-9]+$' || echo 0; }
# shellcheck disable=SC2317  # it is called by wait_until
past() { [ "$(step_of cut)" -gt "$1" ]; }
# shellcheck disable=SC2317
succeeded() { grep -q '"succeeded"' <<<"$(meshloom --json job show cut)"; }
losses() { grep grad_norm "$work/state/jobs/$1/metrics.jsonl" | grep -oE '"(loss|step)":[^,}]*' | paste - - | sort -u; }
failed=0
expect() {  # text, then the condition
  local text=$1
  shift
  if "$@"; then say "  $text"; else
    say "  FAILED: $text"
    failed=1
  fi
}

start_daemon
meshloom job submit "$work/job.yaml" --name whole --follow >/dev/null
say "cut_off: an undisturbed job of $steps steps ended on two hosts"
meshloom job submit "$work/job.yaml" --name cut >/dev/null
wait_until 60 past 1000 || die "the job does not train"

# shellcheck disable=SC2317  # The exit code of status is that of the ranks' health.
named() { grep -q "rank 1 is silent" <<<"$(meshloom status 2>&1 || true)"; }
cut=$(now)
ip -n "$there" link set cable down
expect "rank 1 is named as silent" wait_until 10 named
name_time=$(since "$cut")
say "  named $name_time s after the cut"
expect "that is within 2.5 s" awk "BEGIN {exit !($name_time < 2.5)}"
sleep "$(awk "BEGIN {print $name_time < 6 ? 6 - $name_time : 0}")"
ip -n "$there" link set cable up
back=$(step_of cut)
expect "the job goes on when the cable is back" wait_until 30 past $((back + 100))

cut=$(now)
ip -n "$there" link set cable down
# shellcheck disable=SC2317
ended() {
  local pid
  for pid in $(ip netns pids "$here"); do
    [ "$(cat "/proc/$pid/comm" 2>/dev/null)" != meshloomd ] || return 1
  done
}
expect "rank 0 gives up when the rank stays away" wait_until 60 ended
say "  ended $(since "$cut") s after the cut"
# mpirun itself waits for its own daemon on the host that it cannot reach.
end_session "$daemon_session" 0 KILL
ip netns pids "$there" | xargs -r kill -9
ip -n "$there" link set cable up
daemon_session=""
start_daemon
expect "the job goes on and succeeds after a new start" \
  wait_until 300 succeeded
losses whole >"$work/whole" && losses cut >"$work/cut"
expect "all $steps losses are those of the undisturbed job" cmp -s "$work/whole" "$work/cut"
meshloom shutdown >/dev/null
exit "$failed"
