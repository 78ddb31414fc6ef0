// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/matmul/bias_gelu_launch.h"

#include "kernels/cuda/primitives/any_element.h"
#include "kernels/cuda/primitives/gelu.h"
#include "kernels/cuda/primitives/grid.h"

namespace meshloom::kernels::cuda {
namespace {

constexpr int kBiasGeluThreads = 256;

template <class C>
__device__ C activate(C x, Activation activation) {
  if (activation == Activation::kGelu) return gelu(x);
  return activation == Activation::kGeluTanh ? gelu_tanh(x) : x;
}

template <class T>
__global__ void bias_gelu(BiasGelu call) {
  const std::int64_t count = call.batch * call.rows * call.columns;
  for (std::int64_t i = grid_thread<kBiasGeluThreads>(); i < count;
       i += grid_threads<kBiasGeluThreads>()) {
    const std::int64_t line = i / call.columns, column = i - line * call.columns;
    const std::int64_t batch = line / call.rows, row = line - batch * call.rows;
    T* x = static_cast<T*>(call.x) + batch * call.x_batch + row * call.x_row + column;
    T* y = static_cast<T*>(call.y) + batch * call.y_batch + row * call.y_row + column;
    Compute<T> value = to_compute(*x);
    if (call.bias != nullptr) {
      value += load_any<Compute<T>>(call.bias_dtype, call.bias, column * call.bias_stride);
      if (x != y) *x = from_compute<T>(value);
    }
    *y = from_compute<T>(activate(value, call.activation));
  }
}

}  // namespace

void launch_bias_gelu(const BiasGelu& call, cudaStream_t stream) {
  const std::int64_t count = call.batch * call.rows * call.columns;
  if (count == 0) return;
  for_floating("matmul's epilogue", call.dtype, [&](auto tag) {
    launch(bias_gelu<typename decltype(tag)::Type>, strided_grid(count, kBiasGeluThreads),
           dim3(kBiasGeluThreads), 0, stream, call);
  });
}

}  // namespace meshloom::kernels::cuda
