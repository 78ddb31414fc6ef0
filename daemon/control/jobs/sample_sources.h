// SPDX-License-Identifier: Apache-2.0
// What a request for a sample may name, and where it is to be found.
#pragma once

#include <filesystem>
#include <string>

#include "daemon/control/host/memory_units.h"
#include "daemon/control/jobs/memory_budget.h"
#include "daemon/control/jobs/model_folders.h"
#include "daemon/control/jobs/sample_scheduler.h"
#include "daemon/control/jobs/tokenization.h"
#include "daemon/control/ranks/source_cache.h"
#include "daemon/control/stores/job_store.h"
#include "daemon/control/stores/state_dir.h"
#include "v1/generate_service.pb.h"

namespace meshloom::control {

/// Any thread may call it. Looks at files, so a call may take its time.
class SampleSources {
 public:
  SampleSources(const JobStore& store, SampleScheduler& scheduler, SourceCache& cache,
                const StateDir& state, ModelFolders& folders, Tokenization& tokenization,
                MemoryBudget& budget)
      : store_(store),
        scheduler_(scheduler),
        cache_(cache),
        state_(state),
        folders_(folders),
        tokenization_(tokenization),
        budget_(budget) {}

  struct Place {
    std::string live_run;          ///< of a job that trains; empty: folder
    train::PromptLimits limits;    ///< of live_run
    std::filesystem::path folder;  ///< of a checkpoint, an export or a Hugging Face model
  };
  /// `live`: a running job is drawn from as it is, else from its newest model. Throws NotFound,
  /// FailedPrecondition (NO_CHECKPOINT) and what resolving throws.
  Place find(const v1::GenerateRequest& request, bool live) const;

  SampleScheduler& scheduler() { return scheduler_; }
  SourceCache& cache() { return cache_; }
  MemoryUnits hold_cache(const CacheNeed& need) const { return budget_.hold_cache(need); }

 private:
  const JobStore& store_;
  SampleScheduler& scheduler_;
  SourceCache& cache_;
  const StateDir& state_;
  ModelFolders& folders_;
  Tokenization& tokenization_;
  MemoryBudget& budget_;
};

}  // namespace meshloom::control
