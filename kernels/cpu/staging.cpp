// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/staging.h"

#include "kernels/cpu/simd/dispatch.h"

namespace meshloom::kernels::cpu {
namespace {

template <typename F>
void gather_as(F* buffer, const TensorView& view, std::int64_t offset, std::int64_t stride,
               std::int64_t n) {
  dispatch_any(view.dtype, "gather", [&]<typename T>(TypeTag<T>) {
    const T* from = view.as<const T>() + offset;
    for (std::int64_t i = 0; i < n; ++i) buffer[i] = convert<F>(from[i * stride]);
  });
}

template <typename F>
void scatter_from(const F* buffer, const TensorView& view, std::int64_t offset, std::int64_t stride,
                  std::int64_t n) {
  dispatch_any(view.dtype, "scatter", [&]<typename T>(TypeTag<T>) {
    T* to = view.as<T>() + offset;
    for (std::int64_t i = 0; i < n; ++i) to[i * stride] = convert<T>(buffer[i]);
  });
}

}  // namespace

void gather(float* buffer, const TensorView& view, std::int64_t offset, std::int64_t stride,
            std::int64_t n) {
  gather_as(buffer, view, offset, stride, n);
}
void gather(double* buffer, const TensorView& view, std::int64_t offset, std::int64_t stride,
            std::int64_t n) {
  gather_as(buffer, view, offset, stride, n);
}
void scatter(const float* buffer, const TensorView& view, std::int64_t offset, std::int64_t stride,
             std::int64_t n) {
  scatter_from(buffer, view, offset, stride, n);
}
void scatter(const double* buffer, const TensorView& view, std::int64_t offset, std::int64_t stride,
             std::int64_t n) {
  scatter_from(buffer, view, offset, stride, n);
}

}  // namespace meshloom::kernels::cpu
