// SPDX-License-Identifier: Apache-2.0
// Several ways to do the same on ranks that begin and end together, measured in turns.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "daemon/comm/process_group.h"
#include "daemon/tensor/tensor.h"

namespace meshloom::bench {

struct Way {
  const char* name;
  std::function<void()> call;
  /// Of each run on the slowest rank: until all ranks have ended, and what it computed itself,
  /// which other programs of the machine disturb less.
  std::vector<double> seconds{}, cpu_seconds{};
};

/// Every rank of `world` calls it: each way once, then all of them by turns for so many seconds, so
/// that a swing of the clock meets all.
void run_in_turns(comm::ProcessGroup& world, std::span<Way> ways, double seconds);

/// Values in [-0.5, 0.5) without a pattern that matters.
Tensor bench_values(ExecutionContext& context, const Shape& shape, DType dtype);

}  // namespace meshloom::bench
