// SPDX-License-Identifier: Apache-2.0
// RunParts: what one run is made of, beside its lifecycle.
#pragma once

#include <memory>
#include <string>

#include "daemon/control/ranks/run_client.h"
#include "daemon/control/runs/run_context.h"
#include "daemon/control/runs/run_lease.h"
#include "daemon/control/runs/run_samples.h"
#include "daemon/control/runs/run_states.h"
#include "daemon/control/runs/run_weights.h"
#include "daemon/control/runs/verb_queue.h"
#include "v1/run.pb.h"

namespace meshloom::control {

/// The parts refer to each other and to the context, which outlives them. Each has locks of its
/// own; none calls the lifecycle.
struct RunParts {
  /// `run` is as the journal has it, with its weights.
  RunParts(RunContext& shared, const v1::Run& run);
  RunParts(const RunParts&) = delete;
  RunParts& operator=(const RunParts&) = delete;

  RunContext& context;
  const std::string id, client;
  const RunClient ranks;
  RunStates states;
  RunWeights weights;
  VerbQueue queue;
  RunSamples samples;
  const std::shared_ptr<RunLease> lease;
};

}  // namespace meshloom::control
