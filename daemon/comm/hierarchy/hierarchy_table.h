// SPDX-License-Identifier: Apache-2.0
// Which way a collective over several hosts goes, by kind, size and hosts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/comm/hierarchy/host_layout.h"
#include "daemon/comm/signature.h"

namespace meshloom::comm {

/// This is the version of the table in hierarchy_table.cpp, and grows whenever a row of it changes.
/// Both ways give the same bits, which come from the layout of hosts alone, so another version
/// changes times and nothing else.
inline constexpr int kHierarchyTableVersion = 2;

/// Data passes between hosts by one of these ways.
enum class HierarchyWay : std::uint8_t {
  kLeaders,  ///< through one rank of each host: the fewest messages
  kStriped,  ///< through all ranks that every host has, each with a stripe of it
};

/// A group over several hosts may do this. The choice is the same on all ranks.
enum class HierarchyChoice : std::uint8_t {
  kTable,
  kLeaders,
  kStriped,
  kMessages,  ///< no hierarchy: all goes over messages between ranks, and sums are in rank order
};

struct HierarchyOptions {
  HierarchyChoice choice = HierarchyChoice::kTable;
  /// The host of each rank, as tests and benchmarks pretend; empty: as it is found by probing.
  /// Ranks of one host must be able to share memory.
  std::vector<int> hosts{};
};

/// Returns the options with `found` where they name no hosts. Throws InvalidArgument if they name
/// others than one for each rank.
HierarchyOptions with_hosts(HierarchyOptions, const std::vector<int>& found);

/// Chooses the way of a collective of so many bytes in a group on such hosts. Kinds that have one
/// way take it.
HierarchyWay choose_way(HierarchyChoice, CollectiveKind, std::size_t bytes, const HostLayout&);
/// Returns the number of parts of the data that take the way between hosts side by side.
int stripes_of(HierarchyWay, const HostLayout&);

}  // namespace meshloom::comm
