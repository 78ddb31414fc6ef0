// SPDX-License-Identifier: Apache-2.0
// HierarchicalContext: what the collectives of one group over several hosts share.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "daemon/comm/collectives/context.h"
#include "daemon/comm/flight/algorithms.h"
#include "daemon/comm/hierarchy/hierarchy_table.h"
#include "daemon/comm/hierarchy/host_layout.h"

namespace meshloom::comm {

/// There is one per rank and group, used by the rank's training thread.
///
/// A collective takes all numbers of its local steps and all tags of its exchanges when it begins,
/// which every rank does in the same order; when a step starts is then each rank's own matter.
class HierarchicalContext {
 public:
  /// `local` is among the ranks of this host, in rank order.
  HierarchicalContext(std::shared_ptr<Transport> transport, std::unique_ptr<Algorithms> local,
                      HostLayout layout, Threads threads, HierarchyChoice choice)
      : transport_(std::move(transport)),
        local_(std::move(local)),
        layout_(std::move(layout)),
        threads_(threads),
        choice_(choice) {}

  /// Returns the transport among all ranks of the group.
  Transport& transport() { return *transport_; }
  Algorithms& local() { return *local_; }
  const Algorithms& local() const { return *local_; }
  const HostLayout& layout() const { return layout_; }
  Threads threads() const { return threads_; }
  ScratchPool& scratch() { return scratch_; }
  HierarchyChoice choice() const { return choice_; }

  /// Returns the first of `count` numbers of steps on this host, and of tags.
  std::uint64_t take_numbers(std::uint64_t count) {
    return std::exchange(numbers_, numbers_ + count);
  }
  std::uint64_t take_tags(std::uint64_t count) { return std::exchange(tags_, tags_ + count); }

  /// Everything begins anew, with no collective left on any rank.
  void renew() {
    numbers_ = tags_ = 0;
    local_->renew();
  }

 private:
  std::shared_ptr<Transport> transport_;
  std::unique_ptr<Algorithms> local_;
  HostLayout layout_;
  Threads threads_;
  HierarchyChoice choice_;
  ScratchPool scratch_;
  std::uint64_t numbers_ = 0, tags_ = 0;
};

}  // namespace meshloom::comm
