// SPDX-License-Identifier: Apache-2.0
// Layer norm and RMS norm, with and without the residual add before: calls of Backend on the CPU.
#include "kernels/cpu/cpu_backend.h"

#include <cmath>

#include "kernels/cpu/norm_common.h"
#include "kernels/cpu/simd/dispatch.h"
#include "kernels/cpu/simd/streaming.h"
#include "kernels/cpu/strided_loop.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/simd/rows.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using simd::FloatTag;
using V = hn::Vec<FloatTag>;

// sum = x + residual, rounded to T as it is stored, so that forward and backward see the same
// numbers.
template <class T>
void add_row(const NormArgs<T, float>& args, std::int64_t row) {
  const std::int64_t at = row * args.columns;
  simd::map_row(
      false, args.sum + at, args.columns, [](V a, V b) HWY_ATTR { return hn::Add(a, b); },
      args.x + at, args.residual + at);
}

template <class T>
float row_sum(const T* x, std::size_t n) {
  return simd::reduce_row(
      n, [](V v) HWY_ATTR { return v; }, x);
}

template <class T>
float row_sum_of_squares(const T* x, std::size_t n, float center) {
  const V c = hn::Set(FloatTag(), center);
  return simd::reduce_row(
      n,
      [c](V v) HWY_ATTR {
        const V distance = hn::Sub(v, c);
        return hn::Mul(distance, distance);
      },
      x);
}

template <class T>
void scale_row(const NormArgs<T, float>& args, std::int64_t row, const T* x, float mean,
               float rstd) {
  const FloatTag d;
  const V m = hn::Set(d, mean);
  const V r = hn::Set(d, rstd);
  T* y = args.y + row * args.columns;
  const auto normalized = [m, r](V v) HWY_ATTR { return hn::Mul(hn::Sub(v, m), r); };
  if (args.weight == nullptr) {
    simd::map_row(args.stream, y, args.columns, normalized, x);
  } else if (args.bias == nullptr) {
    simd::map_row(
        args.stream, y, args.columns,
        [normalized](V v, V w) HWY_ATTR { return hn::Mul(normalized(v), w); }, x, args.weight);
  } else {
    simd::map_row(
        args.stream, y, args.columns,
        [normalized](V v, V w, V b) HWY_ATTR { return hn::MulAdd(normalized(v), w, b); }, x,
        args.weight, args.bias);
  }
}

// Rows that are worked on together: while the sums of one row come together across lanes, the next
// row's are under way. They have to stay in the first-level cache. Rows of float32 wait for memory
// instead and go one by one.
constexpr std::int64_t kRowGroup = 4;
constexpr std::int64_t kGroupBytes = 16384;

struct RowStats {
  float mean = 0.0f;
  float rstd = 0.0f;
};

template <class T>
void group_stats(const NormArgs<T, float>& args, const T* x, std::int64_t rows, RowStats* stats) {
  const auto n = static_cast<std::size_t>(args.columns);
  if (!args.rms) {
    for (std::int64_t r = 0; r < rows; ++r)
      stats[r].mean = row_sum(x + r * args.columns, n) / static_cast<float>(n);
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    const float squares = row_sum_of_squares(x + r * args.columns, n, stats[r].mean);
    stats[r].rstd = 1.0f / std::sqrt(squares / static_cast<float>(n) + args.eps);
  }
}

template <class T>
void norm_group(const NormArgs<T, float>& args, std::int64_t begin, std::int64_t rows) {
  const T* x = (args.residual != nullptr ? args.sum : args.x) + begin * args.columns;
  if (args.residual != nullptr)
    for (std::int64_t r = 0; r < rows; ++r) add_row(args, begin + r);
  RowStats stats[kRowGroup];
  group_stats(args, x, rows, stats);
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t row = begin + r;
    if (args.mean != nullptr) args.mean[row] = stats[r].mean;
    if (args.rstd != nullptr) args.rstd[row] = stats[r].rstd;
    scale_row(args, row, x + r * args.columns, stats[r].mean, stats[r].rstd);
  }
}

template <class T>
void norm_rows_typed(const NormArgs<T, float>& args, std::int64_t begin, std::int64_t end) {
  const bool small = sizeof(T) == 2 && args.columns * kRowGroup * 2 <= kGroupBytes;
  const std::int64_t group = small ? kRowGroup : 1;
  for (std::int64_t row = begin; row < end; row += group)
    norm_group(args, row, end - row < group ? end - row : group);
}

#if HWY_TARGET == HWY_AVX3
NormArgs<NativeBFloat16, float> native(const NormArgs<bfloat16, float>& from) {
  NormArgs<NativeBFloat16, float> args;
  args.columns = from.columns;
  args.eps = from.eps;
  args.rms = from.rms;
  args.stream = from.stream;
  args.x = reinterpret_cast<const NativeBFloat16*>(from.x);
  args.residual = reinterpret_cast<const NativeBFloat16*>(from.residual);
  args.sum = reinterpret_cast<NativeBFloat16*>(from.sum);
  args.y = reinterpret_cast<NativeBFloat16*>(from.y);
  args.weight = from.weight;
  args.bias = from.bias;
  args.mean = from.mean;
  args.rstd = from.rstd;
  return args;
}
#endif

void norm_rows_float32(const NormArgs<float, float>& args, std::int64_t begin, std::int64_t end) {
  norm_rows_typed(args, begin, end);
}
void norm_rows_bfloat16(const NormArgs<bfloat16, float>& args, std::int64_t begin,
                        std::int64_t end) {
#if HWY_TARGET == HWY_AVX3
  if (bfloat16_dot_products()) return norm_rows_typed(native(args), begin, end);
#endif
  norm_rows_typed(args, begin, end);
}
void norm_rows_float16(const NormArgs<float16, float>& args, std::int64_t begin, std::int64_t end) {
  norm_rows_typed(args, begin, end);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::kernels::cpu {
namespace {

HWY_EXPORT(norm_rows_float32);
HWY_EXPORT(norm_rows_bfloat16);
HWY_EXPORT(norm_rows_float16);

void norm_rows(const NormArgs<float, float>& args, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(norm_rows_float32)(args, begin, end);
}
void norm_rows(const NormArgs<bfloat16, float>& args, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(norm_rows_bfloat16)(args, begin, end);
}
void norm_rows(const NormArgs<float16, float>& args, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(norm_rows_float16)(args, begin, end);
}
template <typename S>
void norm_rows(const NormArgs<double, double, S>& args, std::int64_t begin, std::int64_t end) {
  norm_rows_double(args, begin, end);
}

template <typename T, typename F, typename S>
void run(const KernelContext& context, const NormViews& views, const F* weight, const F* bias,
         const NormOptions& options) {
  NormArgs<T, F, S> args;
  args.columns = views.x.shape.back();
  args.eps = static_cast<F>(options.eps);
  args.rms = options.kind == NormKind::kRms;
  args.stream = views.y.bytes() >= kStreamingBytes && args.columns >= 128;
  args.x = views.x.as<const T>();
  args.residual = views.residual.as<const T>();
  args.sum = views.sum.as<T>();
  args.y = views.y.as<T>();
  args.weight = weight;
  args.bias = bias;
  args.mean = views.mean.as<S>();
  args.rstd = views.rstd.as<S>();
  const std::int64_t rows = row_count(views.x);
  const std::int64_t grain =
      std::max<std::int64_t>(1, kElementGrain / std::max<std::int64_t>(args.columns, 1));
  parallel_for(context.threads, rows, grain, [&](std::int64_t begin, std::int64_t end) {
    norm_rows(args, begin, end);
    finish_streaming(args.stream);
  });
}

bool needs_conversion(const TensorView& parameter) {
  return parameter.defined() && parameter.dtype != DType::kFloat32;
}

}  // namespace

void CpuBackend::norm(const KernelContext& context, const NormViews& views,
                      const NormOptions& options) {
  if (views.x.numel() == 0) return;
  if (views.x.dtype == DType::kFloat64) {
    const auto* weight = views.weight.as<const double>();
    const auto* bias = views.bias.as<const double>();
    const bool wide = views.mean.dtype == DType::kFloat64 || views.rstd.dtype == DType::kFloat64;
    return wide ? run<double, double, double>(context, views, weight, bias, options)
                : run<double, double, float>(context, views, weight, bias, options);
  }
  float* scratch = nullptr;
  const std::int64_t columns = views.x.shape.back();
  if (needs_conversion(views.weight) || needs_conversion(views.bias))
    scratch =
        reinterpret_cast<float*>(context.workspace->reserve(2 * columns * sizeof(float)).data());
  const float* weight = as_float32(views.weight, scratch);
  const float* bias = as_float32(views.bias, scratch == nullptr ? nullptr : scratch + columns);
  dispatch_float(views.x.dtype, "norm", [&]<typename T>(TypeTag<T>) {
    run<T, float, float>(context, views, weight, bias, options);
  });
}

}  // namespace meshloom::kernels::cpu
#endif  // HWY_ONCE
