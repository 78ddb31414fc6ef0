// SPDX-License-Identifier: Apache-2.0
// Shapes and strides: small vectors of int64 that never allocate.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "kernels/base/format.h"

namespace meshloom {

/// Most dims a tensor can have.
inline constexpr int kMaxDims = 8;

/// Dims holds up to kMaxDims int64 values in place. Used for shapes, strides (in elements)
/// and lists of dims. Throws InvalidArgument where more than kMaxDims are given.
class Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<std::int64_t> values);
  explicit Dims(std::span<const std::int64_t> values);

  int size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::int64_t operator[](int i) const { return values_[static_cast<std::size_t>(i)]; }
  std::int64_t& operator[](int i) { return values_[static_cast<std::size_t>(i)]; }
  std::int64_t back() const { return values_[static_cast<std::size_t>(size_ - 1)]; }

  void push_back(std::int64_t value);
  void insert(int position, std::int64_t value);
  void erase(int position);

  const std::int64_t* begin() const { return values_.data(); }
  const std::int64_t* end() const { return values_.data() + size_; }
  std::int64_t* begin() { return values_.data(); }
  std::int64_t* end() { return values_.data() + size_; }
  std::span<const std::int64_t> span() const { return {begin(), static_cast<std::size_t>(size_)}; }

  bool operator==(const Dims& other) const;

 private:
  std::array<std::int64_t, kMaxDims> values_{};
  int size_ = 0;
};

using Shape = Dims;
using Strides = Dims;

/// Returns the product of the sizes (1 for no dims). Throws InvalidArgument for a negative size or
/// where the product does not fit 63 bits.
std::int64_t numel(const Shape& shape);
/// Returns the row-major strides in elements.
Strides contiguous_strides(const Shape& shape);
bool is_contiguous(const Shape& shape, const Strides& strides);

/// Returns a dim counted from the end made positive. Throws InvalidArgument ("OP: NAME is ...") out
/// of range; `name` is what the op calls this dim.
int normalize_dim(std::int64_t dim, int ndim, const char* op, const char* name = "dim");
/// Does the NumPy broadcasting of two shapes. Throws InvalidArgument naming `op` and both shapes.
Shape broadcast_shapes(const Shape& a, const Shape& b, const char* op);

/// Returns "[2, 3]"
std::string to_string(const Dims& dims);

}  // namespace meshloom

template <>
struct fmt::formatter<meshloom::Dims> : meshloom::ToStringFormatter<meshloom::Dims> {};
