// SPDX-License-Identifier: Apache-2.0
// What tests of the CPU's kernels share: dense host tensors, and runs over all instruction sets and
// several thread counts.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "kernels/backend_table.h"
#include "kernels/base/half.h"
#include "kernels/cpu/simd/dispatch.h"
#include "kernels/cpu/simd/targets.h"

namespace meshloom::kernels::test {

using Rng = std::mt19937_64;

/// How a tensor's elements lie in memory.
enum class Layout {
  kDense,     ///< row-major
  kOddStart,  ///< dense, but not aligned to a vector
};

/// A tensor with memory of its own.
class HostTensor {
 public:
  HostTensor() = default;
  HostTensor(const Shape& shape, DType dtype, Layout layout = Layout::kDense) {
    view_.dtype = dtype;
    view_.shape = shape;
    view_.strides = contiguous_strides(shape);
    const std::int64_t elements = meshloom::numel(shape);
    const std::int64_t start = layout == Layout::kOddStart ? 1 : 0;
    memory_.assign((elements + start + 1) * dtype_size(dtype), std::byte{0});
    view_.data = memory_.data() + start * dtype_size(dtype);
  }

  const TensorView& view() const { return view_; }
  operator const TensorView&() const { return view_; }

  double get(std::int64_t flat) const {
    double value = 0.0;
    cpu::dispatch_any(view_.dtype, "get", [&]<typename T>(cpu::TypeTag<T>) {
      value = cpu::convert<double>(view_.as<const T>()[flat]);
    });
    return value;
  }
  void set(std::int64_t flat, double value) {
    cpu::dispatch_any(view_.dtype, "set", [&]<typename T>(cpu::TypeTag<T>) {
      view_.as<T>()[flat] = cpu::convert<T>(value);
    });
  }
  std::int64_t numel() const { return view_.numel(); }

  /// Elements in row-major order.
  std::vector<double> values() const {
    std::vector<double> out(numel());
    for (std::int64_t i = 0; i < numel(); ++i) out[i] = get(i);
    return out;
  }

 private:
  std::vector<std::byte> memory_;
  TensorView view_;
};

inline HostTensor random_tensor(const Shape& shape, DType dtype, Rng& rng, double low = -2.0,
                                double high = 2.0, Layout layout = Layout::kDense) {
  HostTensor tensor(shape, dtype, layout);
  std::uniform_real_distribution<double> uniform(low, high);
  for (std::int64_t i = 0; i < tensor.numel(); ++i) tensor.set(i, uniform(rng));
  return tensor;
}

inline HostTensor random_ids(const Shape& shape, std::int64_t limit, Rng& rng) {
  HostTensor tensor(shape, DType::kInt64);
  std::uniform_int_distribution<std::int64_t> uniform(0, limit - 1);
  for (std::int64_t i = 0; i < tensor.numel(); ++i)
    tensor.set(i, static_cast<double>(uniform(rng)));
  return tensor;
}

/// Scratch memory from the heap, filled with a pattern so that nothing relies on zeros.
class TestWorkspace : public Workspace {
 public:
  std::span<std::byte> reserve(std::size_t bytes) override {
    memory_.assign(bytes + 64, std::byte{0xc5});
    const std::size_t past = reinterpret_cast<std::uintptr_t>(memory_.data()) % 64;
    return {memory_.data() + (64 - past) % 64, bytes};
  }

 private:
  std::vector<std::byte> memory_;
};

/// Runs `body` on every instruction set of this machine with 1, 2 and 3 threads.
inline void for_all_settings(const std::function<void(const KernelContext&)>& body) {
  for (const std::string& target : cpu::available_targets()) {
    cpu::force_target(target);
    for (const int threads : {1, 2, 3}) {
      SCOPED_TRACE(target + ", " + std::to_string(threads) + " threads");
      TestWorkspace workspace;
      KernelContext context;
      context.threads = {threads};
      context.workspace = &workspace;
      body(context);
    }
    cpu::force_target("");
  }
}

inline Backend& backend() { return backend_for(kCpuDevice); }

}  // namespace meshloom::kernels::test
