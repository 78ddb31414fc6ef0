// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/symm_mem/fused/layout.h"

#include "daemon/tensor/ops/shape.h"

namespace meshloom::comm {

TensorView with_dim_first(const TensorView& view, int dim) {
  TensorView moved = view;
  const std::int64_t size = view.size(dim), stride = view.stride(dim);
  moved.shape.erase(dim);
  moved.strides.erase(dim);
  moved.shape.insert(0, size);
  moved.strides.insert(0, stride);
  return moved;
}

TensorView range_of_dim(const TensorView& view, int dim, std::int64_t begin, std::int64_t count) {
  TensorView part = view;
  part.data = view.as<std::byte>() +
              begin * view.stride(dim) * static_cast<std::int64_t>(dtype_size(view.dtype));
  part.shape[dim] = count;
  return part;
}

std::int64_t row_count(const Shape& shape) {
  std::int64_t rows = 1;
  for (int d = 0; d + 1 < shape.size(); ++d) rows *= shape[d];
  return rows;
}

TensorView folded_rows(const TensorView& view) {
  return make_view(view.data, view.dtype, Shape{row_count(view.shape), view.shape.back()},
                   view.device);
}

Tensor with_dim_moved(const Tensor& x, int from, int to) {
  Dims order;
  for (int d = 0; d < x.ndim(); ++d)
    if (d != from) order.push_back(d);
  order.insert(to, from);
  return ops::permute(x, order);
}

Tensor restride_outermost(const Tensor& x, std::int64_t dim) {
  const int first = normalize_dim(dim, x.ndim(), "restride_outermost");
  return with_dim_moved(ops::contiguous(with_dim_moved(x, first, 0)), 0, first);
}

Tensor restride_shard_for_gather(const Tensor& x, std::int64_t gather_dim) {
  const int dim = normalize_dim(gather_dim, x.ndim(), "restride_shard_for_gather");
  return dim == x.ndim() - 1 ? ops::contiguous(x) : restride_outermost(x, dim);
}

Tensor restride_for_scatter(const Tensor& x, std::int64_t scatter_dim) {
  const int dim = normalize_dim(scatter_dim, x.ndim(), "restride_for_scatter");
  return dim == x.ndim() - 1 ? ops::contiguous(x) : restride_outermost(x, dim);
}

}  // namespace meshloom::comm
