// SPDX-License-Identifier: Apache-2.0
// Algorithms in symmetric memory, for groups whose ranks are on one host.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "daemon/comm/failure/peer_access.h"
#include "daemon/comm/flight/algorithms.h"
#include "daemon/comm/symm_mem/host_symmetric_memory.h"
#include "kernels/base/parallel_for.h"

namespace meshloom::comm {

/// All groups of a rank share this setup.
struct SymmetricSetup {
  std::shared_ptr<HostSymmetricMemory> memory;
  std::shared_ptr<PeerAccess> access;
  Threads threads;
  std::chrono::milliseconds timeout{100'000};  ///< for the ranks to meet when a group is made
  /// Errors call the members by these names; empty: by their ranks.
  std::vector<int> names{};
};

/// Every member calls it. Collectives go through memory that all members map; sends and receives go
/// over `messages`, and so does the exchange by which they find each other's memory. Where some
/// member cannot reach another one's memory, all get `messages` back. Throws DeadlineExceeded if a
/// member does not come.
std::unique_ptr<Algorithms> make_symmetric_algorithms(std::unique_ptr<Algorithms> messages,
                                                      const SymmetricSetup& setup);

}  // namespace meshloom::comm
