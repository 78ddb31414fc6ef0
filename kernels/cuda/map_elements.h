// SPDX-License-Identifier: Apache-2.0
// One kernel for all elementwise calls: outputs from inputs of one shape, element by element, with
// vectors of 16 bytes where rows allow them. For .cu files.
#pragma once

#include "kernels/cuda/primitives/any_element.h"
#include "kernels/cuda/primitives/grid.h"
#include "kernels/cuda/primitives/vectors.h"
#include "kernels/cuda/strided_plan.h"

namespace meshloom::kernels::cuda {

inline constexpr int kMapThreads = 256;
/// Vectors, or elements, that a thread takes before there are more blocks.
inline constexpr std::int64_t kMapItems = 2;

inline dim3 map_grid(std::int64_t items) { return strided_grid(items, kMapThreads * kMapItems); }

/// `count` elements from `from` on, or the one at `from` throughout where it is broadcast.
template <class T, int kVector>
__device__ __forceinline__ void load_items(float (&to)[kVector], const T* from, bool broadcast,
                                           int count) {
  if (broadcast) {
    const float value = to_compute(*from);
    for (int i = 0; i < kVector; ++i) to[i] = value;
    return;
  }
  if constexpr (kVector > 1) {
    if (count == kVector) {
      const Vector<T> vector = load_vector(from);
      for (int i = 0; i < kVector; ++i) to[i] = to_compute(vector[i]);
      return;
    }
  }
  for (int i = 0; i < kVector; ++i) to[i] = i < count ? to_compute(from[i]) : 0.0f;
}

template <class T, int kVector>
__device__ __forceinline__ void store_items(T* to, const float (&from)[kVector], int count) {
  if constexpr (kVector > 1) {
    if (count == kVector) {
      Vector<T> vector;
      for (int i = 0; i < kVector; ++i) vector[i] = from_compute<T>(from[i]);
      store_vector(to, vector);
      return;
    }
  }
  for (int i = 0; i < kVector; ++i)
    if (i < count) to[i] = from_compute<T>(from[i]);
}

/// The plan's last dim counts pieces of kVector elements of a row of `row`, the last one may be
/// shorter. Outputs may be inputs: a thread loads all that it needs before it stores.
template <class T, int kVector, int kOutputs, int kInputs, class Function>
__global__ void __launch_bounds__(kMapThreads)
    map_elements(const __grid_constant__ StridedPlan<kOutputs + kInputs> plan, std::int64_t row,
                 Function function) {
  for (std::int64_t i = grid_thread<kMapThreads>(); i < plan.numel;
       i += grid_threads<kMapThreads>()) {
    std::int64_t at[kOutputs + kInputs];
    const std::int64_t left = row - locate(plan, i, at) * kVector;
    const int count = left < kVector ? static_cast<int>(left) : kVector;
    float in[kInputs][kVector];
    for (int k = 0; k < kInputs; ++k)
      load_items<T, kVector>(in[k],
                             static_cast<const T*>(plan.data[kOutputs + k]) + at[kOutputs + k],
                             kVector > 1 && plan.row_stride(kOutputs + k) == 0, count);
    float out[kOutputs][kVector];
    function(out, in);
    for (int k = 0; k < kOutputs; ++k)
      store_items<T, kVector>(static_cast<T*>(plan.data[k]) + at[k], out[k], count);
  }
}

/// The same in double, of any dtypes.
template <int kOutputs, int kInputs, class Function>
__global__ void __launch_bounds__(kMapThreads, 4)
    map_any(const __grid_constant__ StridedPlan<kOutputs + kInputs> plan, Function function) {
  for (std::int64_t i = grid_thread<kMapThreads>(); i < plan.numel;
       i += grid_threads<kMapThreads>()) {
    std::int64_t at[kOutputs + kInputs];
    locate(plan, i, at);
    double in[kInputs][1];
    for (int k = 0; k < kInputs; ++k)
      in[k][0] =
          load_any<double>(plan.dtypes[kOutputs + k], plan.data[kOutputs + k], at[kOutputs + k]);
    double out[kOutputs][1] = {};
    function(out, in);
    for (int k = 0; k < kOutputs; ++k) store_any(plan.dtypes[k], plan.data[k], at[k], out[k][0]);
  }
}

/// Whether every row is dense, or for inputs one element, and begins at a multiple of a vector.
template <int kViews>
bool rows_take_vectors(const StridedPlan<kViews>& plan, int outputs, std::size_t element_bytes) {
  for (int k = 0; k < kViews; ++k) {
    if (k >= outputs && plan.row_stride(k) == 0) continue;
    // A row of one element has whatever stride it was given.
    if (plan.row_stride(k) != 1) return false;
    if (!vectors_fit(plan.data[k], 0, element_bytes)) return false;
    for (int d = 0; d + 1 < plan.dims; ++d)
      if (!vectors_fit(plan.data[k], plan.strides[k][d], element_bytes)) return false;
  }
  return true;
}

template <class T, int kOutputs, int kInputs, class Function>
void launch_typed_map(StridedPlan<kOutputs + kInputs> plan, Function function,
                      cudaStream_t stream) {
  constexpr int kVector = kVectorElements<T>;
  const std::int64_t row = plan.row_size();
  if (!rows_take_vectors(plan, kOutputs, sizeof(T)))
    return launch(map_elements<T, 1, kOutputs, kInputs, Function>, map_grid(plan.numel),
                  dim3(kMapThreads), 0, stream, plan, row, function);
  const int last = plan.dims - 1;
  plan.numel = plan.numel / row * divide_up<std::int64_t>(row, kVector);
  plan.sizes[last] = divide_up<std::int64_t>(row, kVector);
  for (int k = 0; k < kOutputs + kInputs; ++k) plan.strides[k][last] *= kVector;
  launch(map_elements<T, kVector, kOutputs, kInputs, Function>, map_grid(plan.numel),
         dim3(kMapThreads), 0, stream, plan, row, function);
}

/// Views have one shape, with elements, outputs first. `function` has an operator() that takes
/// C (&out)[kOutputs][n] and const C (&in)[kInputs][n]: float for views that are all float32 or all
/// bfloat16, else double.
template <int kOutputs, int kInputs, class Function>
void launch_map(const char* what, const DeviceView* const (&views)[kOutputs + kInputs],
                Function function, cudaStream_t stream) {
  const auto plan = make_strided_plan<kOutputs + kInputs>(views);
  bool same = true;
  for (const DeviceView* view : views) {
    check_computed(what, view->dtype);
    same = same && view->dtype == views[0]->dtype;
  }
  if (same && views[0]->dtype == DType::kFloat32)
    return launch_typed_map<float, kOutputs, kInputs>(plan, function, stream);
  if (same && views[0]->dtype == DType::kBFloat16)
    return launch_typed_map<__nv_bfloat16, kOutputs, kInputs>(plan, function, stream);
  launch(map_any<kOutputs, kInputs, Function>, map_grid(plan.numel), dim3(kMapThreads), 0, stream,
         plan, function);
}

}  // namespace meshloom::kernels::cuda
