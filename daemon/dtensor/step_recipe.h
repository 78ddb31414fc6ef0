// SPDX-License-Identifier: Apache-2.0
// StepRecipe: what one rank does in one step of a redistribution plan, worked out once, and
// StepCache, which keeps the recipes of the plans that a rank has run.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "daemon/dtensor/boxes.h"
#include "daemon/dtensor/device_mesh.h"
#include "planner/redistribute/exchange.h"

namespace meshloom::dtensor {

/// This rank sends a message to one member of the step's group, or gets it from there.
struct Message {
  Boxes boxes;
  Shape shape;               ///< of the memory it travels in
  std::int64_t numel = 0;    ///< elements of shape
  std::int64_t direct = -1;  ///< if it is one piece of the local tensor: its first element
};

/// Which fields mean something depends on the kind. Works for any layout of the ranks, since all
/// of it follows from the local parts: uneven, nested, reordered, with dim orders or empty.
struct StepRecipe {
  planner::StepKind kind = planner::StepKind::kSlice;
  planner::SpecPtr from, to;
  bool nothing = false;  ///< a group of one rank: the local tensor stays as it is
  comm::ProcessGroup* group = nullptr;
  Shape in_shape, out_shape;

  /// By member. all_gather: receives are whole local tensors; reduce_scatter: sends are laid out as
  /// the receiver's local tensor; all_to_all and send_recv: blocks one after the other.
  std::vector<Message> sends, receives;
  /// These boxes stay on this rank: slice, all_to_all, send_recv, S -> P.
  Boxes own;
  comm::ReduceOp reduce = comm::ReduceOp::kSum;
  double scale = 1.0;       ///< of what was reduced or converted
  bool holds_value = true;  ///< R -> P(sum): this rank keeps the value, others hold zeros
  std::int64_t staged_in = 0, staged_out = 0;  ///< elements that need memory of their own

  /// Filled in anew at every run.
  std::vector<TensorView> send_views, receive_views;
};

/// Collective if the step's group is used for the first time. Throws InternalError for a step
/// that no planner makes (a Partial source in an all_to_all).
StepRecipe make_recipe(const planner::RedistributeStep& step, DeviceMesh& mesh);
/// Makes a step of direct messages from one mesh to another, called by all ranks of `group`, which
/// are these members of the meshes. A rank outside a mesh holds a tensor of shape [0] there.
StepRecipe make_crossing_recipe(const planner::RedistributeStep& step, comm::ProcessGroup& group,
                                const planner::StepMembers& members);

using Recipes = std::vector<StepRecipe>;

/// It finds recipes by the plan's address, checked against what it says, since plans may go and
/// others take their place. Forgets all if it grows beyond kMostPlans (shapes that never come
/// again).
class StepCache {
 public:
  /// Returns the recipes, which are held by runs in flight beyond the cache.
  const std::shared_ptr<Recipes>& recipes(const planner::RedistributePlan& plan, DeviceMesh& mesh);

 private:
  static constexpr std::size_t kMostPlans = 4096;

  std::unordered_map<const planner::RedistributePlan*, std::shared_ptr<Recipes>> plans_;
};

}  // namespace meshloom::dtensor
