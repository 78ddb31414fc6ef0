// SPDX-License-Identifier: Apache-2.0
// What this process may use of its host.
#pragma once

#include <string>
#include <vector>

#include "daemon/comm/bootstrap/bootstrap.h"
#include "daemon/comm/mesh/topology.h"

namespace meshloom::control {

/// Every rank of the world calls it. Cores of this rank's affinity mask and cgroup quota, divided
/// by the ranks of its host that share them; at least 1.
int threads_per_rank(comm::Bootstrap& bootstrap, const comm::Topology& topology);

/// An IPv4 address of this host that is up.
struct InterfaceAddress {
  std::string interface;  ///< such as "eth1"
  std::string address;    ///< such as "10.0.0.7"
  bool is_loopback = false;
};
std::vector<InterfaceAddress> interface_addresses();

/// Where rank 0 listens for ranks of other hosts, and what they are told.
struct RankAddress {
  std::string told;
  std::string listen;
};
/// `configured` (MESHLOOM_HOST): an address or a name by which other hosts reach this one; empty:
/// the first address of `mpi_interface`, else the first that is no loopback. `mpi_interface` as
/// Open MPI takes it: names and subnets ("eth1", "10.0.0.0/24"), separated by commas, or "none", or
/// nothing. A configured address is listened on, else that of the interface, else the one that is
/// told, unless that is a name: what another host makes of it is not known here, so that all
/// addresses are listened on.
RankAddress rank_address(const std::string& configured, const std::string& mpi_interface,
                         const std::vector<InterfaceAddress>& addresses);

}  // namespace meshloom::control
