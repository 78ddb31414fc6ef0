// SPDX-License-Identifier: Apache-2.0
// What a job needs of a rank's memory, from its config alone.
#pragma once

#include "daemon/nn/models/model_config.h"
#include "planner/estimate/memory.h"
#include "v1/config.pb.h"

namespace meshloom::plan {

/// Estimates the memory of the fullest rank for the resolved config of a job, or of a run that is
/// driven step by step; `model` is its model. The numbers are those that `meshloom plan estimate`
/// gives. If a part of the plan has no estimate, more is counted rather than less: styles that hold
/// for some layers only count as if tp sharded nothing, choices of dims that do so as whole
/// parameters, and of blocks that keep different things for backward all as those that keep most.
/// Takes time and memory by the number of layers only if the plan has patterns.
planner::MemoryEstimate estimate_job_memory(const v1::RunConfig& resolved,
                                            const nn::ModelConfig& model);

// These functions divide an estimate of a job that computes on a device with memory of its own, by
// where its parts lie. The parts that lie elsewhere are 0.

/// Returns what lies on the device: all tensors, with those of context parallelism as
/// `communication`.
planner::MemoryEstimate on_device(const planner::MemoryEstimate& estimate);
/// Returns what lies on the host: the process, and as `communication` an upper estimate of what
/// collectives stage in pinned memory, which is not what they stage on a CPU.
planner::MemoryEstimate beside_device(const planner::MemoryEstimate& estimate);

}  // namespace meshloom::plan
