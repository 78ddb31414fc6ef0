// SPDX-License-Identifier: Apache-2.0
// TestTensor: a tensor of the test's device whose elements the host sets and gets, in any layout.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/support/kernel_device.h"

namespace meshloom::kernels::test {

using Rng = std::mt19937_64;

/// How a tensor's elements lie in memory.
enum class Layout {
  kDense,     ///< row-major
  kPermuted,  ///< dims reversed in memory
  kPadded,    ///< row-major with gaps after every dim
  kOddStart,  ///< dense, but not aligned to a vector
};

inline constexpr Layout kAllLayouts[] = {Layout::kDense, Layout::kPermuted, Layout::kPadded,
                                         Layout::kOddStart};

/// Memory of the device with a mirror on the host. Elements that nobody has set, and gaps, are
/// bytes of 0xFF: NaN in the floating dtypes. view() uploads what was set before, so a call gets
/// its views after the last set(); at() downloads where views were given out since, and fails the
/// test where a gap has changed. Copies share the memory.
class TestTensor {
 public:
  TestTensor() = default;
  TestTensor(const Shape& shape, DType dtype, Layout layout = Layout::kDense);
  /// `order` lists the dims from the outermost in memory to the innermost; empty: row-major. `gap`
  /// elements lie behind each run of the innermost one.
  TestTensor(DType dtype, const Shape& shape, std::vector<int> order = {}, std::int64_t gap = 0);

  const TensorView& view() const;
  operator const TensorView&() const { return view(); }
  bool defined() const { return state_ != nullptr; }
  const Shape& shape() const;
  DType dtype() const;
  std::int64_t numel() const;

  /// Elements by their row-major index.
  double at(std::int64_t flat) const;
  void set(std::int64_t flat, double value) const;
  /// Elements of int64 that a double cannot hold.
  std::int64_t int64_at(std::int64_t flat) const;
  void set_int64(std::int64_t flat, std::int64_t value) const;
  /// All elements become `value`.
  void fill(double value) const;
  /// Values of both signs with mean 0 and standard deviation `scale`.
  void fill_random(std::mt19937& random, double scale = 1.0) const;

  /// Elements in row-major order.
  std::vector<double> values() const;
  /// The bytes of a tensor without gaps.
  std::vector<std::byte> bytes() const;
  /// Another tensor of the same layout and values.
  TestTensor copy() const;

 private:
  struct State;

  void make(DType dtype, const Shape& shape, const Strides& strides, std::int64_t elements,
            std::int64_t start);
  std::byte* element(std::int64_t flat) const;
  void download() const;
  void expect_gaps_untouched() const;

  std::shared_ptr<State> state_;
};

/// A tensor of zeros.
TestTensor zeros(const Shape& shape, DType dtype, Layout layout = Layout::kDense);
TestTensor tensor_of(const std::vector<double>& values, DType dtype = DType::kFloat32);
TestTensor random_tensor(const Shape& shape, DType dtype, Rng& rng, double low = -2.0,
                         double high = 2.0, Layout layout = Layout::kDense);
/// int64 in [0, limit).
TestTensor random_ids(const Shape& shape, std::int64_t limit, Rng& rng);

/// Relative rounding error of one result of this dtype, with room for a few operations in float32.
inline double tolerance(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16: return 0x1p-8;
    case DType::kFloat16: return 0x1p-10;
    case DType::kFloat64: return 1e-12;
    default: return 2e-6;
  }
}

/// |actual - expected| <= relative * max(|expected|, scale) for all elements; NaN equals NaN.
inline void expect_close(const std::vector<double>& actual, const std::vector<double>& expected,
                         double relative, double scale = 1.0) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (actual[i] == expected[i] || (std::isnan(actual[i]) && std::isnan(expected[i]))) continue;
    const double bound = relative * std::max(std::abs(expected[i]), scale);
    ASSERT_LE(std::abs(actual[i] - expected[i]), bound)
        << "element " << i << ": " << actual[i] << ", expected " << expected[i];
  }
}

inline const std::vector<DType> kFloatDTypes{DType::kFloat32, DType::kBFloat16, DType::kFloat16,
                                             DType::kFloat64};

}  // namespace meshloom::kernels::test
