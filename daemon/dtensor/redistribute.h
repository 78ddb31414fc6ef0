// SPDX-License-Identifier: Apache-2.0
// Runs redistribution plans on local tensors, with and without a gradient.
#pragma once

#include <memory>
#include <optional>

#include "daemon/dtensor/device_mesh.h"
#include "daemon/tensor/tensor.h"
#include "planner/redistribute/planner.h"

namespace meshloom::dtensor {

/// What redistribution needs of a rank and mesh.
struct MeshContext {
  DeviceMesh& mesh;
  planner::PlanCache& plans;
};

/// This rank's local tensor in the layout `to`; `local` itself (not a copy) where nothing is to be
/// done. No gradient is recorded. Every rank of the mesh calls it. Partial sums are added in
/// float32 in rank order.
Tensor redistribute_values(const Tensor& local, const planner::SpecPtr& from,
                           const planner::SpecPtr& to, const MeshContext& context);

struct RedistributeDtypes {
  /// Values are cast to it before communication; the result keeps it.
  std::optional<DType> forward = std::nullopt;
  /// The gradient is cast to it before communication, and back after.
  std::optional<DType> backward = std::nullopt;
};

/// The same with a gradient: backward takes the gradient of the result, held in `grad_of_to`, to
/// `grad_of_from`. Legal in backward are all transitions and also R -> P(sum) and S -> P(sum).
/// Throws InvalidArgument, before any collective, for dtypes that are not floating where a gradient
/// is recorded, as all redistribution does for a P(avg) that changes while the dtype is none.
Tensor redistribute_local(const Tensor& local, const planner::SpecPtr& from,
                          const planner::SpecPtr& to, const planner::SpecPtr& grad_of_to,
                          const planner::SpecPtr& grad_of_from, const MeshContext& context,
                          const RedistributeDtypes& dtypes = {});

/// From one mesh to another: other shapes, sub-meshes, disjoint ranks (recipes_across says which,
/// and who calls it). `local` is of shape [0], or a zero of shape [], on a rank outside `from_mesh`
/// (and has the dtype that the others have), the result on one outside `to_mesh`. A gradient is
/// recorded where `local` requires one, which it does on all ranks or on none; the result's is held
/// in `grad_of_to`, and it comes back in `grad_of_from`. Not for hot paths: what the ranks exchange
/// is worked out anew each time.
Tensor redistribute_across(const Tensor& local, const planner::SpecPtr& from, DeviceMesh& from_mesh,
                           const planner::SpecPtr& to, DeviceMesh& to_mesh,
                           const planner::SpecPtr& grad_of_to, const planner::SpecPtr& grad_of_from,
                           planner::PlanCache& plans, const RedistributeDtypes& dtypes = {});

/// A redistribution whose first collective is in flight. Later steps of its plan run in wait().
/// Dropped before wait() it poisons its group, as any Work does.
class RedistributeWork {
 public:
  struct Impl;
  explicit RedistributeWork(std::unique_ptr<Impl>);
  ~RedistributeWork();
  RedistributeWork(RedistributeWork&&) noexcept;
  RedistributeWork& operator=(RedistributeWork&&) noexcept;

  /// Moves data; true where wait() will not wait for the first collective.
  bool poll();
  /// The result; a gradient is recorded where it was to be when this was started. Called once, by
  /// all ranks in the same order relative to other collectives where the plan has several steps.
  Tensor wait();

 private:
  std::unique_ptr<Impl> impl_;
};

/// As redistribute_local, to be waited for by whoever uses it: compute in between. Backward is not
/// asynchronous.
RedistributeWork redistribute_async(const Tensor& local, const planner::SpecPtr& from,
                                    const planner::SpecPtr& to, const planner::SpecPtr& grad_of_to,
                                    const planner::SpecPtr& grad_of_from,
                                    const MeshContext& context,
                                    const RedistributeDtypes& dtypes = {});
/// As redistribute_across.
RedistributeWork redistribute_across_async(const Tensor& local, const planner::SpecPtr& from,
                                           DeviceMesh& from_mesh, const planner::SpecPtr& to,
                                           DeviceMesh& to_mesh, const planner::SpecPtr& grad_of_to,
                                           const planner::SpecPtr& grad_of_from,
                                           planner::PlanCache& plans,
                                           const RedistributeDtypes& dtypes = {});

}  // namespace meshloom::dtensor
