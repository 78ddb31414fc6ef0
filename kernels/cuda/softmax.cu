// SPDX-License-Identifier: Apache-2.0
// Softmax and log-softmax: a warp or a block goes over each row for its maximum, for its sum and to
// write it.
#include "kernels/cuda/softmax_launch.h"

#include <cmath>

#include "kernels/cuda/device.h"
#include "kernels/cuda/primitives/rows.h"

namespace meshloom::kernels::cuda {
namespace {

template <class T, class Group>
__global__ void __launch_bounds__(Group::kBlock, 1)
    softmax_rows(T* y, const T* x, std::int64_t rows, std::int64_t columns, bool log) {
  using F = Compute<T>;
  const std::int64_t row = Group::row();
  if (row >= rows) return;
  x += row * columns;
  y += row * columns;

  F top = -INFINITY;
  for_columns<Group>(columns, [&](std::int64_t i, auto piece) {
    const auto v = load_values(x + i, piece);
    for (int j = 0; j < piece.value; ++j) top = MaxOf{}(top, v[j]);
  });
  top = Group::reduce(top, MaxOf{});

  F sum = 0;
  for_columns<Group>(columns, [&](std::int64_t i, auto piece) {
    const auto v = load_values(x + i, piece);
    for (int j = 0; j < piece.value; ++j) sum += std::exp(v[j] - top);
  });
  sum = Group::reduce(sum, SumOf{});

  const F last = log ? std::log(sum) : F{1} / sum;
  for_columns<Group>(columns, [&](std::int64_t i, auto piece) {
    auto v = load_values(x + i, piece);
    for (int j = 0; j < piece.value; ++j)
      v[j] = log ? v[j] - top - last : std::exp(v[j] - top) * last;
    store_values(y + i, v, piece);
  });
}

// dx = y (dy - sum(dy y)); of the log dx = dy - exp(y) sum(dy).
template <class T, class Group>
__global__ void __launch_bounds__(Group::kBlock, 1)
    softmax_backward_rows(T* dx, const T* dy, const T* y, std::int64_t rows, std::int64_t columns,
                          bool log) {
  using F = Compute<T>;
  const std::int64_t row = Group::row();
  if (row >= rows) return;
  dx += row * columns;
  dy += row * columns;
  y += row * columns;

  F sum = 0;
  for_columns<Group>(columns, [&](std::int64_t i, auto piece) {
    const auto g = load_values(dy + i, piece);
    if (log) {
      for (int j = 0; j < piece.value; ++j) sum += g[j];
    } else {
      const auto p = load_values(y + i, piece);
      for (int j = 0; j < piece.value; ++j) sum += g[j] * p[j];
    }
  });
  sum = Group::reduce(sum, SumOf{});

  for_columns<Group>(columns, [&](std::int64_t i, auto piece) {
    auto g = load_values(dy + i, piece);
    const auto p = load_values(y + i, piece);
    for (int j = 0; j < piece.value; ++j)
      g[j] = log ? g[j] - std::exp(p[j]) * sum : p[j] * (g[j] - sum);
    store_values(dx + i, g, piece);
  });
}

}  // namespace

void launch_softmax(const DeviceView& y, const DeviceView& x, bool log, cudaStream_t stream) {
  const std::int64_t columns = x.sizes[x.dims - 1], rows = x.numel / columns;
  for_floating("softmax", x.dtype, [&]<class T>(TypeTag<T>) {
    const bool aligned =
        vectors_fit(y.data, columns, sizeof(T)) && vectors_fit(x.data, columns, sizeof(T));
    for_row_kernel<T>(columns, aligned, [&]<class Group>(TypeTag<Group>) {
      launch(softmax_rows<T, Group>, Group::grid(rows), dim3(Group::kBlock), 0, stream,
             static_cast<T*>(y.data), static_cast<const T*>(x.data), rows, columns, log);
    });
  });
}

void launch_softmax_backward(const DeviceView& dx, const DeviceView& dy, const DeviceView& y,
                             bool log, cudaStream_t stream) {
  const std::int64_t columns = dx.sizes[dx.dims - 1], rows = dx.numel / columns;
  for_floating("softmax_backward", dx.dtype, [&]<class T>(TypeTag<T>) {
    const bool aligned = vectors_fit(dx.data, columns, sizeof(T)) &&
                         vectors_fit(dy.data, columns, sizeof(T)) &&
                         vectors_fit(y.data, columns, sizeof(T));
    for_row_kernel<T>(columns, aligned, [&]<class Group>(TypeTag<Group>) {
      launch(softmax_backward_rows<T, Group>, Group::grid(rows), dim3(Group::kBlock), 0, stream,
             static_cast<T*>(dx.data), static_cast<const T*>(dy.data),
             static_cast<const T*>(y.data), rows, columns, log);
    });
  });
}

}  // namespace meshloom::kernels::cuda
