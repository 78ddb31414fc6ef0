// SPDX-License-Identifier: Apache-2.0
// Which dim of every parameter fully_shard cuts, and which parameters travel together: pure values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/shape.h"

namespace meshloom::parallel {

enum class ShardPolicy {
  kDim0,              ///< dim 0 of every parameter (as PyTorch's FSDP2), uneven where need be
  kLargestDivisible,  ///< the largest dim that nothing else cuts and that divides evenly
};

struct FullyShardOptions {
  ShardPolicy policy = ShardPolicy::kDim0;
  /// kLargestDivisible: parameters with fewer elements stay whole on every rank.
  std::int64_t min_elements = std::int64_t{1} << 18;
  /// Chosen by hand, by parameter name: a dim, or nullopt for whole.
  std::map<std::string, std::optional<int>> dims;
  /// Whether a block's parameters are freed between forward and backward and gathered again.
  bool reshard_after_forward = true;
};

/// A parameter as far as the choice needs it; the same on every rank of all meshes.
struct ShardCandidate {
  std::string name;
  Shape shape;                 ///< of the whole parameter
  std::vector<int> other_cut;  ///< dims that other mesh dims (tp) cut
};

struct ShardChoice {
  std::optional<int> dim;  ///< nullopt: whole on every rank
  std::string reason;      ///< "dim0", "largest_divisible", "small", "no dim divides", "override"
};

/// One choice per candidate for a group of `ranks`. Throws InvalidArgument naming a parameter whose
/// hand-made choice is no dim of it, or a name in `dims` that is no parameter.
std::vector<ShardChoice> choose_shards(const std::vector<ShardCandidate>& candidates, int ranks,
                                       const FullyShardOptions& options);

/// The unit of a parameter: its name up to and including the first component that is a number
/// ("transformer.h.3"), or "" for the root unit, which stays gathered from its first use in forward
/// to its last in backward.
std::string_view unit_of(std::string_view parameter_name);

/// "transformer.h.0.attn.c_attn.weight [768,2304] dim 0 (dim0)", one line per parameter; numbered
/// blocks that are alike are printed once, as "transformer.h.*".
std::string describe_shards(const std::vector<ShardCandidate>& candidates,
                            const std::vector<ShardChoice>& choices);

}  // namespace meshloom::parallel
