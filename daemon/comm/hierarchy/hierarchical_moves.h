// SPDX-License-Identifier: Apache-2.0
// Collectives over several hosts that only move bytes.
#pragma once

#include <vector>

#include "daemon/comm/hierarchy/hierarchical_collective.h"

namespace meshloom::comm {

/// Every rank sends its part once to each other host, to the member that handles it there, which
/// gives it to the others of its host. The ranks of a host give each other their own parts
/// meanwhile.
class HierarchicalAllGather final : public HierarchicalCollective {
 public:
  HierarchicalAllGather(HierarchicalContext& context, const Call& call);

 private:
  CollectivePtr slice(std::size_t index) override;
  /// Each member of this host gives the others what it handles in this place.
  CollectivePtr round(std::size_t index, int round);
  CollectivePtr send_between_hosts(std::size_t index);

  std::vector<TensorView> outputs_;  ///< by rank of the group
  TensorView input_;
};

/// It goes down a binomial tree of hosts. By leaders: from the root to the leaders of the other
/// hosts, and from each of these to its host. Striped: the root's host gets all first; member c of
/// every host then passes stripe c on to member c of the next hosts, and the members of a host give
/// each other their stripes.
class HierarchicalBroadcast final : public HierarchicalCollective {
 public:
  HierarchicalBroadcast(HierarchicalContext& context, const Call& call);

 private:
  HierarchicalBroadcast(HierarchicalContext& context, const Call& call, HierarchyWay way);
  static int local_steps(const HierarchicalContext& context, const Call& call, HierarchyWay way);
  CollectivePtr slice(std::size_t index) override;
  CollectivePtr leaders_slice(std::size_t index);
  CollectivePtr striped_slice(std::size_t index);
  CollectivePtr send_on(std::size_t index, const TensorView& part);
  bool holds() const { return layout().local_rank() < stripes_; }
  int root_host() const { return layout().host_of(signature().root); }
  /// Returns the rank of a host that has this rank's part of the data first.
  int first_of(int host) const {
    if (way_ == HierarchyWay::kStriped)
      return layout().members(host)[static_cast<std::size_t>(layout().local_rank())];
    return host == root_host() ? signature().root : layout().leader(host);
  }
  Behind root_alone() const {
    return [this](int) { return std::vector<int>{signature().root}; };
  }

  TensorView data_;
  HierarchyWay way_;
  int stripes_;
  int parent_ = -1;  ///< a rank; -1: this one hears from its host alone, or is the root
  std::vector<int> children_;
};

/// The ranks of a host meet, their leaders meet, and the ranks of a host hear of it.
class HierarchicalBarrier final : public HierarchicalCollective {
 public:
  HierarchicalBarrier(HierarchicalContext& context, const Call& call)
      : HierarchicalCollective(context, call, {}, {.local = 2, .exchanges = 1}) {}

 private:
  CollectivePtr slice(std::size_t index) override;
};

/// The data that every two ranks have for each other goes directly: all_to_all, send_recv, gather,
/// scatter.
class HierarchicalExchange final : public HierarchicalCollective {
 public:
  HierarchicalExchange(HierarchicalContext& context, const Call& call);

 private:
  CollectivePtr slice(std::size_t index) override;
  CollectivePtr within_host();
  /// Returns, of the views of all ranks, those of this host's ranks; none if `all` is empty.
  std::vector<TensorView> of_own_members(const std::vector<TensorView>& all) const;

  std::vector<TensorView> outputs_, inputs_;  ///< as the call has them
};

}  // namespace meshloom::comm
