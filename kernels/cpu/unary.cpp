// SPDX-License-Identifier: Apache-2.0
// Elementwise functions of one tensor and their gradients: calls of Backend on the CPU.
#include "kernels/cpu/cpu_backend.h"

#include <cmath>

#include "kernels/cpu/simd/dispatch.h"
#include "kernels/cpu/simd/streaming.h"
#include "kernels/cpu/staging.h"
#include "kernels/cpu/strided_loop.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/unary.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/simd/rows.h"
#include "kernels/cpu/unary_ops.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

using V = hwy::HWY_NAMESPACE::Vec<simd::FloatTag>;

void unary_row(UnaryOp op, float scalar, DType dtype, bool stream, void* y, const void* x,
               std::size_t n) {
  simd::dispatch_computed(dtype, "unary", [&]<typename T>(TypeTag<T>) HWY_ATTR {
    simd::dispatch_unary<T>(op, scalar, [&](auto f) HWY_ATTR {
      simd::map_row(
          stream, static_cast<T*>(y), n, [f](V v) HWY_ATTR { return f.value(v); },
          static_cast<const T*>(x));
    });
  });
}

void unary_backward_row(UnaryOp op, float scalar, DType dtype, bool stream, void* dx,
                        const void* dy, const void* x, const void* y, std::size_t n) {
  simd::dispatch_computed(dtype, "unary_backward", [&]<typename T>(TypeTag<T>) HWY_ATTR {
    simd::dispatch_unary<T>(op, scalar, [&](auto f) HWY_ATTR {
      simd::map_row(
          stream, static_cast<T*>(dx), n,
          [f](V grad, V in, V out)
              HWY_ATTR { return hwy::HWY_NAMESPACE::Mul(grad, f.slope(in, out)); },
          static_cast<const T*>(dy), static_cast<const T*>(x), static_cast<const T*>(y));
    });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::kernels::cpu {
namespace {

HWY_EXPORT(unary_row);
HWY_EXPORT(unary_backward_row);

constexpr double kSqrt2OverPi = 0.79788456080286535588;
constexpr double kInvSqrt2Pi = 0.39894228040143267794;
constexpr double kCubic = 0.044715;

double gelu_tanh_inner(double x) { return std::tanh(kSqrt2OverPi * (x + kCubic * x * x * x)); }
double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
double normal_cdf(double x) { return 0.5 * std::erfc(-x * M_SQRT1_2); }

double value_double(UnaryOp op, double x, double scalar) {
  switch (op) {
    case UnaryOp::kNeg: return -x;
    case UnaryOp::kExp: return std::exp(x);
    case UnaryOp::kLog: return std::log(x);
    case UnaryOp::kTanh: return std::tanh(x);
    case UnaryOp::kSqrt: return std::sqrt(x);
    case UnaryOp::kRsqrt: return 1.0 / std::sqrt(x);
    case UnaryOp::kRelu: return x < 0.0 ? 0.0 : x;
    case UnaryOp::kSigmoid: return sigmoid(x);
    case UnaryOp::kSilu: return x * sigmoid(x);
    case UnaryOp::kGelu: return x * normal_cdf(x);
    case UnaryOp::kGeluTanh: return 0.5 * x * (1.0 + gelu_tanh_inner(x));
    case UnaryOp::kPow: return std::pow(x, scalar);
    case UnaryOp::kAdd: return x + scalar;
    case UnaryOp::kMul: return x * scalar;
    case UnaryOp::kRsub: return scalar - x;
    case UnaryOp::kRdiv: return scalar / x;
  }
  return x;
}

double gelu_tanh_slope(double x) {
  const double t = gelu_tanh_inner(x);
  const double inner_slope = kSqrt2OverPi * (1.0 + 3.0 * kCubic * x * x);
  return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner_slope;
}

double slope_double(UnaryOp op, double x, double y, double scalar) {
  switch (op) {
    case UnaryOp::kNeg:
    case UnaryOp::kRsub: return -1.0;
    case UnaryOp::kExp: return y;
    case UnaryOp::kLog: return 1.0 / x;
    case UnaryOp::kTanh: return 1.0 - y * y;
    case UnaryOp::kSqrt: return 0.5 / y;
    case UnaryOp::kRsqrt: return -0.5 * y * y * y;
    case UnaryOp::kRelu: return y > 0.0 ? 1.0 : 0.0;
    case UnaryOp::kSigmoid: return y * (1.0 - y);
    case UnaryOp::kSilu: return sigmoid(x) * (1.0 + x * (1.0 - sigmoid(x)));
    case UnaryOp::kGelu: return normal_cdf(x) + x * kInvSqrt2Pi * std::exp(-0.5 * x * x);
    case UnaryOp::kGeluTanh: return gelu_tanh_slope(x);
    case UnaryOp::kPow: return scalar == 0.0 ? 0.0 : scalar * std::pow(x, scalar - 1.0);
    case UnaryOp::kAdd: return 1.0;
    case UnaryOp::kMul: return scalar;
    case UnaryOp::kRdiv: return -y / x;
  }
  return 0.0;
}

bool same_float_dtype(const TensorView& a, const TensorView& b) {
  return a.dtype == b.dtype && dtype_is_floating(a.dtype) && a.dtype != DType::kFloat64;
}

// Any strides and dtypes, in float32 unless float64 or integers take part.
void unary_staged(Threads threads, UnaryOp op, const TensorView& y, const TensorView& x,
                  double scalar) {
  const auto loop = make_strided_loop<2>({&y, &x});
  const bool wide = !same_float_dtype(x, x);
  for_each_row(threads, loop, [&](const auto& offsets, std::int64_t n) {
    float narrow[kStagingSize];
    double buffer[kStagingSize];
    for (std::int64_t i = 0; i < n; i += kStagingSize) {
      const std::int64_t count = std::min(kStagingSize, n - i);
      const std::int64_t y_at = offsets[0] + i * loop.row_stride(0);
      const std::int64_t x_at = offsets[1] + i * loop.row_stride(1);
      if (wide) {
        gather(buffer, x, x_at, loop.row_stride(1), count);
        for (std::int64_t j = 0; j < count; ++j) buffer[j] = value_double(op, buffer[j], scalar);
        scatter(buffer, y, y_at, loop.row_stride(0), count);
      } else {
        gather(narrow, x, x_at, loop.row_stride(1), count);
        HWY_DYNAMIC_DISPATCH(unary_row)
        (op, static_cast<float>(scalar), DType::kFloat32, false, narrow, narrow, count);
        scatter(narrow, y, y_at, loop.row_stride(0), count);
      }
    }
  });
}

struct BackwardBuffers {
  float narrow[3][kStagingSize];
  double wide[3][kStagingSize];
};

void unary_backward_staged(Threads threads, UnaryOp op, const TensorView& dx, const TensorView& dy,
                           const TensorView& x, const TensorView& y, double scalar) {
  const auto loop = make_strided_loop<4>({&dx, &dy, &x, &y});
  const TensorView* inputs[3] = {&dy, &x, &y};
  const bool wide = !same_float_dtype(dy, dy);
  for_each_row(threads, loop, [&](const auto& offsets, std::int64_t n) {
    BackwardBuffers buffers;
    for (std::int64_t i = 0; i < n; i += kStagingSize) {
      const std::int64_t count = std::min(kStagingSize, n - i);
      const auto position = [&](int k) { return offsets[k] + i * loop.row_stride(k); };
      for (int k = 0; k < 3; ++k) {
        if (wide)
          gather(buffers.wide[k], *inputs[k], position(k + 1), loop.row_stride(k + 1), count);
        else
          gather(buffers.narrow[k], *inputs[k], position(k + 1), loop.row_stride(k + 1), count);
      }
      if (wide) {
        for (std::int64_t j = 0; j < count; ++j)
          buffers.wide[0][j] *= slope_double(op, buffers.wide[1][j], buffers.wide[2][j], scalar);
        scatter(buffers.wide[0], dx, position(0), loop.row_stride(0), count);
      } else {
        HWY_DYNAMIC_DISPATCH(unary_backward_row)
        (op, static_cast<float>(scalar), DType::kFloat32, false, buffers.narrow[0],
         buffers.narrow[0], buffers.narrow[1], buffers.narrow[2], count);
        scatter(buffers.narrow[0], dx, position(0), loop.row_stride(0), count);
      }
    }
  });
}

}  // namespace

void CpuBackend::unary(const KernelContext& context, UnaryOp op, const TensorView& y,
                       const TensorView& x, double scalar) {
  if (y.numel() == 0) return;
  const auto loop = make_strided_loop<2>({&y, &x});
  const bool dense = loop.row_stride(0) == 1 && loop.row_stride(1) == 1;
  if (!dense || !same_float_dtype(y, x)) return unary_staged(context.threads, op, y, x, scalar);
  const bool stream = y.bytes() >= kStreamingBytes && y.data != x.data;
  const auto size = static_cast<std::int64_t>(dtype_size(y.dtype));
  for_each_row(context.threads, loop, [&](const auto& offsets, std::int64_t n) {
    HWY_DYNAMIC_DISPATCH(unary_row)
    (op, static_cast<float>(scalar), y.dtype, stream, y.as<std::byte>() + offsets[0] * size,
     x.as<std::byte>() + offsets[1] * size, n);
    finish_streaming(stream);
  });
}

void CpuBackend::unary_backward(const KernelContext& context, UnaryOp op, const TensorView& dx,
                                const TensorView& dy, const TensorView& x, const TensorView& y,
                                double scalar) {
  if (dx.numel() == 0) return;
  // What an op's derivative does not read need not be given.
  const TensorView& in = x.defined() ? x : dy;
  const TensorView& out = y.defined() ? y : dy;
  const auto loop = make_strided_loop<4>({&dx, &dy, &in, &out});
  bool dense = same_float_dtype(dx, dy) && same_float_dtype(dx, in) && same_float_dtype(dx, out);
  for (std::size_t k = 0; k < 4; ++k) dense = dense && loop.row_stride(k) == 1;
  if (!dense) return unary_backward_staged(context.threads, op, dx, dy, in, out, scalar);
  const bool stream = dx.bytes() >= kStreamingBytes && dx.data != dy.data;
  const auto size = static_cast<std::int64_t>(dtype_size(dx.dtype));
  for_each_row(context.threads, loop, [&](const auto& offsets, std::int64_t n) {
    HWY_DYNAMIC_DISPATCH(unary_backward_row)
    (op, static_cast<float>(scalar), dx.dtype, stream, dx.as<std::byte>() + offsets[0] * size,
     dy.as<std::byte>() + offsets[1] * size, in.as<std::byte>() + offsets[2] * size,
     out.as<std::byte>() + offsets[3] * size, n);
    finish_streaming(stream);
  });
}

}  // namespace meshloom::kernels::cpu
#endif  // HWY_ONCE
