// SPDX-License-Identifier: Apache-2.0
// What the hosts of the ranks have for jobs, as every rank knows it.
#pragma once

#include <vector>

#include "daemon/comm/bootstrap/bootstrap.h"
#include "daemon/comm/mesh/topology.h"
#include "daemon/control/jobs/memory_admission.h"
#include "daemon/train/config/device_choice.h"

namespace meshloom::control {

/// By the numbers of the hosts, so that the host of rank 0 is first.
struct WorldHosts {
  std::vector<HostMemory> memory;  ///< each with the least that one of its ranks may use
  train::WorldDevices devices;  ///< those of a host that all its ranks have, of one class for all
};

/// Every rank of the world calls it. Asks each cuda device of this process for its class and
/// memory; one that does not answer is left out with a warning.
WorldHosts gather_hosts(comm::Bootstrap& bootstrap, const comm::Topology& topology);

}  // namespace meshloom::control
