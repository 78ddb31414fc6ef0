// SPDX-License-Identifier: Apache-2.0
// What the tests of the compute kernels share: a workspace on the heap, random strided tensors,
// targets.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <numbers>
#include <random>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/base/error.h"
#include "kernels/base/half.h"
#include "kernels/cpu/simd/targets.h"

namespace meshloom::kernels::cpu::testing {

/// Fills what it hands out with 0xff bytes (NaN), so that reading before writing shows.
class HeapWorkspace final : public Workspace {
 public:
  std::span<std::byte> reserve(std::size_t bytes) override {
    bytes_.assign(bytes + 64, std::byte{0xff});
    const auto address = reinterpret_cast<std::uintptr_t>(bytes_.data());
    most_ = std::max(most_, bytes);
    return {bytes_.data() + (64 - address % 64) % 64, bytes};
  }
  std::size_t most() const { return most_; }

 private:
  std::vector<std::byte> bytes_;
  std::size_t most_ = 0;
};

/// Owns a tensor of any dtype and dim order, and gives its elements as doubles.
class HostTensor {
 public:
  HostTensor() = default;
  /// Makes a tensor of zeros. `order` lists the dims from the outermost in memory to the innermost;
  /// empty: row-major.
  HostTensor(DType dtype, const Shape& shape, std::vector<int> order = {}, std::int64_t gap = 0) {
    if (order.empty())
      for (int d = 0; d < shape.size(); ++d) order.push_back(d);
    Strides strides = shape;
    std::int64_t step = 1;
    for (auto it = order.rbegin(); it != order.rend(); ++it) {
      strides[*it] = step;
      step *= shape[*it] + (it == order.rbegin() ? gap : 0);
    }
    bytes_ = std::make_shared<std::vector<std::byte>>(
        static_cast<std::size_t>(std::max<std::int64_t>(step, 1)) * dtype_size(dtype) + 64);
    view_ = {bytes_->data(), dtype, shape, strides, kCpuDevice};
  }

  const TensorView& view() const { return view_; }
  const Shape& shape() const { return view_.shape; }
  std::int64_t numel() const { return view_.numel(); }

  /// Element by its row-major index.
  double at(std::int64_t index) const { return load(offset(index)); }
  void set(std::int64_t index, double value) const { store(offset(index), value); }
  /// Values of both signs with mean 0 and standard deviation `scale`.
  void fill_random(std::mt19937& random, double scale = 1.0) const {
    const double step = scale * 2.0 * std::numbers::sqrt3 / 4294967296.0;
    for_each_offset(
        [&](std::int64_t at) { store(at, (static_cast<double>(random()) - 2147483648.0) * step); });
  }
  std::vector<double> values() const {
    std::vector<double> all;
    all.reserve(static_cast<std::size_t>(numel()));
    for_each_offset([&](std::int64_t at) { all.push_back(load(at)); });
    return all;
  }
  HostTensor copy() const {
    HostTensor other = *this;
    other.bytes_ = std::make_shared<std::vector<std::byte>>(*bytes_);
    other.view_.data = other.bytes_->data();
    return other;
  }

 private:
  double load(std::int64_t at) const {
    switch (view_.dtype) {
      case DType::kFloat64: return view_.as<double>()[at];
      case DType::kFloat32: return view_.as<float>()[at];
      case DType::kBFloat16: return static_cast<float>(view_.as<bfloat16>()[at]);
      case DType::kFloat16: return static_cast<float>(view_.as<float16>()[at]);
      case DType::kInt64: return static_cast<double>(view_.as<std::int64_t>()[at]);
      default: throw Unimplemented("HostTensor: dtype");
    }
  }
  void store(std::int64_t at, double value) const {
    switch (view_.dtype) {
      case DType::kFloat64: view_.as<double>()[at] = value; return;
      case DType::kFloat32: view_.as<float>()[at] = static_cast<float>(value); return;
      case DType::kBFloat16: view_.as<bfloat16>()[at] = bfloat16(static_cast<float>(value)); return;
      case DType::kFloat16: view_.as<float16>()[at] = float16(static_cast<float>(value)); return;
      case DType::kInt64: view_.as<std::int64_t>()[at] = static_cast<std::int64_t>(value); return;
      default: throw Unimplemented("HostTensor: dtype");
    }
  }
  // Offsets of all elements in row-major order.
  template <typename Fn>
  void for_each_offset(Fn&& fn) const {
    Dims index = view_.shape;
    for (std::int64_t& i : index) i = 0;
    std::int64_t at = 0;
    for (std::int64_t count = numel(); count > 0; --count) {
      fn(at);
      for (int d = view_.ndim() - 1; d >= 0; --d) {
        at += view_.stride(d);
        if (++index[d] < view_.size(d)) break;
        at -= index[d] * view_.stride(d);
        index[d] = 0;
      }
    }
  }
  std::int64_t offset(std::int64_t index) const {
    std::int64_t at = 0;
    for (int d = view_.ndim() - 1; d >= 0; --d) {
      at += index % view_.size(d) * view_.stride(d);
      index /= view_.size(d);
    }
    return at;
  }

  std::shared_ptr<std::vector<std::byte>> bytes_;
  TensorView view_;
};

/// Forces a target while it lives.
class ForcedTarget {
 public:
  explicit ForcedTarget(const std::string& name) { force_target(name); }
  ~ForcedTarget() { force_target(""); }
};

}  // namespace meshloom::kernels::cpu::testing
