// SPDX-License-Identifier: Apache-2.0
// Where the elements of a rank's part lie in the whole tensor.
#pragma once

#include <array>
#include <cstdint>

#include "planner/dtensor_spec.h"

namespace meshloom::ops {

/// See for_each_run.
template <typename Run>
void for_each_run_of(const planner::PartBlock& block, const Shape& whole, const Shape& part,
                     const Strides& strides, const Strides& local, const Run& run) {
  int outer = whole.size() - 1;  // the last dim that is sharded: behind it everything is dense
  while (outer > 0 && block.shape[outer] == whole[outer] && part[outer] == whole[outer] &&
         block.ranges[static_cast<std::size_t>(outer)].size() == 1)
    --outer;
  if (outer < 0) return run(std::int64_t{0}, std::int64_t{1}, std::int64_t{0});

  const auto ranges = [&](int d) -> const planner::IndexRanges& {
    return block.ranges[static_cast<std::size_t>(d)];
  };
  std::array<std::size_t, kMaxDims> range{};    // of each dim before `outer`
  std::array<std::int64_t, kMaxDims> within{};  // place in that range
  Dims at = block.first;                        // in the part
  while (true) {
    std::int64_t begin = at[outer] * local[outer], global = 0;
    for (int d = 0; d < outer; ++d) {
      begin += at[d] * local[d];
      global += (ranges(d)[range[d]].begin + within[d]) * strides[d];
    }
    for (const planner::ShardRange& r : ranges(outer)) {
      const std::int64_t count = r.size() * strides[outer];
      run(begin, count, global + r.begin * strides[outer]);
      begin += count;
    }
    int d = outer - 1;
    for (; d >= 0; --d) {
      ++at[d];
      if (++within[d] < ranges(d)[range[d]].size()) break;
      within[d] = 0;
      if (++range[d] < ranges(d).size()) break;
      range[d] = 0;
      at[d] = block.first[d];
    }
    if (d < 0) return;
  }
}

/// Calls run(begin, count, global) for stretches of the dense part: its elements [begin, begin +
/// count) are those from row-major index `global` on of a tensor of shape `whole`. Every element is
/// in one stretch; stretches are as long as the trailing dims that are not sharded allow.
template <typename Run>
void for_each_run(const Shape& whole, const planner::LocalPart& part, const Run& run) {
  const Strides strides = contiguous_strides(whole), local = contiguous_strides(part.shape());
  for (const planner::PartBlock& block : part.blocks())
    for_each_run_of(block, whole, part.shape(), strides, local, run);
}

}  // namespace meshloom::ops
