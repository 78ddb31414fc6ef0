// SPDX-License-Identifier: Apache-2.0
// Which collectives a step runs and what they send.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/estimate/collective_bytes.h"
#include "planner/estimate/local_model.h"

namespace meshloom::planner {

/// TrafficPhase says when in a step, which decides what it can hide behind.
enum class TrafficPhase { kForward, kBackward, kGradients };

/// Traffic stands for equal collectives of one use.
struct Traffic {
  std::string mesh_dim{};  ///< "dp", "fsdp", "cp", "tp", or several as one group: "dp+fsdp"
  CollectiveKind kind = CollectiveKind::kAllReduce;
  TrafficPhase phase = TrafficPhase::kForward;
  std::string what{};           ///< "attention output"
  std::int64_t calls = 0;       ///< of one optimizer step
  std::int64_t data_bytes = 0;  ///< of the whole tensor of one call, on average
  std::int64_t bytes_sent = 0;  ///< by the rank that sends most, in all calls together
  /// If true, nothing waits for it at once: it can travel while the rank computes.
  bool can_overlap = false;
  /// Every `stride`-th rank of the mesh dim takes part, `size` of them; size 0: all ranks do.
  int stride = 1, size = 0;
};

/// Returns all collectives of an optimizer step that carry tensors; the few scalars of a step are
/// left out.
std::vector<Traffic> step_traffic(const LocalModel& local);
/// Returns the bytes that a rank sends in a step.
std::int64_t total_bytes_sent(const std::vector<Traffic>& traffic);

}  // namespace meshloom::planner
