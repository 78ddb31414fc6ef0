// SPDX-License-Identifier: Apache-2.0
// Search: the best mesh and plan for a model, a number of ranks and a memory limit.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "planner/estimate/estimate.h"

namespace meshloom::planner {

struct SearchRequest {
  std::int64_t ranks = 1;
  std::int64_t memory_limit = 0;  ///< bytes of a rank; 0: the machine's, none if that is 0 too
  std::int64_t global_batch = 1;
  std::int64_t sequence = 1;
  std::int64_t micro_batch = 0;  ///< 0: chosen by the search
  DType dtype = DType::kFloat32;
  OptimizerState optimizer = OptimizerState::kAdam;
  /// If given, the only one tried.
  std::optional<ActivationCheckpoint> checkpointing{};
  int max_tensor_parallel = 0;  ///< 0: as many as there are heads
  StylePlan styles = {};        ///< if given, tried on tp besides the default ones
  /// Called before each plan that is tried, with how many were: what it throws ends the search.
  std::function<void(std::int64_t plans_tried)> before_plan = {};
};

/// Candidate is the best plan of a mesh that fits.
struct Candidate {
  Estimate estimate;
};

/// Rejected is a mesh of which no plan fits.
struct Rejected {
  MeshSizes mesh;
  std::string reason;
  std::int64_t least_memory = 0;  ///< of any of its plans; 0 if none could be tried
};

struct SearchResult {
  std::vector<Candidate> candidates;  ///< fastest first
  std::vector<Rejected> rejected;     ///< those that come nearest to the limit first
  std::int64_t plans_tried = 0;
};

/// Tries every factorization of `ranks` into dp, fsdp, cp and tp, uneven shardings included (cp
/// where a rank keeps 1024 tokens of a sample), with sequence parallelism, own styles, activation
/// checkpoints, resharding and micro batches. Ranks among equals by bytes sent, then by memory.
/// Deterministic. Throws InvalidArgument for a request that makes no sense.
SearchResult search_plans(ModelGraphs& model, const SearchRequest& request, const Machine& machine);

}  // namespace meshloom::planner
