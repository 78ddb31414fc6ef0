// SPDX-License-Identifier: Apache-2.0
// A typed, strided window on memory that someone else owns: what kernels and collectives take.
#pragma once

#include <cstddef>
#include <utility>

#include "kernels/base/device.h"
#include "kernels/base/dtype.h"
#include "kernels/base/shape.h"

namespace meshloom {

/// It is plain data; the memory outlives the view's use. Strides are in elements and may be 0
/// (expanded) or any order. A default view (data == nullptr, no dims) means "not given".
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  Shape shape;
  Strides strides;
  Device device;

  bool defined() const { return data != nullptr || !shape.empty(); }
  int ndim() const { return shape.size(); }
  std::int64_t size(int dim) const { return shape[dim]; }
  std::int64_t stride(int dim) const { return strides[dim]; }
  std::int64_t numel() const { return meshloom::numel(shape); }
  std::size_t bytes() const { return static_cast<std::size_t>(numel()) * dtype_size(dtype); }
  bool contiguous() const { return is_contiguous(shape, strides); }

  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

/// Makes a row-major view.
inline TensorView make_view(void* data, DType dtype, const Shape& shape,
                            Device device = kCpuDevice) {
  return {data, dtype, shape, contiguous_strides(shape), device};
}

/// Returns the same matrices with rows as columns: the last two dims swapped.
inline TensorView transposed_matrix(TensorView view) {
  const int last = view.ndim() - 1;
  std::swap(view.shape[last], view.shape[last - 1]);
  std::swap(view.strides[last], view.strides[last - 1]);
  return view;
}

/// Returns rows [first, first + count) of a view's first dim; of an undefined view an undefined
/// one.
inline TensorView rows_of(const TensorView& view, std::int64_t first, std::int64_t count) {
  TensorView part = view;
  if (!view.defined()) return part;
  part.data = view.as<std::byte>() +
              first * view.stride(0) * static_cast<std::int64_t>(dtype_size(view.dtype));
  part.shape[0] = count;
  return part;
}

}  // namespace meshloom
