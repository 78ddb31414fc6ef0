// SPDX-License-Identifier: Apache-2.0
// What the benchmarks of single kernels share: a workspace, buffers, the best of several runs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "kernels/base/half.h"
#include "tests/bench/bench.h"

namespace meshloom::bench {

/// Grows once, then hands out the same memory.
class KeptWorkspace final : public kernels::Workspace {
 public:
  std::span<std::byte> reserve(std::size_t bytes) override {
    constexpr std::size_t kLine = 64;
    if (bytes_.size() < bytes + kLine) bytes_.resize(bytes + kLine);
    const auto address = reinterpret_cast<std::uintptr_t>(bytes_.data());
    return {bytes_.data() + (kLine - address % kLine) % kLine, bytes};
  }

 private:
  std::vector<std::byte> bytes_;
};

/// Elements of float32 or bfloat16 with small values of both signs.
class Buffer {
 public:
  Buffer(DType dtype, std::int64_t elements)
      : dtype_(dtype), bytes_(static_cast<std::size_t>(elements) * dtype_size(dtype)) {
    for (std::int64_t i = 0; i < elements; ++i) {
      const float value = static_cast<float>(i * 7919 % 1000 - 500) * 1e-3f;
      if (dtype == DType::kFloat32) {
        reinterpret_cast<float*>(bytes_.data())[i] = value;
      } else {
        reinterpret_cast<bfloat16*>(bytes_.data())[i] = bfloat16(value);
      }
    }
  }
  void* at(std::int64_t element) {
    return bytes_.data() + static_cast<std::size_t>(element) * dtype_size(dtype_);
  }

 private:
  DType dtype_;
  std::vector<std::byte> bytes_;
};

/// Seconds of the fastest of several calls, after one that does not count. Runs for about `budget`
/// seconds.
template <typename Fn>
double best_seconds(Fn&& fn, double budget) {
  fn();
  double best = 1e30, total = 0.0;
  for (int i = 0; i < 3 || (total < budget && i < 200); ++i) {
    const Clock::time_point start = Clock::now();
    fn();
    const double seconds = seconds_since(start);
    best = std::min(best, seconds);
    total += seconds;
  }
  return best;
}

}  // namespace meshloom::bench
