// SPDX-License-Identifier: Apache-2.0
// Which dim of every parameter fully_shard shards, and which parameters travel together.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/shape.h"

namespace meshloom::planner {

enum class ShardPolicy {
  kDim0,              ///< dim 0 of every parameter (as PyTorch's FSDP2), uneven if need be
  kLargestDivisible,  ///< the largest dim that nothing else shards and that divides evenly
};

struct ShardOptions {
  ShardPolicy policy = ShardPolicy::kDim0;
  /// kLargestDivisible: parameters with fewer elements stay whole on every rank.
  std::int64_t min_elements = std::int64_t{1} << 18;
  /// Chosen by hand, by parameter name: a dim, or nullopt for whole.
  std::map<std::string, std::optional<int>> dims = {};

  bool operator==(const ShardOptions&) const = default;
};

/// ShardCandidate is a parameter as far as the choice needs it; the same on every rank of all
/// meshes.
struct ShardCandidate {
  std::string name;
  Shape shape;                     ///< of the whole parameter
  std::vector<int> other_sharded;  ///< dims that other mesh dims (tp) shard
};

struct ShardChoice {
  std::optional<int> dim;  ///< nullopt: whole on every rank
  std::string reason;      ///< "dim0", "largest_divisible", "small", "no dim divides", "override"
};

/// Returns the choice for a group of `ranks`. Throws InvalidArgument naming the parameter if one
/// made by hand is no dim of it.
ShardChoice choose_shard(const ShardCandidate& candidate, int ranks, const ShardOptions& options);
/// Returns one choice per candidate. Throws InvalidArgument also for a name in `dims` that is no
/// parameter.
std::vector<ShardChoice> choose_shards(const std::vector<ShardCandidate>& candidates, int ranks,
                                       const ShardOptions& options);

/// Tells whether the shards of a parameter that is sharded along `dim`, the largest of `elements`,
/// travel straight between their places; all others of a unit travel packed, in one message.
bool shards_travel_alone(int dim, std::int64_t elements);
/// Rounds up to a multiple at which tensors that are not packed begin in the flat buffers of a
/// unit.
std::int64_t align_shard(std::int64_t elements);

/// Returns the unit of a parameter: its name up to and including the first component that is a
/// number ("transformer.h.3"), or "" for the root unit, which stays gathered from its first use in
/// forward to its last in backward.
std::string_view unit_of(std::string_view parameter_name);

}  // namespace meshloom::planner
