// SPDX-License-Identifier: Apache-2.0
// Redistribution of local tensors: at once, or in flight. Tensors with a layout: api/.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "daemon/dtensor/device_mesh.h"
#include "daemon/dtensor/redistribute_specs.h"
#include "daemon/dtensor/step_run.h"
#include "daemon/tensor/tensor.h"
#include "planner/redistribute/planner.h"

namespace meshloom::dtensor {

/// Redistribution needs this of a rank and mesh.
struct MeshContext {
  DeviceMesh& mesh;
  planner::PlanCache& plans;
};

/// RedistributeMeshes is the mesh of a redistribution, or the two between which it goes. All
/// outlive the graph.
struct RedistributeMeshes {
  RedistributeMeshes(const MeshContext& context)  // NOLINT: one mesh stands for both
      : from(&context.mesh), to(&context.mesh), plans(&context.plans) {}
  RedistributeMeshes(DeviceMesh& from_mesh, DeviceMesh& to_mesh, planner::PlanCache& cache)
      : from(&from_mesh), to(&to_mesh), plans(&cache) {}

  bool differ() const { return from != to; }

  DeviceMesh* from;
  DeviceMesh* to;
  planner::PlanCache* plans;
};

struct RedistributeDtypes {
  /// Values are cast to it before communication; the result keeps it.
  std::optional<DType> forward = std::nullopt;
  /// The gradient is cast to it before communication, and back after.
  std::optional<DType> backward = std::nullopt;
};

/// RedistributeWork is a redistribution whose first collective is in flight. Later steps of its
/// plan run in wait(). Dropped before wait() it poisons its group, as any Work does. Backward is
/// not asynchronous.
class RedistributeWork {
 public:
  /// `local` is this rank's local tensor in layout specs.from, on the first mesh. Every rank of the
  /// mesh makes one. Partial sums are added in float32 in rank order. In backward all transitions
  /// are legal, and also R -> P(sum) and S -> P(sum).
  ///
  /// From one mesh to another (other shapes, sub-meshes, disjoint ranks: recipes_across says which,
  /// and who calls), `local` is of shape [0], or a zero of shape [], on a rank outside the first
  /// mesh, and has the dtype that the others have; the result is so on one outside the second. Then
  /// `local` requires a gradient on all ranks or on none. Not for hot paths: what the ranks
  /// exchange is worked out anew each time.
  ///
  /// Throws InvalidArgument, on all ranks before any collective, for what the planner refuses, for
  /// a P(avg) that changes while the dtype is not floating, and for dtypes that are not floating if
  /// a gradient is recorded.
  RedistributeWork(const Tensor& local, RedistributeSpecs specs, const RedistributeMeshes& meshes,
                   const RedistributeDtypes& dtypes = {});

  /// Moves data; true if wait() will not wait for the first collective.
  bool poll() { return !first_ || first_->poll(); }
  /// This rank's local tensor in layout specs.to, which is `local` itself if nothing is to be done.
  /// A gradient is recorded if it was to be when this was made. Called once, by all ranks in the
  /// same order relative to other collectives if the plan has several steps.
  Tensor wait();

 private:
  Tensor local_, value_;
  RedistributeSpecs specs_;
  RedistributeMeshes meshes_;
  RedistributeDtypes dtypes_;
  bool records_ = false;
  bool done_ = false;
  std::shared_ptr<Recipes> recipes_;  ///< null if there is nothing to do
  std::optional<StepRun> first_;
};

/// Redistributes a local tensor and waits for it at once.
inline Tensor redistribute_local(const Tensor& local, RedistributeSpecs specs,
                                 const RedistributeMeshes& meshes,
                                 const RedistributeDtypes& dtypes = {}) {
  const bool stays = specs.from == specs.to && specs.grad_of_to == specs.grad_of_from;
  if (stays && !meshes.differ() && !dtypes.forward && !dtypes.backward) return local;
  return RedistributeWork(local, std::move(specs), meshes, dtypes).wait();
}

}  // namespace meshloom::dtensor
