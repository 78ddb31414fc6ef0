// SPDX-License-Identifier: Apache-2.0
// Walks several views of one shape, whatever their strides, as few long rows.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/base/parallel_for.h"
#include "kernels/base/tensor_view.h"

namespace meshloom::kernels::cpu {

/// Elements a thread should have at least, so that starting it pays.
inline constexpr std::int64_t kElementGrain = 16384;

/// StridedLoop has the views' dims, ordered by falling strides of the first view (the output), with
/// dims of size 1 dropped and neighbours merged where every view allows it. Always has at least one
/// dim.
template <std::size_t K>
struct StridedLoop {
  int ndim = 0;
  std::array<std::int64_t, kMaxDims> sizes{};
  std::array<std::array<std::int64_t, kMaxDims>, K> strides{};  ///< in elements

  std::int64_t row_size() const { return sizes[ndim - 1]; }
  std::int64_t row_stride(std::size_t view) const { return strides[view][ndim - 1]; }
  std::int64_t numel() const {
    std::int64_t product = 1;
    for (int i = 0; i < ndim; ++i) product *= sizes[i];
    return product;
  }
};

namespace detail {

template <std::size_t K>
bool can_merge(const StridedLoop<K>& loop, const std::array<const TensorView*, K>& views, int dim) {
  const int last = loop.ndim - 1;
  for (std::size_t k = 0; k < K; ++k)
    if (loop.strides[k][last] != views[k]->strides[dim] * views[k]->shape[dim]) return false;
  return true;
}

}  // namespace detail

template <std::size_t K>
StridedLoop<K> make_strided_loop(const std::array<const TensorView*, K>& views) {
  std::array<int, kMaxDims> order{};
  int count = 0;
  for (int d = 0; d < views[0]->ndim(); ++d)
    if (views[0]->shape[d] != 1) order[count++] = d;
  std::stable_sort(order.begin(), order.begin() + count, [&](int a, int b) {
    return std::abs(views[0]->strides[a]) > std::abs(views[0]->strides[b]);
  });
  StridedLoop<K> loop;
  for (int i = 0; i < count; ++i) {
    const int dim = order[i];
    if (loop.ndim > 0 && detail::can_merge(loop, views, dim)) {
      const int last = loop.ndim - 1;
      loop.sizes[last] *= views[0]->shape[dim];
      for (std::size_t k = 0; k < K; ++k) loop.strides[k][last] = views[k]->strides[dim];
      continue;
    }
    loop.sizes[loop.ndim] = views[0]->shape[dim];
    for (std::size_t k = 0; k < K; ++k) loop.strides[k][loop.ndim] = views[k]->strides[dim];
    ++loop.ndim;
  }
  if (loop.ndim == 0) {
    loop.sizes[0] = 1;
    loop.ndim = 1;
  }
  return loop;
}

/// Calls fn(offsets, n) for pieces of rows that cover elements [begin, end) of the loop: view k's
/// elements are at offsets[k] + i * row_stride(k), i in [0, n).
template <std::size_t K, typename Fn>
void walk_rows(const StridedLoop<K>& loop, std::int64_t begin, std::int64_t end, Fn&& fn) {
  if (begin >= end) return;
  const std::int64_t row = loop.row_size();
  std::array<std::int64_t, kMaxDims> index{};
  std::array<std::int64_t, K> offsets{};
  std::int64_t rest = begin / row;
  for (int d = loop.ndim - 2; d >= 0; --d) {
    index[d] = rest % loop.sizes[d];
    rest /= loop.sizes[d];
    for (std::size_t k = 0; k < K; ++k) offsets[k] += index[d] * loop.strides[k][d];
  }
  std::int64_t column = begin % row;
  for (std::int64_t done = begin; done < end;) {
    const std::int64_t n = std::min(row - column, end - done);
    std::array<std::int64_t, K> at = offsets;
    for (std::size_t k = 0; k < K; ++k) at[k] += column * loop.row_stride(k);
    fn(at, n);
    done += n;
    column = 0;
    for (int d = loop.ndim - 2; d >= 0; --d) {
      for (std::size_t k = 0; k < K; ++k) offsets[k] += loop.strides[k][d];
      if (++index[d] < loop.sizes[d]) break;
      for (std::size_t k = 0; k < K; ++k) offsets[k] -= loop.sizes[d] * loop.strides[k][d];
      index[d] = 0;
    }
  }
}

/// Runs walk_rows over everything, split over threads.
template <std::size_t K, typename Fn>
void for_each_row(Threads threads, const StridedLoop<K>& loop, Fn&& fn) {
  parallel_for(threads, loop.numel(), kElementGrain,
               [&](std::int64_t begin, std::int64_t end) { walk_rows(loop, begin, end, fn); });
}

}  // namespace meshloom::kernels::cpu
