// SPDX-License-Identifier: Apache-2.0
// What the benchmarks of single kernels share: a workspace, buffers, the best of several runs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "kernels/backend.h"
#include "kernels/base/half.h"
#include "tests/bench/bench.h"
#include "tests/bench/memory.h"

namespace meshloom::bench {

/// Grows, and else hands out the same memory.
class KeptWorkspace final : public kernels::Workspace {
 public:
  std::span<std::byte> reserve(std::size_t bytes) override {
    if (bytes > size_) {
      memory_ = std::make_unique<Memory>(bytes);
      size_ = bytes;
    }
    return {memory_ ? memory_->data() : nullptr, bytes};
  }

 private:
  std::unique_ptr<Memory> memory_;
  std::size_t size_ = 0;
};

/// Elements of float32 or bfloat16 with small values of both signs.
class Buffer {
 public:
  Buffer(DType dtype, std::int64_t elements)
      : dtype_(dtype),
        memory_(std::make_unique<Memory>(static_cast<std::size_t>(elements) * dtype_size(dtype))) {
    for (std::int64_t i = 0; i < elements; ++i) {
      const float value = static_cast<float>(i * 7919 % 1000 - 500) * 1e-3f;
      if (dtype == DType::kFloat32) {
        reinterpret_cast<float*>(memory_->data())[i] = value;
      } else {
        reinterpret_cast<bfloat16*>(memory_->data())[i] = bfloat16(value);
      }
    }
  }
  void* at(std::int64_t element) {
    return memory_->data() + static_cast<std::size_t>(element) * dtype_size(dtype_);
  }

 private:
  DType dtype_;
  std::unique_ptr<Memory> memory_;
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
