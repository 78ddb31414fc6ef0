#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What mpirun runs instead of ssh below on_hosts.sh: unshared_host.sh HOST COMMAND...
# Network, processes, shared memory, mounts and name are the host's own. All hosts see the same files, but for those
# below MESHLOOM_HIDDEN_FOLDER, if that is set, which host1 alone has: others have an empty folder there.
set -euo pipefail

host=$1
shift
# --kill-child: nothing of a host outlives the mpirun that started it.
exec ip netns exec "$host" unshare --uts --mount --ipc --pid --fork --kill-child --mount-proc bash -c '
  hostname "$1"
  mount -t tmpfs tmpfs /dev/shm
  if [[ -n ${MESHLOOM_HIDDEN_FOLDER:-} && $1 != host1 ]]; then mount -t tmpfs tmpfs "$MESHLOOM_HIDDEN_FOLDER"; fi
  shift
  # As ssh does: the command is text for a shell.
  exec bash -c "$*"' _ "$host" "$@"
