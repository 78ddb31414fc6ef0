// SPDX-License-Identifier: Apache-2.0
// Small numbers of the host, reduced over ranks.
#pragma once

#include <span>

#include "daemon/comm/process_group.h"

namespace meshloom::train {

/// In place, element by element, over the ranks of the group, which all call it.
inline void all_reduce(comm::ProcessGroup& group, std::span<double> values, comm::ReduceOp op) {
  if (group.size() == 1) return;
  const Shape shape = {static_cast<std::int64_t>(values.size())};
  group.all_reduce(make_view(values.data(), DType::kFloat64, shape), op)->wait_host();
}

}  // namespace meshloom::train
