#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What mpirun runs instead of ssh below on_hosts.sh: unshared_host.sh HOST COMMAND...
# Network, processes, shared memory, mounts and name are the host's own.
set -euo pipefail

host=$1
shift
# --kill-child: nothing of a host outlives the mpirun that started it.
exec ip netns exec "$host" unshare --uts --mount --ipc --pid --fork --kill-child --mount-proc bash -c '
  hostname "$1"
  shift
  mount -t tmpfs tmpfs /dev/shm
  # As ssh does: the command is text for a shell.
  exec bash -c "$*"' _ "$host" "$@"
