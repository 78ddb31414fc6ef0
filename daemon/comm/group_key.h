// SPDX-License-Identifier: Apache-2.0
// Numbers that tell groups apart: counted, never drawn from a hash, so that no two can meet.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace meshloom::comm {

/// A key is the same on all members of its group, and another one in every other group that shares
/// a member with it: so a key and two ranks name one stream of messages. 0 is no group's. The last
/// two bits tell what was counted, which keeps the three kinds below apart.
using GroupKey = std::uint64_t;

/// Returns the key of the world group that all ranks make as their `number`-th, from 1.
constexpr GroupKey world_key(std::uint64_t number) { return number << 2; }
/// Returns the key of a group that was split from another one; `number` is above that of every such
/// group that any member of the other one is in.
constexpr GroupKey part_key(std::uint64_t number) { return number << 2 | 1; }
/// Returns the key of what the members on one host have among themselves for the group of `key`.
constexpr GroupKey host_key(GroupKey key) { return key | 2; }

/// Returns a number that is another one in every group of the world: groups with one key have no
/// member in common, so their lowest members differ.
inline std::uint64_t group_id(GroupKey key, std::span<const int> world_ranks) {
  constexpr int kRankBits = 16;  // as many as the flight log has
  const int lowest = *std::min_element(world_ranks.begin(), world_ranks.end());
  return key << kRankBits | static_cast<std::uint64_t>(lowest);
}

}  // namespace meshloom::comm
