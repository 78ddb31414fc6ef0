// SPDX-License-Identifier: Apache-2.0
// MemoryBudget: the memory that is counted while somebody has it.
#pragma once

#include <cstdint>
#include <filesystem>

#include "daemon/control/host/memory_units.h"
#include "daemon/control/jobs/memory_admission.h"
#include "v1/config.pb.h"

namespace meshloom::control {

/// Counts memory until the hold that a method returns is let go. Any thread may call any method;
/// each may take as long as a file system does, since a model's config says what its weights take.
class MemoryBudget {
 public:
  virtual ~MemoryBudget() = default;
  /// Counts the memory of a run that has the ranks.
  virtual MemoryUnits hold_run(const v1::RunConfig& resolved) = 0;
  /// Counts the memory of an evaluation of the weights in `folder` that has the ranks.
  virtual MemoryUnits hold_evaluation(const v1::RunConfig& resolved,
                                      const std::filesystem::path& folder) = 0;
  /// Counts a copy of the weights of a run that has the ranks. Throws ResourceExhausted.
  virtual MemoryUnits hold_snapshot(const v1::RunConfig& resolved) = 0;
  /// The same for what a verb of a run takes from an upload of so many bytes.
  virtual MemoryUnits hold_upload(std::int64_t bytes) = 0;
  /// Counts caches of keys and values. Throws ResourceExhausted.
  virtual MemoryUnits hold_cache(const CacheNeed& need) = 0;
};

}  // namespace meshloom::control
