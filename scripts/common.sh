# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the scripts share; to be sourced. Sets `repository` (absolute) and moves nowhere.
# shellcheck disable=SC2034
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '%s\n' "$*"; }

die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# Exit code 2, as all Meshloom programs answer wrong usage.
usage_error() {
  printf '%s: %s (see --help)\n' "$(basename "$0")" "$*" >&2
  exit 2
}

# Prints the comment block at the top of the calling script (after the licence line) as its help.
print_help() { awk 'NR > 2 && !/^#/ { exit } NR > 2 { sub(/^# ?/, ""); print }' "$0"; }

# Ends the script unless the daemon and the client are built in this folder.
need_programs() {
  local program
  for program in meshloomd meshloom; do
    [ -x "$1/bin/$program" ] || die "$1/bin/$program is missing: build it first"
  done
}

# mpirun refuses uid 0 without both variables.
allow_mpi_as_root() {
  if [ "$(id -u)" = 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  fi
}

# Open MPI kills the ranks that are left a second after one has died; the cause that a survivor finds comes at its
# deadline or at the next look. mpirun then ends up to twice so many seconds after the ranks. Open MPI 5 gives them half
# a second, and has no variable for it.
let_survivors_tell() {
  export OMPI_MCA_odls_base_sigkill_timeout="${OMPI_MCA_odls_base_sigkill_timeout:-8}"
}

# Cores this process may use: affinity mask and cgroup quota, at least 1.
usable_cores() {
  local cores quota period
  cores=$(nproc)
  if read -r quota period 2>/dev/null </sys/fs/cgroup/cpu.max && [ "$quota" != max ]; then
    local limit=$(((quota + period - 1) / period))
    [ "$limit" -lt "$cores" ] && cores=$limit
  fi
  say "$((cores > 0 ? cores : 1))"
}

# wait_until SECONDS COMMAND...: until the command succeeds; false where it does not in time.
wait_until() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    [ "$SECONDS" -lt "$end" ] || return 1
    sleep 0.05
  done
}

# daemon_serves STATE: a daemon on this state folder answers the client, which finds it by its address file.
daemon_serves() { [ -s "$1/address" ] && meshloom status >/dev/null 2>&1; }

# A compile can take 1.5 GB: fewer jobs where memory is short.
build_jobs() {
  local cores memory_jobs
  cores=$(usable_cores)
  memory_jobs=$(awk '/^MemAvailable:/ { print int($2 / 1500000) }' /proc/meminfo)
  [ "${memory_jobs:-0}" -ge 1 ] || memory_jobs=1
  say "$((cores < memory_jobs ? cores : memory_jobs))"
}

# first_build_options PRESET: what CMake is told besides the preset, a word a line. A build folder that begins here
# compiles several sources as one, which makes a build of everything shorter; one that is there keeps its settings.
first_build_options() {
  [ -f "$repository/build/$1/CMakeCache.txt" ] || say "-DMESHLOOM_UNITY=ON"
}

# Ids of all living processes of a session. Needs /proc only (no procps).
session_members() {
  cat /proc/[0-9]*/stat 2>/dev/null | awk -v session="$1" '
    { pid = $1; sub(/^.*\) /, ""); if ($4 == session && $1 != "Z" && $1 != "X") print pid }'
}

# end_session ID SECONDS [SIGNAL]: asks all of a session to end, and kills what is still there after so many seconds.
# ID is the process that was started with setsid; it may not have come to that yet.
end_session() {
  local session=$1 tries=$(($2 * 20)) members
  mapfile -t members < <(session_members "$session")
  kill -"${3:-TERM}" "$session" "${members[@]}" 2>/dev/null || true
  while mapfile -t members < <(session_members "$session") && [ ${#members[@]} -gt 0 ]; do
    if [ "$tries" -le 0 ]; then
      kill -KILL "${members[@]}" 2>/dev/null || true
    fi
    [ "$tries" -gt -200 ] || return 1
    sleep 0.05
    tries=$((tries - 1))
  done
}
