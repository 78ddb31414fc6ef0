// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/hierarchy/hierarchy_table.h"

#include "kernels/base/error.h"
#include "planner/communication_sizes.h"

namespace meshloom::comm {
namespace {

/// Up to so many bytes one rank of each host is enough.
struct Row {
  CollectiveKind kind;
  std::size_t leaders_bytes;
};

constexpr Row kRows[] = {
    // One message time between hosts instead of two.
    {CollectiveKind::kAllReduce, planner::kOneShotBytes},
    // A slice; below it the step inside the root's host comes before all messages.
    {CollectiveKind::kBroadcast, std::size_t{1} << 20},
};

}  // namespace

HierarchyOptions with_hosts(HierarchyOptions options, const std::vector<int>& found) {
  if (options.hosts.empty()) options.hosts = found;
  check(options.hosts.size() == found.size(), "hosts of {} ranks are given to a world of {}",
        options.hosts.size(), found.size());
  return options;
}

HierarchyWay choose_way(HierarchyChoice choice, CollectiveKind kind, std::size_t bytes,
                        const HostLayout& layout) {
  if (choice == HierarchyChoice::kLeaders) return HierarchyWay::kLeaders;
  if (choice == HierarchyChoice::kStriped) return HierarchyWay::kStriped;
  // One stripe is all of the data: of a broadcast always, of a reduction between two hosts striping
  // it saves nothing.
  if (layout.smallest_host() == 1 && (layout.hosts() == 2 || kind == CollectiveKind::kBroadcast))
    return HierarchyWay::kLeaders;
  for (const Row& row : kRows)
    if (row.kind == kind && bytes > row.leaders_bytes) return HierarchyWay::kStriped;
  return HierarchyWay::kLeaders;
}

int stripes_of(HierarchyWay way, const HostLayout& layout) {
  return way == HierarchyWay::kLeaders ? 1 : layout.smallest_host();
}

}  // namespace meshloom::comm
