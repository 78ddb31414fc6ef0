// SPDX-License-Identifier: Apache-2.0
// ByteBound: what the rest of a plan by bytes costs at least.
#pragma once

#include <array>
#include <utility>
#include <vector>

#include "planner/redistribute/cost.h"
#include "planner/redistribute/search_space.h"

namespace meshloom::planner {

/// ByteBound is the exact cost of a coarser problem (a pattern database: Culberson, Schaeffer,
/// 1998). Of every mesh dim it knows only a class: replicated, as the goal has it, another shard,
/// or another Partial. Shards are as large as if all shardings were even, and collectives merge
/// wherever mesh dims hold the same kind. A move is at least as dear as one between these classes,
/// and none gets nearer to the goal for nothing, so the bound is consistent.
class ByteBound {
 public:
  ByteBound(const SearchSpace& space, const StepCost& cost);

  double operator()(const LayoutState& state) const { return bounds_[class_of(state)]; }
  /// Returns the bound of the best layout that also shards by the mesh dims in `left`, which
  /// `state` replicates.
  double with_shards(const LayoutState& state, unsigned left) const;

 private:
  // There are two bits of a class for each mesh dim. kAtGoal: the goal's Partial, or the goal's
  // shard behind the same shardings as there.
  enum Code : unsigned { kReplicated = 0, kAtGoal = 1, kShard = 2, kPartial = 3 };

  /// Masks is a class as masks of mesh dims.
  struct Masks {
    unsigned replicated = 0, at_goal = 0, shards = 0;
    unsigned movable = 0;  ///< shards that a move may have put there as the last shardings
  };

  unsigned class_of(const LayoutState& state) const;
  Masks masks_of(unsigned code) const;
  unsigned partials(unsigned mask) const;  ///< these mesh dims as Partials

  void solve();
  /// Computes the bounds of the classes from which a move leads to `code`.
  void before_gathers(unsigned code, const Masks& masks);
  void before_reductions(unsigned code, const Masks& masks, unsigned kind);
  void before_exchanges(unsigned code, const Masks& masks);
  void before_local_steps(unsigned code, const Masks& masks);
  void relax(unsigned code, double cost);

  const SearchSpace& space_;
  const StepCost& cost_;
  unsigned goal_shards_ = 0, goal_partials_ = 0;  ///< masks of mesh dims
  std::array<unsigned, kMaxSearchDims>
      outer_{};                      ///< the goal's shardings outside that of a mesh dim
  std::array<unsigned, 3> kinds_{};  ///< mesh dims whose Partials reduce together
  std::vector<double> elements_;     ///< of a shard, by mask of mesh dims
  std::vector<std::pair<double, double>> exchange_;  ///< once and per element, by mask
  std::vector<double> bounds_;                       ///< by class
  std::vector<std::pair<double, unsigned>> queue_;
};

}  // namespace meshloom::planner
