// SPDX-License-Identifier: Apache-2.0
// Placement: how one mesh dim holds a tensor.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace meshloom::planner {

enum class PlacementKind : std::uint8_t { kReplicate, kShard, kPartial };
enum class PartialOp : std::uint8_t { kSum, kAvg, kMax, kMin };

/// Returns true for reductions that commute with each other and with every linear op.
constexpr bool adds(PartialOp op) { return op == PartialOp::kSum || op == PartialOp::kAvg; }

struct Placement {
  PlacementKind kind = PlacementKind::kReplicate;
  int dim = 0;                          ///< kShard: the tensor dim
  PartialOp partial = PartialOp::kSum;  ///< kPartial

  static Placement replicate() { return {}; }
  static Placement shard(int dim) { return {PlacementKind::kShard, dim, PartialOp::kSum}; }
  static Placement partial_of(PartialOp op) { return {PlacementKind::kPartial, 0, op}; }

  bool is_replicate() const { return kind == PlacementKind::kReplicate; }
  bool is_shard() const { return kind == PlacementKind::kShard; }
  bool is_partial() const { return kind == PlacementKind::kPartial; }
  bool operator==(const Placement&) const = default;
};

/// There is one per mesh dim.
using Placements = std::vector<Placement>;

/// Reads "R", "S(0)", "S(-1)", "P", "P(sum)", "P(avg)", "P(max)", "P(min)". Throws InvalidArgument
/// naming the text.
Placement parse_placement(std::string_view text);
/// Returns "R", "S(0)", "P(sum)".
std::string to_string(const Placement&);
std::string to_string(std::span<const Placement>);  ///< "[R, S(0)]"

/// Returns the placements with dims counted from the end made positive. Throws InvalidArgument
/// naming the placement if its dim is outside a tensor of `ndim` dims.
Placements normalize_placements(const Placements&, int ndim);

}  // namespace meshloom::planner
