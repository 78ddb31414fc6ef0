// SPDX-License-Identifier: Apache-2.0
// What one step costs: in PyTorch's unit costs, or in seconds on a described topology.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "planner/redistribute/planner.h"
#include "planner/redistribute/search_space.h"

namespace meshloom::planner {

/// Returns all_to_all 1, all_gather 2, reduce_scatter 2, all_reduce 4, local 0.
double unit_cost(StepKind kind);

/// GroupLinks counts the ranks of a collective as the topology sees them.
struct GroupLinks {
  double ranks = 1.0;
  double near = 0.0;  ///< peers on the same host
  double far = 0.0;   ///< and elsewhere
};

/// StepCost counts seconds by latency, bytes on each link and local copies. Every rank sends its
/// part to each of its peers directly; the largest shard sets the pace, which is what padding
/// costs.
class StepCost {
 public:
  StepCost(const SearchSpace& space, const RedistributeOptions& options);

  /// Returns the seconds of a step from `state` to `next`, whose largest local tensors have
  /// `elements` and `result` elements.
  double seconds(StepKind kind, const DimList& dims, const LayoutState& state, double elements,
                 const LayoutState& next, double result) const;
  double seconds(const LayoutState& state, const Move& move) const {
    return seconds(move.kind, move.dims, state, space_.local_elements(state), move.next,
                   space_.local_elements(move.next));
  }
  /// Returns the bytes sent by the busiest rank.
  std::int64_t bytes(const LayoutState& state, const Move& move) const;

  /// An all_to_all over a group costs a constant, and so much per element of the larger one of what
  /// ranks hold before and after, and of each of the two.
  struct Exchange {
    double larger = 0.0, each = 0.0;
  };
  Exchange exchange(unsigned dim_mask) const {
    return {rates_[dim_mask].sent * (1.0 - 1.0 / links_[dim_mask].ranks), copied_};
  }

  /// Returns what a step costs at least over the group of `dim_mask`, whatever the layouts are.
  double least_seconds(StepKind kind, unsigned dim_mask, double elements, double result) const {
    return seconds(kind, dim_mask, elements, result, true);
  }
  double ranks(unsigned dim_mask) const { return links_[dim_mask].ranks; }

 private:
  struct Volume {
    double sent = 0.0;    ///< elements to peers
    double copied = 0.0;  ///< elements read or written locally
  };
  static Volume volume(StepKind kind, double ranks, double elements, double result, bool in_place);
  double seconds(StepKind kind, unsigned dim_mask, double elements, double result,
                 bool in_place) const;
  /// Returns true if shards of `tensor_dim` lie one after the other in memory.
  bool outermost(const LayoutState& state, int tensor_dim) const;

  const SearchSpace& space_;
  Topology topology_;
  double element_size_ = 4.0;
  /// Rate counts seconds of a collective over a group: once, once per round, and per element sent.
  struct Rate {
    double once = 0.0, round = 0.0, sent = 0.0;
  };

  double copied_ = 0.0;            ///< seconds per element that is copied
  std::vector<GroupLinks> links_;  ///< by mask of mesh dims
  std::vector<Rate> rates_;        ///< likewise
};

}  // namespace meshloom::planner
