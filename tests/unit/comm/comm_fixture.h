// SPDX-License-Identifier: Apache-2.0
// What checks of groups share: a world group of the runtime, and views of vectors.
#pragma once

#include <chrono>
#include <type_traits>
#include <vector>

#include "daemon/comm/mesh/rank_runtime.h"
#include "kernels/base/half.h"

namespace meshloom::comm::testing {

inline std::unique_ptr<ProcessGroup> make_group(
    RankRuntime& runtime, std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
  GroupOptions options;
  options.timeout = timeout;
  return runtime.make_world_group(options);
}

template <typename T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>) return DType::kFloat32;
  if constexpr (std::is_same_v<T, double>) return DType::kFloat64;
  if constexpr (std::is_same_v<T, bfloat16>) return DType::kBFloat16;
  if constexpr (std::is_same_v<T, float16>) return DType::kFloat16;
  if constexpr (std::is_same_v<T, std::int64_t>) return DType::kInt64;
  if constexpr (std::is_same_v<T, std::int32_t>) return DType::kInt32;
  if constexpr (std::is_same_v<T, std::uint8_t>) return DType::kUInt8;
  return DType::kBool;
}

template <typename T>
TensorView view_of(std::vector<T>& values) {
  return make_view(values.data(), dtype_of<T>(), Shape{static_cast<std::int64_t>(values.size())});
}

/// Expects the right sums from an all_reduce of `n` values, each of which is rank + 1.
inline void expect_sums(ProcessGroup& group, std::size_t n) {
  std::vector<float> values(n, static_cast<float>(group.rank() + 1));
  group.all_reduce(view_of(values), ReduceOp::kSum)->wait_host();
  const auto size = static_cast<float>(group.size());
  EXPECT_EQ(values, std::vector<float>(n, size * (size + 1) / 2));
}

}  // namespace meshloom::comm::testing
