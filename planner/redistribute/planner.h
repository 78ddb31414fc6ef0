// SPDX-License-Identifier: Apache-2.0
// Finds plans of redistribution and keeps them.
#pragma once

#include <cstdint>
#include <memory>

#include "planner/redistribute/plan.h"
#include "planner/redistribute/topology.h"

namespace meshloom::planner {

enum class PlannerKind : std::uint8_t { kGreedy, kMinCost };
enum class CostModel : std::uint8_t { kUnit, kBytes };

struct RedistributeOptions {
  PlannerKind planner = PlannerKind::kMinCost;
  /// kUnit: all_to_all 1, all_gather 2, reduce_scatter 2, all_reduce 4, local 0, over the one-step
  /// transitions of PyTorch alone. kBytes: seconds on `topology`, over every move there is.
  CostModel cost_model = CostModel::kBytes;
  int element_size = 4;
  /// A null topology stands for the built-in one.
  std::shared_ptr<const Topology> topology;
};

/// Throws InvalidArgument whose text holds "partial" for a change into Partial that is not legal
/// (DESIGN: S or R to P(sum) alone, P changes between sum and avg alone), and for layouts of
/// different shapes or (greedy, kUnit) different meshes.
PlanPtr plan_redistribute(const SpecPtr& from, const SpecPtr& to,
                          const RedistributeOptions& options = {});

/// PlanCache keeps plans by (from, to) for one set of options. Used by one thread. A hit costs a
/// hash of two pointers: specs that come again should be the same objects; equal ones are found
/// too, by value. Plans that were not asked for during the last few thousand new ones are
/// forgotten, so a reference is for use at once.
class PlanCache {
 public:
  explicit PlanCache(RedistributeOptions options = {});
  ~PlanCache();
  const RedistributePlan& plan(const SpecPtr& from, const SpecPtr& to);
  const RedistributeOptions& options() const { return options_; }
  std::size_t size() const;

 private:
  struct Impl;
  RedistributeOptions options_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace meshloom::planner
