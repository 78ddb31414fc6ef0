// SPDX-License-Identifier: Apache-2.0
// Reductions over several hosts: the ranks of a host reduce first, then what the hosts have is
// reduced in the order of the hosts.
//
// Every element's result is that of reducing the contributions of each host in rank order, and
// those partial results in the order of the hosts, whatever way the data takes: all ranks get the
// same bits. Partial results of bfloat16 and float16 are float32, also on the wire, and what comes
// out is rounded once.
#pragma once

#include <memory>
#include <vector>

#include "daemon/comm/hierarchy/hierarchical_collective.h"

namespace meshloom::comm {

/// It goes stripe by stripe: member c of every host holds stripe c. Inside a host stripes are
/// reduced to their holders; the holders of a stripe, one on each host, reduce it together; then
/// every holder gives its stripe to its host. Leaders alone: there is one stripe, and its holders
/// send it to each other whole.
class HierarchicalAllReduce final : public HierarchicalCollective {
 public:
  HierarchicalAllReduce(HierarchicalContext& context, const Call& call);

 private:
  struct Slice;

  HierarchicalAllReduce(HierarchicalContext& context, const Call& call, HierarchyWay way);
  CollectivePtr slice(std::size_t index) override;
  CollectivePtr exchange_partials(Slice& slice);
  CollectivePtr exchange_results(const Slice& slice);
  CollectivePtr gather_in_host(const Slice& slice);
  /// Returns the part of a stripe that its holder on `host` reduces.
  TensorView share_of(const TensorView& stripe, int host) const;
  /// Returns the holder on `host` of what this rank holds.
  int holder(int host) const {
    return layout().members(host)[static_cast<std::size_t>(layout().local_rank())];
  }
  bool holds() const { return layout().local_rank() < stripes_; }

  TensorView data_;
  DType partial_dtype_;
  HierarchyWay way_;
  int stripes_;
};

/// Each host reduces the part of every rank; the member that handles a rank of another host sends
/// it what its own host has for it.
class HierarchicalReduceScatter final : public HierarchicalCollective {
 public:
  HierarchicalReduceScatter(HierarchicalContext& context, const Call& call);

 private:
  struct Slice;

  CollectivePtr slice(std::size_t index) override;
  /// Each member of this host gets the host's partial result of the part that it handles in this
  /// place.
  CollectivePtr round(const Slice& slice, int round);
  CollectivePtr exchange_partials(Slice& slice);
  TensorView part(int rank, std::size_t index) const {
    return slice_of(inputs_[static_cast<std::size_t>(rank)], index);
  }

  std::vector<TensorView> inputs_;  ///< by rank of the group
  TensorView output_;
  DType partial_dtype_;
};

}  // namespace meshloom::comm
