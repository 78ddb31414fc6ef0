// SPDX-License-Identifier: Apache-2.0
#include "planner/placement.h"

#include <charconv>

#include "kernels/base/error.h"

namespace meshloom::planner {
namespace {

constexpr const char* kPartialNames[] = {"sum", "avg", "max", "min"};

[[noreturn]] void refuse(std::string_view text) {
  throw InvalidArgument(
      fmt::format("placement '{}': expected R, S(dim), P or P(sum|avg|max|min)", text),
      "BAD_PLACEMENT", {{"placement", std::string(text)}});
}

}  // namespace

Placement parse_placement(std::string_view text) {
  if (text == "R") return Placement::replicate();
  if (text == "P") return Placement::partial_of(PartialOp::kSum);
  if (text.size() < 4 || text[1] != '(' || text.back() != ')') refuse(text);
  const std::string_view inner = text.substr(2, text.size() - 3);
  if (text[0] == 'S') {
    int dim = 0;
    const auto [end, error] = std::from_chars(inner.data(), inner.data() + inner.size(), dim);
    if (error != std::errc() || end != inner.data() + inner.size()) refuse(text);
    return Placement::shard(dim);
  }
  if (text[0] == 'P')
    for (int op = 0; op < 4; ++op)
      if (inner == kPartialNames[op]) return Placement::partial_of(static_cast<PartialOp>(op));
  refuse(text);
}

std::string to_string(const Placement& placement) {
  switch (placement.kind) {
    case PlacementKind::kReplicate: return "R";
    case PlacementKind::kShard: return fmt::format("S({})", placement.dim);
    case PlacementKind::kPartial:
      return fmt::format("P({})", kPartialNames[static_cast<int>(placement.partial)]);
  }
  return "?";
}

std::string to_string(std::span<const Placement> placements) {
  std::string text = "[";
  for (const Placement& placement : placements) {
    if (text.size() > 1) text += ", ";
    text += to_string(placement);
  }
  return text + "]";
}

Placements normalize_placements(const Placements& placements, int ndim) {
  Placements result = placements;
  for (Placement& placement : result) {
    if (!placement.is_shard()) continue;
    if (placement.dim < -ndim || placement.dim >= ndim)
      throw InvalidArgument(
          fmt::format("placement {} of a tensor with {} dims", to_string(placement), ndim));
    if (placement.dim < 0) placement.dim += ndim;
  }
  return result;
}

}  // namespace meshloom::planner
