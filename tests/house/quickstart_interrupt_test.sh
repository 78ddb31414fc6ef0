#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: quickstart_interrupt_test.sh [BUILD_DIR]
#
# Whatever signal ends scripts/quickstart.sh at whatever moment, no process is left, and it runs twice in a row
# in a path with spaces. With programs that only pretend, or with those in BUILD_DIR/bin.
set -euo pipefail
# shellcheck source=tests/house/assert.sh
. "$(dirname "$0")/assert.sh"
export STUB=$work/programs
mkdir -p "$STUB/bin"

# The daemon ends on SIGTERM only where DEAF is not set, and serves after a moment.
cat >"$STUB/bin/meshloomd" <<'STUB'
#!/usr/bin/env bash
[ -z "${DEAF:-}" ] || trap '' TERM
sleep 0.3
mkdir -p "$1/hf" && echo {} >"$1/hf/config.json" && touch "$1/serves"
while :; do sleep 0.1; done
STUB
# The client: up leaves the daemon in a session of its own, down ends that one, and both want to be told which it is.
cat >"$STUB/bin/meshloom" <<'STUB'
#!/usr/bin/env bash
[ "$1" = --state-dir ] || exit 2
state=$2
case "$*" in
  *" up -n 2 --data-dir "*)
    mkdir -p "$state"
    setsid "$STUB/bin/meshloomd" "$state" </dev/null >"$state/log" 2>&1 &
    echo $! >"$state/pid"
    until [ -e "$state/serves" ]; do sleep 0.02; done
    ;;
  *" submit "*)
    [ -e "$state/serves" ] || exit 3
    for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo "step $i" && sleep 0.2; done
    ;;
  *" down --force") [ ! -s "$state/pid" ] || kill -KILL -- "-$(cat "$state/pid")" 2>/dev/null || true ;;
  *" down") kill -TERM -- "-$(cat "$state/pid")" ;;
esac
STUB
chmod +x "$STUB"/bin/*
programs=${1:-$STUB}
quickstart=("$repository/scripts/quickstart.sh" --build-dir "$programs" --work-dir "$STUB/work")

# Processes other than this test that know the folder.
left_over() {
  local pid
  for pid in /proc/[0-9]*; do
    [ "${pid#/proc/}" != $$ ] && tr '\0' ' ' 2>/dev/null <"$pid/cmdline" | grep -qF -- "$STUB" &&
      printf '%s ' "${pid#/proc/}"
  done || true
}

for _ in 1 2; do
  run "${quickstart[@]}" --fast </dev/null
  expect_status 0 "whole run"
  expect_line "step 1" "whole run"
  expect_line "The model is in $STUB/work/state/" "whole run"
  [ -z "$(left_over)" ] || fail "a whole run left processes $(left_over)"
done

# interrupt SIGNAL DELAY EXPECTED whole-group|script-only
interrupt() {
  local status=0 target
  rm -rf "$STUB/work/state"
  setsid env --default-signal=INT "${quickstart[@]}" >"$work/log" 2>&1 </dev/null &
  local script=$!
  sleep "$2"
  target=$script
  [ "$4" = script-only ] || target=-$script
  kill -"$1" -- "$target" 2>/dev/null || true
  wait "$script" || status=$?
  output=$(cat "$work/log")
  [ "$status" = "$3" ] || fail "$1 after $2 s ($4): exit code $status, expected $3"
  local found
  found=$(left_over)
  [ -z "$found" ] || fail "$1 after $2 s ($4) left processes $found"
}

# Programs that pretend are at the same place whatever the machine; real ones take longer to end.
delays=(0.2 0.4 0.6 1 1.6)
[ $# = 0 ] || delays=(0.4 1.6)
for delay in "${delays[@]}"; do
  interrupt INT "$delay" 130 whole-group
  interrupt TERM "$delay" 143 script-only
done
interrupt HUP 1 129 whole-group
DEAF=1 interrupt INT 1.5 130 script-only
finish
