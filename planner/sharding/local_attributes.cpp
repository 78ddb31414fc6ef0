// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/base/error.h"
#include "planner/sharding/propagate.h"

namespace meshloom::planner {
namespace {

/// First global element of a dim that a rank holds; if it holds none, the dim's size.
std::int64_t first_element(const DTensorSpec& spec, int dim, const std::vector<int>& coordinates) {
  if (spec.sharding_dims(dim).empty()) return 0;
  const LocalPart part = spec.local_part(coordinates);
  const IndexRanges& ranges = part.ranges_of_row(dim, 0);
  return ranges.empty() ? spec.shape()[dim] : ranges.front().begin;
}

Dims attention_place(const ShardingDecision& decision, const std::vector<int>& coordinates) {
  const DTensorSpec &q = *decision.inputs[0], &k = *decision.inputs[1];
  const std::int64_t heads = q.shape()[1], key_heads = k.shape()[1];
  return {first_element(q, 0, coordinates),
          first_element(q, 1, coordinates),
          first_element(k, 1, coordinates),
          heads,
          heads / std::max<std::int64_t>(1, key_heads),
          q.shape()[2],
          k.shape()[2]};
}

}  // namespace

OpAttributes local_attributes(const OpCall& call, const ShardingDecision& decision,
                              const std::vector<int>& coordinates) {
  OpAttributes attributes = call.attributes;
  switch (call.op) {
    case OpId::kReshape:
    case OpId::kExpand: attributes.dims = decision.outputs[0]->local_shape(coordinates); break;
    case OpId::kSlice: {
      const auto dim = static_cast<int>(attributes.ints[0]);
      if (decision.inputs[0]->sharding_dims(dim).empty()) break;
      const DTensorSpec& output = *decision.outputs[0];
      const std::int64_t count = output.local_shape(coordinates)[dim];
      const std::int64_t piece = attributes.ints[1] / output.shape()[dim];
      attributes.ints[1] = piece * count;
      attributes.ints[2] = (piece + 1) * count;
      break;
    }
    case OpId::kSplit: {
      const auto dim = static_cast<int>(attributes.ints[1]);
      const DTensorSpec& output = *decision.outputs[0];
      if (output.sharding_dims(dim).empty()) break;
      attributes.ints[0] = std::max<std::int64_t>(1, output.local_shape(coordinates)[dim]);
      break;
    }
    case OpId::kTri: {
      const DTensorSpec& x = *decision.inputs[0];
      const int columns = x.shape().size() - 1;
      attributes.ints[0] +=
          first_element(x, columns - 1, coordinates) - first_element(x, columns, coordinates);
      break;
    }
    case OpId::kAttention:
    case OpId::kAttentionRows: attributes.dims = attention_place(decision, coordinates); break;
    case OpId::kRope: attributes.dims = {first_element(*decision.inputs[0], 2, coordinates)}; break;
    default: break;
  }
  return attributes;
}

}  // namespace meshloom::planner
