// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/ops/attention_part.h"

#include <algorithm>
#include <cmath>

#include "daemon/tensor/ops/op_support.h"
#include "daemon/tensor/ops/shape.h"

namespace meshloom::ops {

AttentionPart::AttentionPart(const Tensor& q, const SdpaOptions& given, const Dims& place) {
  options.scale = given.scale;
  options.is_causal = given.is_causal;
  if (given.causal_bottom_right)
    options.query_offset = place[planner::kKeys] - place[planner::kQueries];
  options.window_left = given.window_left;
  options.window_right = given.window_right;
  if (given.bias) bias = converted(given.bias.detach(), DType::kFloat32);
  if (given.alibi) {
    const std::vector<float> values = alibi_slopes(static_cast<int>(place[planner::kHeads]));
    slopes =
        from_values(q.context(), {q.size(1)},
                    std::span(values).subspan(static_cast<std::size_t>(place[planner::kFirstHead]),
                                              static_cast<std::size_t>(q.size(1))));
    options.alibi_slopes = slopes.view();
  }
  options.dropout_p = given.dropout_p;
  options.dropout_random = given.dropout_random;
  options.dropout_first_head = given.dropout_first_head +
                               place[planner::kFirstRow] * place[planner::kHeads] +
                               place[planner::kFirstHead];
  options.dropout_total_heads = place[planner::kHeads];
  options.dropout_total_queries = place[planner::kQueries];
  options.dropout_total_keys = place[planner::kKeys];
}

Tensor dense_rows(const Tensor& x) {
  return x.size(3) <= 1 || x.strides()[3] == 1 ? x.detach() : contiguous(x.detach());
}

Tensor heads_read(const Tensor& kv, std::int64_t count, const Dims& place) {
  if (count == 0) return slice(kv, 1, 0, 0);
  const std::int64_t group = place[planner::kHeadGroup], first = place[planner::kFirstHead];
  const std::int64_t first_kv = place[planner::kFirstKeyHead];
  const std::int64_t from = first / group - first_kv;
  const std::int64_t to = (first + count - 1) / group - first_kv + 1;
  if (to - from == 1 || (first % group == 0 && count % group == 0))
    return from == 0 && to == kv.size(1) ? kv : slice(kv, 1, from, to);
  std::vector<Tensor> heads;
  for (std::int64_t h = first; h < first + count; ++h)
    heads.push_back(slice(kv, 1, h / group - first_kv, h / group - first_kv + 1));
  return cat(heads, 1);
}

std::vector<float> alibi_slopes(int heads) {
  // For a power of two n: 2^(-8 i / n). Other counts take those of the power below, then every
  // second one of the power above.
  const auto power_of_two = [](int n) {
    std::vector<float> slopes;
    for (int i = 1; i <= n; ++i) slopes.push_back(static_cast<float>(std::pow(2.0, -8.0 * i / n)));
    return slopes;
  };
  int below = 1;
  while (below * 2 <= heads) below *= 2;
  std::vector<float> slopes = power_of_two(below);
  const std::vector<float> above = power_of_two(2 * below);
  for (std::size_t i = 0; static_cast<int>(slopes.size()) < heads; i += 2)
    slopes.push_back(above[i]);
  slopes.resize(static_cast<std::size_t>(std::max(heads, 0)));
  return slopes;
}

}  // namespace meshloom::ops
