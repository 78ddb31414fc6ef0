#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a command whose mpirun starts ranks on several "hosts" of this machine: on_hosts.sh RANKS,RANKS... COMMAND...
# One number for each host. The hosts are namespaces: they share files and CPUs, and nothing else. The command itself
# runs in the network of the first one. Says "no hosts: WHY" and ends with 77 where the kernel refuses namespaces.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)

if [[ ${1:-} != --inside ]]; then
  if ! why=$(unshare --user --map-root-user --net --mount bash "$0" --inside "$1" true 2>&1); then
    echo "no hosts: ${why//$'\n'/; }" >&2
    exit 77
  fi
  exec unshare --user --map-root-user --net --mount bash "$0" --inside "$@"
fi

shift
IFS=, read -ra counts <<<"$1"
shift
# Gone with this namespace: names of networks, the list of hosts.
mount -t tmpfs tmpfs /run
ip link set lo up
ip link add bridge0 type bridge
ip link set bridge0 up
number=0
for count in "${counts[@]}"; do
  number=$((number + 1))
  host=host$number
  echo "$host slots=$count" >>/run/hosts
  ip netns add "$host"
  ip link add "veth$number" type veth peer name eth0 netns "$host"
  ip link set "veth$number" master bridge0 up
  ip -n "$host" addr add "10.77.0.$number/24" dev eth0
  ip -n "$host" link set eth0 up
  ip -n "$host" link set lo up
done
# Keeps this network, with the bridge in it, when nobody is left here.
touch /run/netns/bridge
mount --bind /proc/self/ns/net /run/netns/bridge
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# Open MPI 4, and 5 by other names.
export OMPI_MCA_plm_rsh_agent=$here/unshared_host.sh PRTE_MCA_plm_ssh_agent=$here/unshared_host.sh
export OMPI_MCA_orte_default_hostfile=/run/hosts PRTE_MCA_prte_default_hostfile=/run/hosts
export OMPI_MCA_oob_tcp_if_include=10.77.0.0/24 OMPI_MCA_btl_tcp_if_include=10.77.0.0/24
export OMPI_MCA_mpi_yield_when_idle=1
exec ip netns exec host1 "$@"
