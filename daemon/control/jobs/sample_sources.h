// SPDX-License-Identifier: Apache-2.0
// What a request for a sample may name, and where it is to be found.
#pragma once

#include <filesystem>
#include <string>

#include "daemon/control/host/memory_units.h"
#include "daemon/control/jobs/admission.h"
#include "daemon/control/jobs/sample_scheduler.h"
#include "daemon/control/ranks/source_cache.h"
#include "daemon/control/stores/job_store.h"
#include "daemon/control/stores/state_dir.h"
#include "v1/generate_service.pb.h"

namespace meshloom::control {

/// Any thread may call it. Looks at files, so a call may take its time.
class SampleSources {
 public:
  SampleSources(const JobStore& store, SampleScheduler& scheduler, SourceCache& cache,
                const StateDir& state, Admission& admission)
      : store_(store), scheduler_(scheduler), cache_(cache), state_(state), admission_(admission) {}

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
  MemoryUnits hold_cache(const CacheNeed& need) const { return admission_.hold_cache(need); }

 private:
  const JobStore& store_;
  SampleScheduler& scheduler_;
  SourceCache& cache_;
  const StateDir& state_;
  Admission& admission_;
};

}  // namespace meshloom::control
