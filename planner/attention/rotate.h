// SPDX-License-Identifier: Apache-2.0
// Rotate: how keys and values come to the ranks whose queries see them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace meshloom::planner {

enum class Rotate : std::uint8_t {
  kAuto,       ///< for whoever plans a run to choose (planner/estimate/rotate_choice.h); else kPull
  kAllGather,  ///< every rank gathers all keys at once
  kAllToAll,   ///< keys go round a ring, a rank at a time
  kPull,       ///< every rank gets the keys alone that its queries see
  kUlysses,    ///< ranks exchange heads, so that each has all keys of some heads
};

/// Ranks that share memory read all keys of kAllGather in place, as they always do those of kPull,
/// if there are at most so many: as many collectives a group has room for at once
/// (comm::CollectivePad::kSlots).
inline constexpr int kMostGatheredInPlace = 8;

/// The names, for error texts.
inline constexpr const char* kRotateNames = "auto, allgather, alltoall, pull or ulysses";
const char* to_string(Rotate rotate);
std::optional<Rotate> find_rotate(std::string_view name);

}  // namespace meshloom::planner
