// SPDX-License-Identifier: Apache-2.0
// Another layout of the same tensor, asked for explicitly.
#pragma once

#include "daemon/dtensor/distributed_engine.h"

namespace meshloom::dtensor {

/// x in another layout on its mesh, x itself where it has that layout; every rank of the mesh calls
/// it. The gradient goes back to x's layout, Partial replaced by Replicate. Into Partial lead S and
/// R to P(sum), P(sum) and P(avg) to each other, and every P to itself. All else throws
/// InvalidArgument on all ranks before any collective, and the group serves on.
Tensor redistribute(const Tensor& x, const planner::Placements& placements,
                    const RedistributeDtypes& dtypes = {});
Tensor redistribute(const Tensor& x, const planner::SpecPtr& to,
                    const RedistributeDtypes& dtypes = {});

/// x on another mesh (recipes_across says which, and who calls it; ranks outside a mesh hold an
/// empty part there). The gradient comes back to x's layout. On a sub-mesh x is replicated over the
/// mesh dims that the sub-mesh leaves out, and so is its gradient.
Tensor redistribute(const Tensor& x, DistributedEngine& target,
                    const planner::Placements& placements, const RedistributeDtypes& dtypes = {});
Tensor redistribute(const Tensor& x, DistributedEngine& target, const planner::SpecPtr& to,
                    const RedistributeDtypes& dtypes = {});

/// A tensor with a layout whose first collective is in flight.
class TensorWork {
 public:
  TensorWork(RedistributeWork work, planner::SpecPtr to, DistributedEngine& engine)
      : work_(std::move(work)), to_(std::move(to)), engine_(&engine) {}

  bool poll() { return work_.poll(); }
  /// Waits, runs what is left of the plan, and gives the tensor. Called once, before the tensor it
  /// came from goes.
  Tensor wait();

 private:
  RedistributeWork work_;
  planner::SpecPtr to_;
  DistributedEngine* engine_;
};

/// As redistribute; compute between this and wait(). An explicit handle rather than a tensor that
/// waits at its first use: what a collective in flight needs is then plain to see.
TensorWork start_redistribute(const Tensor& x, const planner::Placements& placements,
                              const RedistributeDtypes& dtypes = {});
TensorWork start_redistribute(const Tensor& x, const planner::SpecPtr& to,
                              const RedistributeDtypes& dtypes = {});
TensorWork start_redistribute(const Tensor& x, DistributedEngine& target,
                              const planner::Placements& placements,
                              const RedistributeDtypes& dtypes = {});
TensorWork start_redistribute(const Tensor& x, DistributedEngine& target,
                              const planner::SpecPtr& to, const RedistributeDtypes& dtypes = {});

}  // namespace meshloom::dtensor
