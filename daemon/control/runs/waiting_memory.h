// SPDX-License-Identifier: Apache-2.0
// WaitingMemory: how much memory the verbs and samples that wait for the ranks may take.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>

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
  /// Gives the bytes back at its end. May outlive the WaitingMemory.
  using Hold = std::shared_ptr<const void>;

  explicit WaitingMemory(const Bounds& bounds) : bounds_(bounds) {}

  /// Throws ResourceExhausted (VERBS_FULL), with the bound that is in the way.
  Hold take(const std::string& run, const std::string& client, std::size_t bytes);

 private:
  struct Taken {
    std::mutex mutex;
    std::map<std::string, std::size_t> of_run, of_client;
    std::size_t of_all = 0;
  };

  const Bounds bounds_;
  const std::shared_ptr<Taken> taken_ = std::make_shared<Taken>();
};

}  // namespace meshloom::control
