// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/agreement/rank_values.h"

#include <xxhash.h>

namespace meshloom::comm {

void all_reduce(ProcessGroup& group, std::span<double> values, ReduceOp op) {
  if (group.size() == 1) return;
  const Shape shape = {static_cast<std::int64_t>(values.size())};
  group.all_reduce(make_view(values.data(), DType::kFloat64, shape), op)->wait_host();
}

std::vector<std::vector<std::int64_t>> all_gather(ProcessGroup& group,
                                                  const std::vector<std::int64_t>& mine) {
  std::vector<std::vector<std::int64_t>> all(static_cast<std::size_t>(group.size()), mine);
  if (group.size() == 1) return all;
  std::vector<TensorView> views;
  views.reserve(all.size());
  for (auto& values : all)
    views.push_back(
        make_view(values.data(), DType::kInt64, {static_cast<std::int64_t>(values.size())}));
  group.all_gather(views, views[static_cast<std::size_t>(group.rank())])->wait_host();
  return all;
}

std::int64_t text_digest(std::string_view text) {
  return static_cast<std::int64_t>(XXH3_64bits(text.data(), text.size()));
}

}  // namespace meshloom::comm
