// SPDX-License-Identifier: Apache-2.0
// The dry run of a job: what a step of it takes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/nn/models/model_config.h"
#include "v1/config.pb.h"
#include "v1/plan.pb.h"

namespace meshloom::control {

/// Says how much a rank may use of the memory that holds its tensors, and of its host; 0: not
/// known. They are the same memory on a CPU.
struct MemoryShares {
  std::int64_t tensors = 0, host = 0;
};

/// Returns what a step of a resolved config takes, whose model is `model`. On a device with memory
/// of its own there is no estimate of its time, and the memory is that of the device; it fits if
/// what lies on the host does so, too. Where the planner cannot estimate a plan, the memory alone
/// is returned. `warnings` gets why something is left out. It reads no files.
v1::PlanEstimate estimate_step(const v1::RunConfig& resolved, const nn::ModelConfig& model,
                               const MemoryShares& shares, std::vector<std::string>* warnings);

}  // namespace meshloom::control
