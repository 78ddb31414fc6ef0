// SPDX-License-Identifier: Apache-2.0
// Softmax and log-softmax over the last dim: calls of Backend on the CPU.
#include "kernels/cpu/cpu_backend.h"

#include <cmath>

#include "kernels/cpu/simd/dispatch.h"
#include "kernels/cpu/simd/streaming.h"
#include "kernels/cpu/strided_loop.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/softmax.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/simd/rows.h"
#include "kernels/cpu/simd/simd_math.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using simd::FloatTag;
using V = hn::Vec<FloatTag>;

template <class T>
void log_softmax_row(bool stream, T* y, const T* x, std::size_t n) {
  const FloatTag d;
  const V top = hn::Set(d, simd::row_max(x, n));
  const float sum = simd::reduce_row(
      n, [d, top](V v) HWY_ATTR { return simd::exp_bounded(d, hn::Sub(v, top)); }, x);
  const V log_sum = hn::Set(d, std::log(sum));
  simd::map_row(
      stream, y, n, [top, log_sum](V v) HWY_ATTR { return hn::Sub(hn::Sub(v, top), log_sum); }, x);
}

// Short rows keep their exponentials in float32 beside; long ones compute them twice.
constexpr std::size_t kScratch = 4096;

template <class T>
void softmax_row(bool stream, T* y, const T* x, std::size_t n) {
  const FloatTag d;
  const V top = hn::Set(d, simd::row_max(x, n));
  const auto exponential = [d, top](V v) HWY_ATTR { return simd::exp_bounded(d, hn::Sub(v, top)); };
  if (n <= kScratch) {
    alignas(HWY_MAX_BYTES) float scratch[kScratch];
    const V scale = hn::Set(d, 1.0f / simd::map_and_sum_row(scratch, n, exponential, x));
    simd::map_row(
        stream, y, n, [scale](V v) HWY_ATTR { return hn::Mul(v, scale); }, scratch);
    return;
  }
  const V scale = hn::Set(d, 1.0f / simd::reduce_row(n, exponential, x));
  simd::map_row(
      stream, y, n, [exponential, scale](V v) HWY_ATTR { return hn::Mul(exponential(v), scale); },
      x);
}

void softmax_rows(DType dtype, bool log, bool stream, void* y, const void* x, std::int64_t rows,
                  std::size_t n) {
  dispatch_float(dtype, "softmax", [&]<typename T>(TypeTag<T>) HWY_ATTR {
    T* out = static_cast<T*>(y);
    const T* in = static_cast<const T*>(x);
    for (std::int64_t r = 0; r < rows; ++r, out += n, in += n) {
      if (log)
        log_softmax_row(stream, out, in, n);
      else
        softmax_row(stream, out, in, n);
    }
  });
}

template <class T>
void softmax_backward_row(bool stream, T* dx, const T* dy, const T* y, std::size_t n) {
  const FloatTag d;
  const float dot = simd::reduce_row(
      n, [](V g, V p) HWY_ATTR { return hn::Mul(g, p); }, dy, y);
  const V center = hn::Set(d, dot);
  simd::map_row(
      stream, dx, n, [center](V g, V p) HWY_ATTR { return hn::Mul(p, hn::Sub(g, center)); }, dy, y);
}

template <class T>
void log_softmax_backward_row(bool stream, T* dx, const T* dy, const T* y, std::size_t n) {
  const FloatTag d;
  const V sum = hn::Set(d, simd::reduce_row(
                               n, [](V g) HWY_ATTR { return g; }, dy));
  simd::map_row(
      stream, dx, n,
      [d, sum](V g, V log_p)
          HWY_ATTR { return hn::NegMulAdd(simd::exp_bounded(d, log_p), sum, g); },
      dy, y);
}

void softmax_backward_rows(DType dtype, bool log, bool stream, void* dx, const void* dy,
                           const void* y, std::int64_t rows, std::size_t n) {
  dispatch_float(dtype, "softmax_backward", [&]<typename T>(TypeTag<T>) HWY_ATTR {
    for (std::int64_t r = 0; r < rows; ++r) {
      T* out = static_cast<T*>(dx) + r * n;
      const T* grad = static_cast<const T*>(dy) + r * n;
      const T* in = static_cast<const T*>(y) + r * n;
      if (log)
        log_softmax_backward_row(stream, out, grad, in, n);
      else
        softmax_backward_row(stream, out, grad, in, n);
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::kernels::cpu {
namespace {

HWY_EXPORT(softmax_rows);
HWY_EXPORT(softmax_backward_rows);

void softmax_row_double(double* y, const double* x, std::int64_t n, bool log) {
  const double top = *std::max_element(x, x + n);
  double sum = 0.0;
  for (std::int64_t i = 0; i < n; ++i) sum += std::exp(x[i] - top);
  for (std::int64_t i = 0; i < n; ++i)
    y[i] = log ? x[i] - top - std::log(sum) : std::exp(x[i] - top) / sum;
}

void softmax_backward_row_double(double* dx, const double* dy, const double* y, std::int64_t n,
                                 bool log) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < n; ++i) sum += log ? dy[i] : dy[i] * y[i];
  for (std::int64_t i = 0; i < n; ++i)
    dx[i] = log ? dy[i] - std::exp(y[i]) * sum : y[i] * (dy[i] - sum);
}

std::int64_t row_grain(std::int64_t columns) {
  return std::max<std::int64_t>(1, kElementGrain / columns);
}

std::byte* row_at(const TensorView& view, std::int64_t row) {
  return view.as<std::byte>() +
         row * view.shape.back() * static_cast<std::int64_t>(dtype_size(view.dtype));
}

}  // namespace

void CpuBackend::softmax(const KernelContext& context, const TensorView& y, const TensorView& x,
                         bool log) {
  if (x.numel() == 0) return;
  const std::int64_t columns = x.shape.back();
  const bool wide = x.dtype == DType::kFloat64;
  const bool stream = y.bytes() >= kStreamingBytes && columns >= 128 && y.data != x.data;
  parallel_for(context.threads, x.numel() / columns, row_grain(columns),
               [&](std::int64_t begin, std::int64_t end) {
                 if (!wide) {
                   HWY_DYNAMIC_DISPATCH(softmax_rows)
                   (x.dtype, log, stream, row_at(y, begin), row_at(x, begin), end - begin, columns);
                   return finish_streaming(stream);
                 }
                 for (std::int64_t r = begin; r < end; ++r)
                   softmax_row_double(y.as<double>() + r * columns,
                                      x.as<const double>() + r * columns, columns, log);
               });
}

void CpuBackend::softmax_backward(const KernelContext& context, const TensorView& dx,
                                  const TensorView& dy, const TensorView& y, bool log) {
  if (dx.numel() == 0) return;
  const std::int64_t columns = dx.shape.back();
  const bool wide = dx.dtype == DType::kFloat64;
  const bool stream = dx.bytes() >= kStreamingBytes && columns >= 128 && dx.data != dy.data;
  parallel_for(context.threads, dx.numel() / columns, row_grain(columns),
               [&](std::int64_t begin, std::int64_t end) {
                 if (!wide) {
                   HWY_DYNAMIC_DISPATCH(softmax_backward_rows)
                   (dx.dtype, log, stream, row_at(dx, begin), row_at(dy, begin), row_at(y, begin),
                    end - begin, columns);
                   return finish_streaming(stream);
                 }
                 for (std::int64_t r = begin; r < end; ++r)
                   softmax_backward_row_double(dx.as<double>() + r * columns,
                                               dy.as<const double>() + r * columns,
                                               y.as<const double>() + r * columns, columns, log);
               });
}

}  // namespace meshloom::kernels::cpu
#endif  // HWY_ONCE
