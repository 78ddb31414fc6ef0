// SPDX-License-Identifier: Apache-2.0
// Dropout and random fills by Philox on the global element index.
#include "kernels/cuda/random_launch.h"

#include "kernels/cuda/normal_pair.h"
#include "kernels/cuda/primitives/convert.h"
#include "kernels/cuda/primitives/dtype_switch.h"
#include "kernels/cuda/primitives/grid.h"
#include "kernels/cuda/primitives/vectors.h"

namespace meshloom::kernels::cuda {
namespace {

constexpr int kThreads = 256;
// Values of one block of the generator.
constexpr int kValues = 4;

template <class T>
__device__ __forceinline__ T dropped(T x, std::uint32_t bits, const DropoutRule& rule) {
  if (bits < rule.threshold) return from_compute<T>(Compute<T>(0));
  if constexpr (std::is_same_v<T, double>)
    return x / rule.divisor;
  else
    return from_compute<T>(to_compute(x) * rule.scale);
}

// A thread draws a block of the generator, whose first value is that of element
// `item` * 4 - first_index % 4. With kVector that is a multiple of 4, and rows are aligned.
template <class T, bool kVector>
__global__ void __launch_bounds__(kThreads)
    drop_elements(T* y, const T* x, std::int64_t n, PhiloxStream random, std::uint64_t first_index,
                  DropoutRule rule) {
  const auto phase = static_cast<std::int64_t>(first_index % kValues);
  const std::int64_t items = divide_up<std::int64_t>(n + phase, kValues);
  for (std::int64_t item = grid_thread<kThreads>(); item < items;
       item += grid_threads<kThreads>()) {
    const PhiloxBlock bits = random.block(first_index / kValues + static_cast<std::uint64_t>(item));
    const std::int64_t at = item * kValues - phase;
    if constexpr (kVector) {
      if (at + kValues <= n) {
        Vector<T, kValues> vector = *reinterpret_cast<const Vector<T, kValues>*>(x + at);
        for (int i = 0; i < kValues; ++i) vector[i] = dropped(vector[i], bits[i], rule);
        *reinterpret_cast<Vector<T, kValues>*>(y + at) = vector;
        continue;
      }
    }
    for (int i = 0; i < kValues; ++i)
      if (at + i >= 0 && at + i < n) y[at + i] = dropped(x[at + i], bits[i], rule);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    fill_elements(T* y, std::int64_t n, PhiloxStream random, std::uint64_t first_index, bool normal,
                  float scale, float offset) {
  const auto phase = static_cast<std::int64_t>(first_index % kValues);
  const std::int64_t items = divide_up<std::int64_t>(n + phase, kValues);
  for (std::int64_t item = grid_thread<kThreads>(); item < items;
       item += grid_threads<kThreads>()) {
    const PhiloxBlock bits = random.block(first_index / kValues + static_cast<std::uint64_t>(item));
    float values[kValues];
    if (normal) {
      normal_pair(bits[0], bits[1], values[0], values[1]);
      normal_pair(bits[2], bits[3], values[2], values[3]);
    } else {
      for (int i = 0; i < kValues; ++i) values[i] = philox_uniform(bits[i]);
    }
    const std::int64_t at = item * kValues - phase;
    for (int i = 0; i < kValues; ++i) {
      if (at + i < 0 || at + i >= n) continue;
      if constexpr (std::is_same_v<T, double>)
        y[at + i] = std::fma(static_cast<double>(values[i]), static_cast<double>(scale),
                             static_cast<double>(offset));
      else
        y[at + i] = from_compute<T>(std::fma(values[i], scale, offset));
    }
  }
}

dim3 grid_of(std::int64_t n, std::uint64_t first_index) {
  const std::int64_t items =
      divide_up<std::int64_t>(n + static_cast<std::int64_t>(first_index % kValues), kValues);
  return strided_grid(items, kThreads * 2);
}

}  // namespace

void launch_dropout(const DeviceView& y, const DeviceView& x, const PhiloxStream& random,
                    std::uint64_t first_index, const DropoutRule& rule, cudaStream_t stream) {
  for_floating("dropout", x.dtype, [&]<class T>(TypeTag<T>) {
    auto kernel = drop_elements<T, false>;
    // Four float64 are more than one instruction loads.
    if constexpr (!std::is_same_v<T, double>) {
      if (first_index % kValues == 0 && vectors_fit(y.data, 0, 1) && vectors_fit(x.data, 0, 1))
        kernel = drop_elements<T, true>;
    }
    launch(kernel, grid_of(x.numel, first_index), dim3(kThreads), 0, stream,
           static_cast<T*>(y.data), static_cast<const T*>(x.data), x.numel, random, first_index,
           rule);
  });
}

void launch_random_fill(const DeviceView& dst, const PhiloxStream& random,
                        std::uint64_t first_index, bool normal, float scale, float offset,
                        cudaStream_t stream) {
  for_floating(normal ? "fill_normal" : "fill_uniform", dst.dtype, [&]<class T>(TypeTag<T>) {
    launch(fill_elements<T>, grid_of(dst.numel, first_index), dim3(kThreads), 0, stream,
           static_cast<T*>(dst.data), dst.numel, random, first_index, normal, scale, offset);
  });
}

}  // namespace meshloom::kernels::cuda
