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

/// Cores that a cgroup v2 file cpu.max allows ("200000 100000" -> 2, rounded up); 0: no limit.
int cores_of_quota(const std::string& cpu_max);

/// The address by which other hosts reach this one: `configured` if given, else the first IPv4
/// address that is up and not a loopback, else 127.0.0.1.
std::string host_address(const std::string& configured);

}  // namespace meshloom::control
