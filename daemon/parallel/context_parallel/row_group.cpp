// SPDX-License-Identifier: Apache-2.0
#include "daemon/parallel/context_parallel/row_group.h"

#include "daemon/tensor/ops/op_support.h"

namespace meshloom::parallel {

std::vector<std::int64_t> elements(const planner::IndexRanges& ranges) {
  std::vector<std::int64_t> all;
  for (const planner::ShardRange& range : ranges)
    for (std::int64_t i = range.begin; i < range.end; ++i) all.push_back(i);
  return all;
}

Tensor rows_of(const Tensor& x, const RowGroup& group) {
  if (x.size(0) == group.count) return x;
  Shape shape = x.shape();
  shape[0] = group.count;
  return x.size(0) == 1 ? x : ops::alias(x, shape, x.strides(), group.first * x.strides()[0]);
}

}  // namespace meshloom::parallel
