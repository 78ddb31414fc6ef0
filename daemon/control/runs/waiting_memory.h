// SPDX-License-Identifier: Apache-2.0
// WaitingMemory: how much memory the verbs and samples that wait for the ranks may take.
#pragma once

#include <cstddef>
#include <string>

#include "daemon/control/host/memory_units.h"

namespace meshloom::control {

/// Counts bytes as they lie in memory, of all runs of a daemon. All methods may be called from any
/// thread.
class WaitingMemory {
 public:
  /// In bytes. No client takes all, so that others can go on.
  struct Bounds {
    std::size_t of_run = std::size_t{256} << 20;
    std::size_t of_client = std::size_t{768} << 20;
    std::size_t of_all = std::size_t{1} << 30;
  };
  explicit WaitingMemory(const Bounds& bounds) : bounds_(bounds) {}

  /// Throws ResourceExhausted (VERBS_FULL), with the bound that is in the way.
  MemoryUnits take(const std::string& run, const std::string& client, std::size_t bytes);

 private:
  const Bounds bounds_;
  MemoryCount taken_;  ///< by run, by client and of all
};

}  // namespace meshloom::control
