// SPDX-License-Identifier: Apache-2.0
// Another layout of the same tensor, asked for explicitly.
#pragma once

#include "daemon/dtensor/distributed_engine.h"

namespace meshloom::dtensor {

/// Returns x in another layout on its mesh, x itself if it has that layout; every rank of the mesh
/// calls it. The gradient of the result is held in `grad_of_result`, or if that is null in the
/// result's layout with Partial replaced by Replicate; it goes back to x's layout, Partial replaced
/// by Replicate. Into Partial lead S and R to P(sum), P(sum) and P(avg) to each other, and every P
/// to itself. All else throws InvalidArgument on all ranks before any collective, and the group
/// serves on.
Tensor redistribute(const Tensor& x, const planner::Placements& placements,
                    const RedistributeDtypes& dtypes = {});
Tensor redistribute(const Tensor& x, const planner::SpecPtr& to,
                    const RedistributeDtypes& dtypes = {},
                    const planner::SpecPtr& grad_of_result = nullptr);

/// Returns x on another mesh (recipes_across says which, and who calls it; ranks outside a mesh
/// hold an empty part there). The gradient comes back to x's layout. On a sub-mesh x is replicated
/// over the mesh dims that the sub-mesh leaves out, and so is its gradient.
Tensor redistribute(const Tensor& x, DistributedEngine& target,
                    const planner::Placements& placements, const RedistributeDtypes& dtypes = {});
Tensor redistribute(const Tensor& x, DistributedEngine& target, const planner::SpecPtr& to,
                    const RedistributeDtypes& dtypes = {});

/// TensorWork is a tensor with a layout whose first collective is in flight.
class TensorWork {
 public:
  TensorWork(RedistributeWork work, RedistributeSpecs specs, DistributedEngine& engine)
      : work_(std::move(work)), specs_(std::move(specs)), engine_(&engine) {}

  bool poll() { return work_.poll(); }
  /// Waits, runs what is left of the plan, and gives the tensor. Called once, before the tensor it
  /// came from goes.
  Tensor wait();

 private:
  RedistributeWork work_;
  RedistributeSpecs specs_;
  DistributedEngine* engine_;
};

/// Begins what redistribute does; compute between this and wait(). It returns an explicit handle
/// rather than a tensor that waits at its first use: what a collective in flight needs is then
/// plain to see.
TensorWork redistribute_async(const Tensor& x, const planner::Placements& placements,
                              const RedistributeDtypes& dtypes = {});
TensorWork redistribute_async(const Tensor& x, const planner::SpecPtr& to,
                              const RedistributeDtypes& dtypes = {});
TensorWork redistribute_async(const Tensor& x, DistributedEngine& target,
                              const planner::Placements& placements,
                              const RedistributeDtypes& dtypes = {});
TensorWork redistribute_async(const Tensor& x, DistributedEngine& target,
                              const planner::SpecPtr& to, const RedistributeDtypes& dtypes = {},
                              const planner::SpecPtr& grad_of_result = nullptr);

}  // namespace meshloom::dtensor
