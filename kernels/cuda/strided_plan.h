// SPDX-License-Identifier: Apache-2.0
// How a kernel walks several views of one shape, whatever their strides: with as few dims as they
// allow. Plain data; .cu files make it on the host and hand it to their kernels.
#pragma once

#include "kernels/cuda/device.h"
#include "kernels/cuda/device_view.h"

namespace meshloom::kernels::cuda {

/// The dims lie in the order of falling strides of the first view. There is at least one.
template <int kViews>
struct StridedPlan {
  std::int64_t numel = 0;
  int dims = 0;
  std::int64_t sizes[DeviceView::kMostDims] = {};
  std::int64_t strides[kViews][DeviceView::kMostDims] = {};  ///< in elements
  void* data[kViews] = {};
  DType dtypes[kViews] = {};

  __host__ __device__ std::int64_t row_size() const { return sizes[dims - 1]; }
  __host__ __device__ std::int64_t row_stride(int view) const { return strides[view][dims - 1]; }
};

/// Appends a dim, or makes it part of the last one where every view allows that.
template <int kViews>
void append_dim(StridedPlan<kViews>& plan, std::int64_t size, const std::int64_t* strides) {
  bool merges = plan.dims > 0;
  for (int k = 0; merges && k < kViews; ++k)
    merges = plan.strides[k][plan.dims - 1] == strides[k] * size;
  if (!merges) plan.sizes[plan.dims++] = 1;
  plan.sizes[plan.dims - 1] *= size;
  for (int k = 0; k < kViews; ++k) plan.strides[k][plan.dims - 1] = strides[k];
}

/// Gives a plan without dims one of size 1, and counts its elements.
template <int kViews>
void finish_plan(StridedPlan<kViews>& plan) {
  if (plan.dims == 0) plan.sizes[plan.dims++] = 1;
  plan.numel = 1;
  for (int d = 0; d < plan.dims; ++d) plan.numel *= plan.sizes[d];
}

/// The dims of `view` for which `wanted(dim)` holds and whose size is not 1, in the order of
/// falling strides, of equal ones in their own. Returns how many there are.
template <class Wanted>
int ordered_dims(const DeviceView& view, int (&order)[DeviceView::kMostDims], Wanted&& wanted) {
  const auto distance = [&view](int dim) {
    return view.strides[dim] < 0 ? -view.strides[dim] : view.strides[dim];
  };
  int count = 0;
  for (int dim = 0; dim < view.dims; ++dim) {
    if (view.sizes[dim] == 1 || !wanted(dim)) continue;
    int at = count++;
    for (; at > 0 && distance(order[at - 1]) < distance(dim); --at) order[at] = order[at - 1];
    order[at] = dim;
  }
  return count;
}

/// The views have one shape, outputs first.
template <int kViews>
StridedPlan<kViews> make_strided_plan(const DeviceView* const (&views)[kViews]) {
  int order[DeviceView::kMostDims];
  const int count = ordered_dims(*views[0], order, [](int) { return true; });
  StridedPlan<kViews> plan;
  for (int i = 0; i < count; ++i) {
    std::int64_t strides[kViews];
    for (int k = 0; k < kViews; ++k) strides[k] = views[k]->strides[order[i]];
    append_dim(plan, views[0]->sizes[order[i]], strides);
  }
  finish_plan(plan);
  for (int k = 0; k < kViews; ++k) {
    plan.data[k] = views[k]->data;
    plan.dtypes[k] = views[k]->dtype;
  }
  return plan;
}

/// Sets where element `index` of the plan lies in every view, and returns its place in its row.
template <int kViews>
__device__ __forceinline__ std::int64_t locate(const StridedPlan<kViews>& plan, std::int64_t index,
                                               std::int64_t (&offsets)[kViews]) {
  for (int k = 0; k < kViews; ++k) offsets[k] = 0;
  std::int64_t rest = index;
  std::int64_t column = 0;
  for (int d = plan.dims - 1; d >= 0; --d) {
    std::int64_t place = rest;
    if (d > 0) {
      // Division of 64 bits takes many times as long as one of 32.
      if (plan.numel <= 0x7fffffff)
        rest = static_cast<std::uint32_t>(rest) / static_cast<std::uint32_t>(plan.sizes[d]);
      else
        rest /= plan.sizes[d];
      place -= rest * plan.sizes[d];
    }
    if (d == plan.dims - 1) column = place;
    for (int k = 0; k < kViews; ++k) offsets[k] += place * plan.strides[k][d];
  }
  return column;
}

}  // namespace meshloom::kernels::cuda
