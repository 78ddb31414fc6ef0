// SPDX-License-Identifier: Apache-2.0
// LocalSourceLoader: models that rank 0 loads for generation.
#pragma once

#include <chrono>
#include <filesystem>

#include "daemon/control/host/bounded_calls.h"
#include "daemon/control/jobs/local_memory_budget.h"
#include "daemon/control/ranks/source_cache.h"
#include "daemon/control/stores/state_dir.h"

namespace meshloom::control {

/// A load is under no limit of time, since models are large. Refers to what it is made of, which
/// outlives it. Must not be destroyed while hanging() is true.
class LocalSourceLoader final : public SourceLoader {
 public:
  /// `threads`: with which a model draws.
  LocalSourceLoader(const StateDir& state, LocalMemoryBudget& memory, int threads)
      : state_(state), memory_(memory), threads_(threads) {}

  /// Returns the model with the memory that it is counted by. Throws ResourceExhausted, DataLoss,
  /// which is remembered of a job's checkpoint, and Unavailable (STOPPING) after request_stop().
  Loaded load(const std::filesystem::path& folder) override;
  /// Whoever waits for a model is let go. Does not wait.
  void request_stop() { loads_.stop(); }
  bool hanging() const { return loads_.running() > 0; }

 private:
  const StateDir& state_;
  LocalMemoryBudget& memory_;
  const int threads_;
  BoundedCalls loads_{std::chrono::hours(24), 1};
};

}  // namespace meshloom::control
