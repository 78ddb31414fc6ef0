// SPDX-License-Identifier: Apache-2.0
// Every move that a plan by bytes may take. PyTorch's planner moves a mesh dim at a time; here
// collectives are merged on flattened mesh dims too, and shards are exchanged directly.
#pragma once

#include "planner/redistribute/search_space.h"
#include "planner/redistribute/transitions.h"

namespace meshloom::planner {

/// The moves from a layout:
/// - slice of a replicated mesh dim, as the last sharding of any tensor dim;
/// - all_reduce over any mesh dims of one Partial op (sum and avg count as one);
/// - reduce_scatter of such onto one tensor dim, as its last shardings in any order;
/// - all_gather of the last shardings of one tensor dim, one or more;
/// - all_to_all: the last shardings of any tensor dims, any number of each, come off, and the mesh
/// dims
///   that held them shard any tensor dims behind what stayed, in any order;
/// - into Partial, and between sum and avg, if the goal asks for it.
/// First shardings follow the ceil rule or the dim order that an end has there. Within the group of
/// a move every element is held once before, and once after.
///
/// `Visitor` offers
/// - move(kind, dims, next), dims in the order in which their group is flattened;
/// - bool exchange(base, mask): whether to visit the all_to_alls of the mesh dims in `mask`, which
///   are replicated in `base` and hold shards before;
/// - bool promises(state, left): of these, whether to visit those where the mesh dims in `left`
///   shard behind what `state` shards.
template <typename Visitor>
class SearchMoves {
 public:
  SearchMoves(const SearchSpace& space, Visitor& visitor) : space_(space), visitor_(visitor) {}

  void visit(const LayoutState& from) {
    state_ = from;
    for (int m = 0; m < space_.dims(); ++m) {
      if (hold(m) == kHoldReplicate) slice(m);
      if (is_partial_code(space_.goal().hold[static_cast<std::size_t>(m)])) into_partial(m);
    }
    reductions(partial_mask(PartialOp::kSum) | partial_mask(PartialOp::kAvg));
    reductions(partial_mask(PartialOp::kMax));
    reductions(partial_mask(PartialOp::kMin));
    for (int d = 0; d < space_.shape().size(); ++d) gathers(d);
    exchanges(0, 0);
  }

 private:
  HoldCode hold(int mesh_dim) const { return state_.hold[static_cast<std::size_t>(mesh_dim)]; }
  int shards(int tensor_dim) const { return state_.shards[static_cast<std::size_t>(tensor_dim)]; }

  unsigned partial_mask(PartialOp op) const {
    unsigned mask = 0;
    for (int m = 0; m < space_.dims(); ++m)
      if (hold(m) == hold_partial(op)) mask |= 1U << m;
    return mask;
  }

  static DimList ascending(unsigned mask) {
    DimList dims;
    for (int m = 0; mask >> m != 0; ++m)
      if ((mask >> m & 1U) != 0) dims.push_back(m);
    return dims;
  }

  /// Calls `then` with each way in which `mesh_dim` may shard `tensor_dim`.
  template <typename Then>
  void sharding(int mesh_dim, int tensor_dim, const Then& then) {
    for (const DimOrderChoice order :
         {DimOrderChoice::kPlain, DimOrderChoice::kFrom, DimOrderChoice::kTo}) {
      if (order != DimOrderChoice::kPlain && (!space_.has_dim_orders() || shards(tensor_dim) > 0 ||
                                              !space_.offers(state_, mesh_dim, tensor_dim, order)))
        continue;
      state_.push_shard(mesh_dim, tensor_dim, order);
      then();
      state_.pop_shard(mesh_dim);
    }
  }

  void slice(int m) {
    for (int d = 0; d < space_.shape().size(); ++d)
      sharding(m, d, [&] { visitor_.move(StepKind::kSlice, DimList(m), state_); });
  }

  void into_partial(int m) {
    const HoldCode code = hold(m), wanted = space_.goal().hold[static_cast<std::size_t>(m)];
    const std::optional<StepKind> kind = step_between(code, wanted);
    if (code == wanted || !kind || (is_shard_code(code) && !state_.is_last_sharding_dim(m))) return;
    const LayoutState before = state_;
    if (is_shard_code(code)) state_.pop_shard(m);
    state_.set_hold(m, wanted);
    visitor_.move(*kind, DimList(m), state_);
    state_ = before;
  }

  void reductions(unsigned all) {
    const LayoutState before = state_;
    for (unsigned mask = all; mask != 0; mask = (mask - 1) & all) {
      for (const int m : ascending(mask)) state_.set_hold(m, kHoldReplicate);
      visitor_.move(StepKind::kAllReduce, ascending(mask), state_);
      for (int d = 0; d < space_.shape().size(); ++d) scatter(mask, d, {});
      state_ = before;
    }
  }

  /// The mesh dims of `left` shard `tensor_dim` behind those of `done`.
  void scatter(unsigned left, int tensor_dim, const DimList& done) {
    if (left == 0) return visitor_.move(StepKind::kReduceScatter, done, state_);
    for (const int m : ascending(left)) {
      DimList dims = done;
      dims.push_back(m);
      sharding(m, tensor_dim, [&] { scatter(left & ~(1U << m), tensor_dim, dims); });
    }
  }

  void gathers(int tensor_dim) {
    if (shards(tensor_dim) == 0) return;
    const LayoutState before = state_;
    const auto& sharding_dim = before.sharding_dim[static_cast<std::size_t>(tensor_dim)];
    const int all = shards(tensor_dim);
    for (int first = all - 1; first >= 0; --first) {
      state_.pop_shard(state_.last_sharding_dim(tensor_dim));
      DimList dims;
      for (int c = first; c < all; ++c) dims.push_back(sharding_dim[static_cast<std::size_t>(c)]);
      visitor_.move(StepKind::kAllGather, dims, state_);
    }
    state_ = before;
  }

  /// Takes 0, 1, ... shardings off `tensor_dim` and goes on with the next one.
  void exchanges(unsigned mask, int tensor_dim) {
    if (tensor_dim == space_.shape().size()) {
      if (mask != 0 && visitor_.exchange(state_, mask)) place(mask, 0, ascending(mask));
      return;
    }
    exchanges(mask, tensor_dim + 1);
    if (shards(tensor_dim) == 0) return;
    const LayoutState before = state_;
    while (shards(tensor_dim) > 0) {
      const int m = state_.last_sharding_dim(tensor_dim);
      state_.pop_shard(m);
      mask |= 1U << m;
      exchanges(mask, tensor_dim + 1);
    }
    state_ = before;
  }

  /// The mesh dims of `left` shard `tensor_dim` and those behind it.
  void place(unsigned left, int tensor_dim, const DimList& dims) {
    if (left == 0) return visitor_.move(StepKind::kAllToAll, dims, state_);
    if (!visitor_.promises(state_, left)) return;
    for (int d = tensor_dim; d < space_.shape().size(); ++d) {
      for (const int m : ascending(left))
        sharding(m, d, [&] { place(left & ~(1U << m), d, dims); });
    }
  }

  const SearchSpace& space_;
  Visitor& visitor_;
  LayoutState state_;
};

}  // namespace meshloom::planner
