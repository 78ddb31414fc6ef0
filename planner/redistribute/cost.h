// SPDX-License-Identifier: Apache-2.0
// What one step costs: in PyTorch's unit costs, or in seconds on a described topology.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "planner/redistribute/planner.h"
#include "planner/redistribute/search_space.h"

namespace meshloom::planner {

/// all_to_all 1, all_gather 2, reduce_scatter 2, all_reduce 4, local 0.
double unit_cost(StepKind kind);

/// The ranks of a collective as the topology sees them.
struct GroupLinks {
  double ranks = 1.0;
  double near = 0.0;  ///< peers on the same host
  double far = 0.0;   ///< and elsewhere
};

/// Seconds by latency, bytes on each link and local copies. Every rank sends its part to each of
/// its peers directly; the largest shard sets the pace, which is what padding costs.
class StepCost {
 public:
  StepCost(const SearchSpace& space, const RedistributeOptions& options);

  /// Of a step from `state`, whose largest local tensor has `elements`.
  double seconds(const LayoutState& state, double elements, const Move& move) const;
  /// Sent by the busiest rank.
  std::int64_t bytes(const LayoutState& state, double elements, const Move& move) const;
  double seconds(const LayoutState& state, const Move& move) const {
    return seconds(state, space_.local_elements(state), move);
  }

  /// A collective costs at least this much,
  double least_latency() const { return least_latency_; }
  /// and every element that a rank does not hold so far at least this much.
  double least_element_seconds() const { return least_element_seconds_; }

  const GroupLinks& links(unsigned dim_mask) const { return links_[dim_mask]; }
  /// Seconds to exchange `bytes` a rank with all peers of a group.
  double exchange_seconds(const GroupLinks&, double bytes, double rounds = 1.0) const;
  double copy_seconds(double bytes) const { return bytes / topology_.copy_bytes_per_second; }

 private:
  struct Volume {
    double sent = 0.0;    ///< elements to peers
    double copied = 0.0;  ///< elements read or written locally
  };
  Volume volume(const LayoutState& state, double elements, const Move& move) const;
  /// True where shards of `tensor_dim` lie one after the other in memory.
  bool outermost(const LayoutState& state, int tensor_dim) const;

  const SearchSpace& space_;
  Topology topology_;
  double element_size_ = 4.0;
  double least_latency_ = 0.0;
  double least_element_seconds_ = 0.0;
  std::vector<GroupLinks> links_;  ///< by mask of mesh dims
};

}  // namespace meshloom::planner
