// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/models/position_range.h"

#include <numeric>
#include <span>
#include <vector>

#include "daemon/nn/replicated_like.h"
#include "daemon/tensor/layout.h"
#include "daemon/tensor/ops/op_support.h"

namespace meshloom::nn {

PositionRange::PositionRange(ExecutionContext& context, std::int64_t context_length) {
  std::vector<std::int64_t> positions(static_cast<std::size_t>(context_length));
  std::iota(positions.begin(), positions.end(), 0);
  values_ = from_values(context, {context_length}, std::span<const std::int64_t>(positions));
}

Tensor PositionRange::beside(const Tensor& input_ids, std::int64_t start) const {
  const std::int64_t length = input_ids.size(1);
  const Tensor values =
      replicated_like(ops::alias(values_, {1, length}, {length, 1}, start), input_ids);
  if (!input_ids.has_layout() || input_ids.size(0) != 1) return values;
  const TensorLayout& layout = *input_ids.layout();
  return layout.spec->replicated() ? values : layout.engine->redistribute(values, layout.spec);
}

}  // namespace meshloom::nn
