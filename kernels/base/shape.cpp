// SPDX-License-Identifier: Apache-2.0
#include "kernels/base/shape.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace meshloom {

Dims::Dims(std::initializer_list<std::int64_t> values)
    : Dims(std::span<const std::int64_t>(values.begin(), values.size())) {}

Dims::Dims(std::span<const std::int64_t> values) {
  for (std::int64_t v : values) push_back(v);
}

void Dims::push_back(std::int64_t value) {
  check(size_ < kMaxDims, "a tensor has at most {} dims", kMaxDims);
  values_[static_cast<std::size_t>(size_++)] = value;
}

void Dims::insert(int position, std::int64_t value) {
  push_back(value);
  std::rotate(begin() + position, end() - 1, end());
}

void Dims::erase(int position) {
  std::copy(begin() + position + 1, end(), begin() + position);
  values_[static_cast<std::size_t>(--size_)] = 0;
}

bool Dims::operator==(const Dims& other) const {
  return std::equal(begin(), end(), other.begin(), other.end());
}

std::int64_t numel(const Shape& shape) {
  std::int64_t product = 1;
  bool empty = false;
  for (std::int64_t size : shape) {
    check(size >= 0, "negative size in shape {}", shape);
    if (size == 0) {
      empty = true;
      continue;
    }
    check(!__builtin_mul_overflow(product, size, &product), "shape {} has too many elements",
          shape);
  }
  return empty ? 0 : product;
}

Strides contiguous_strides(const Shape& shape) {
  Strides strides = shape;
  std::int64_t step = 1;
  for (int i = shape.size() - 1; i >= 0; --i) {
    strides[i] = step;
    step *= std::max<std::int64_t>(shape[i], 1);
  }
  return strides;
}

bool is_contiguous(const Shape& shape, const Strides& strides) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return true;
  std::int64_t step = 1;
  for (int i = shape.size() - 1; i >= 0; --i) {
    if (shape[i] != 1 && strides[i] != step) return false;
    step *= shape[i];
  }
  return true;
}

int normalize_dim(std::int64_t dim, int ndim, const char* op, const char* name) {
  check(ndim > 0, "{}: {} is {}, but there are no dims", op, name, dim);
  const std::int64_t positive = dim < 0 ? dim + ndim : dim;
  check(positive >= 0 && positive < ndim, "{}: {} is {}, expected {} to {}", op, name, dim, -ndim,
        ndim - 1);
  return static_cast<int>(positive);
}

Shape broadcast_shapes(const Shape& a, const Shape& b, const char* op) {
  const Shape& longer = a.size() >= b.size() ? a : b;
  const Shape& shorter = a.size() >= b.size() ? b : a;
  Shape result = longer;
  const int shift = longer.size() - shorter.size();
  for (int i = 0; i < shorter.size(); ++i) {
    std::int64_t& size = result[i + shift];
    if (size == 1) size = shorter[i];
    check(shorter[i] == size || shorter[i] == 1, "{}: shapes {} and {} do not broadcast", op, a, b);
  }
  return result;
}

std::string to_string(const Dims& dims) {
  return fmt::format("[{}]", fmt::join(dims.begin(), dims.end(), ", "));
}

}  // namespace meshloom
