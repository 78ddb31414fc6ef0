#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: scripts/image/entrypoint.sh [MESHLOOMD ARGUMENT...]
#        scripts/image/entrypoint.sh quickstart [ARGUMENT...]
#
# What the container image runs: the daemon on $RANKS ranks (default 1), or the quickstart, by the programs on the
# PATH. `docker stop` becomes an orderly shutdown, which saves a checkpoint first; give it time (--stop-timeout).
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/../common.sh"

case ${1:-} in
  -h | --help) print_help && exit 0 ;;
  quickstart)
    shift
    program=$(command -v meshloom) || die "meshloom is not on the PATH"
    prefix=$(dirname "$(dirname "$program")")
    exec "$repository/scripts/quickstart.sh" --build-dir "$prefix" --work-dir /tmp/quickstart "$@"
    ;;
esac

umask 077
allow_mpi_as_root
let_survivors_tell
mpirun -n "${RANKS:-1}" --bind-to none --oversubscribe meshloomd \
  --state-dir "${STATE_DIR:-/state}" --data-dir "${DATA_DIR:-/data}" --world-size "${RANKS:-1}" "$@" &
mpirun_pid=$!
trap 'meshloom shutdown || kill -TERM "$mpirun_pid"' TERM INT HUP USR1

# The first wait is cut short by the signal, the second one gets the exit code.
status=0
wait "$mpirun_pid" || status=$?
if kill -0 "$mpirun_pid" 2>/dev/null; then
  status=0
  wait "$mpirun_pid" || status=$?
fi
exit "$status"
