// SPDX-License-Identifier: Apache-2.0
// LocalMemoryBudget: what is counted beside the job or run that has the ranks.
#pragma once

#include <cstdint>
#include <filesystem>

#include "daemon/control/host/bounded_calls.h"
#include "daemon/control/host/memory_units.h"
#include "daemon/control/jobs/local_model_folders.h"
#include "daemon/control/jobs/memory_budget.h"
#include "daemon/control/stores/job_store.h"

namespace meshloom::control {

/// Refers to what it is made of, which outlives it.
class LocalMemoryBudget final : public MemoryBudget {
 public:
  LocalMemoryBudget(const JobStore& store, const LocalModelFolders& folders,
                    MemoryAdmission& memory, BoundedCalls& calls)
      : store_(store), folders_(folders), memory_(memory), calls_(calls) {}

  MemoryUnits hold_run(const v1::RunConfig& resolved) override;
  MemoryUnits hold_evaluation(const v1::RunConfig& resolved,
                              const std::filesystem::path& folder) override;
  MemoryUnits hold_snapshot(const v1::RunConfig& resolved) override;
  MemoryUnits hold_upload(std::int64_t bytes) override;
  MemoryUnits hold_cache(const CacheNeed& need) override;
  /// Counts a model of so many bytes that rank 0 loads for generation. It looks at files on the
  /// calling thread. Throws ResourceExhausted.
  MemoryUnits hold_source(std::int64_t weight_bytes) {
    return memory_.hold_source(weight_bytes, job_bytes().host);
  }

 private:
  MemoryUnits count_run(const RankBytes& bytes);
  /// The estimate of the memory on a rank of the job or run that has the ranks; zeros if there is
  /// none.
  RankBytes job_bytes() const;
  /// Returns the same estimate of a job or run that was taken; zeros with a warning if its model
  /// cannot be read any more.
  RankBytes bytes_of(const v1::RunConfig& resolved) const;

  const JobStore& store_;
  const LocalModelFolders& folders_;
  MemoryAdmission& memory_;
  BoundedCalls& calls_;
  MemoryCount run_bytes_;  ///< what the run that has the ranks takes of a rank
};

}  // namespace meshloom::control
