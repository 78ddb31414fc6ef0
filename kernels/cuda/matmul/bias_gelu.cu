// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/matmul/bias_gelu_launch.h"

#include "kernels/cuda/primitives/convert.h"
#include "kernels/cuda/primitives/dtype_switch.h"

namespace meshloom::kernels::cuda {
namespace {

constexpr int kBiasGeluThreads = 256;
constexpr std::int64_t kMostBiasGeluBlocks = 8192;

template <class C>
__device__ C load_bias(const void* data, DType dtype, std::int64_t i) {
  switch (dtype) {
    case DType::kBFloat16:
      return static_cast<C>(to_compute(static_cast<const __nv_bfloat16*>(data)[i]));
    case DType::kFloat16: return static_cast<C>(to_compute(static_cast<const __half*>(data)[i]));
    case DType::kFloat64: return static_cast<C>(static_cast<const double*>(data)[i]);
    default: return static_cast<C>(static_cast<const float*>(data)[i]);
  }
}

template <class C>
__device__ C activate(C x, Activation activation) {
  constexpr C kHalf = static_cast<C>(0.5), kOne = static_cast<C>(1);
  if (activation == Activation::kGelu)
    return kHalf * x * (kOne + erf(x * static_cast<C>(0.70710678118654752440)));
  if (activation == Activation::kGeluTanh)
    return kHalf * x *
           (kOne + tanh(static_cast<C>(0.79788456080286535588) *
                        (x + static_cast<C>(0.044715) * x * x * x)));
  return x;
}

template <class T>
__global__ void bias_gelu(BiasGelu call) {
  const std::int64_t count = call.batch * call.rows * call.columns;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kBiasGeluThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kBiasGeluThreads + threadIdx.x;
       i < count; i += step) {
    const std::int64_t line = i / call.columns, column = i - line * call.columns;
    const std::int64_t batch = line / call.rows, row = line - batch * call.rows;
    T* x = static_cast<T*>(call.x) + batch * call.x_batch + row * call.x_row + column;
    T* y = static_cast<T*>(call.y) + batch * call.y_batch + row * call.y_row + column;
    Compute<T> value = to_compute(*x);
    if (call.bias != nullptr) {
      value += load_bias<Compute<T>>(call.bias, call.bias_dtype, column * call.bias_stride);
      if (x != y) *x = from_compute<T>(value);
    }
    *y = from_compute<T>(activate(value, call.activation));
  }
}

}  // namespace

void launch_bias_gelu(const BiasGelu& call, cudaStream_t stream) {
  const std::int64_t count = call.batch * call.rows * call.columns;
  if (count == 0) return;
  const std::int64_t needed = (count + kBiasGeluThreads - 1) / kBiasGeluThreads;
  const dim3 grid(
      static_cast<unsigned>(needed < kMostBiasGeluBlocks ? needed : kMostBiasGeluBlocks));
  for_floating("matmul's epilogue", call.dtype, [&](auto tag) {
    launch(bias_gelu<typename decltype(tag)::Type>, grid, dim3(kBiasGeluThreads), 0, stream, call);
  });
}

}  // namespace meshloom::kernels::cuda
