#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a program on N ranks of this host: run_mpi.sh N SECONDS PROGRAM [ARGUMENT...]
# Works as root and in containers, with more ranks than cores, and never longer than SECONDS.
set -euo pipefail

ranks=$1
seconds=$2
shift 2

if [[ $(id -u) -eq 0 ]]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
# Ranks bind themselves; mpirun would pin the only rank of -n 1 to one core.
exec timeout --kill-after=5 "$seconds" \
  mpirun -n "$ranks" --oversubscribe --bind-to none "$@"
