// SPDX-License-Identifier: Apache-2.0
// Cross entropy from logits: calls of Backend on the CPU.
#include "kernels/cpu/cpu_backend.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>

#include "kernels/cpu/simd/dispatch.h"
#include "kernels/cpu/simd/streaming.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/cross_entropy.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/simd/coarse_math.h"
#include "kernels/cpu/simd/rows.h"
#include "kernels/cpu/simd/simd_math.h"

#ifndef MESHLOOM_KERNELS_CPU_ROW_LSE_
#define MESHLOOM_KERNELS_CPU_ROW_LSE_
namespace meshloom::kernels::cpu {
namespace {
// Of one row of logits.
struct RowStatistics {
  double lse = 0.0;
  double sum = 0.0;  // of the logits; only where label smoothing asks for it
};
}  // namespace
}  // namespace meshloom::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace meshloom::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using simd::FloatTag;
using V = hn::Vec<FloatTag>;

// Logits of one float32 sum; the sums are added in double.
constexpr std::size_t kChunk = 2048;

constexpr float kLog2E = 1.44269504f;

// The sum of 2^(x log2(e) - center).
template <class T>
float exp2_sum(const T* x, std::size_t n, float center) {
  const FloatTag d;
  const V scale = hn::Set(d, kLog2E);
  const V c = hn::Set(d, center);
  return simd::reduce_row(
      n, [d, scale, c](V v) HWY_ATTR { return simd::exp2(d, hn::MulSub(v, scale, c)); }, x);
}

// One look at each logit: exponentials are taken from the largest logit of the first chunk, which
// any later one may well exceed. Only a chunk that exceeds it far is looked at again, from its own.
template <class T>
RowStatistics row_statistics_typed(const T* x, std::size_t n, bool want_sum) {
  // Far below any logit, and still finite in units of log2.
  constexpr float kLowest = -1e38f;
  // A larger sum has exponents that are rounded too coarsely.
  constexpr float kLargestSum = 65536.0f;
  float center = kLog2E * simd::row_max(x, n < kChunk ? n : kChunk, kLowest);
  double exp_sum = 0.0;
  double sum = 0.0;
  for (std::size_t i = 0; i < n; i += kChunk) {
    const std::size_t count = n - i < kChunk ? n - i : kChunk;
    float part = exp2_sum(x + i, count, center);
    if (!(part <= kLargestSum)) {
      const float higher = kLog2E * simd::row_max(x + i, count, kLowest);
      exp_sum *= std::exp2(static_cast<double>(center) - higher);
      center = higher;
      part = exp2_sum(x + i, count, center);
    }
    exp_sum += part;
    if (want_sum)
      sum += simd::reduce_row(
          count, [](V v) HWY_ATTR { return v; }, x + i);
  }
  return {center * std::numbers::ln2 + std::log(exp_sum), sum};
}

RowStatistics row_statistics(DType dtype, const void* x, std::size_t n, bool want_sum) {
  RowStatistics result;
  dispatch_float(dtype, "cross_entropy", [&]<typename T>(TypeTag<T>) {
    result = row_statistics_typed(static_cast<const T*>(x), n, want_sum);
  });
  return result;
}

// What is rounded to bfloat16 is computed only as well as that needs.
template <class D, class T>
void probability_row_typed(bool stream, D* dx, const T* x, std::size_t n, float lse, float scale,
                           float uniform) {
  const FloatTag d;
  const V s = hn::Set(d, scale);
  const V u = hn::Set(d, -scale * uniform);
  if constexpr (simd::kCoarseSuffices<D>) {
    const V log2_e = hn::Set(d, kLog2E);
    const V l = hn::Set(d, lse * kLog2E);
    simd::map_row(
        stream, dx, n,
        [d, log2_e, l, s, u](V v)
            HWY_ATTR { return hn::MulAdd(simd::coarse::exp2(d, hn::MulSub(v, log2_e, l)), s, u); },
        x);
  } else {
    const V l = hn::Set(d, lse);
    simd::map_row(
        stream, dx, n,
        [d, l, s, u](V v)
            HWY_ATTR { return hn::MulAdd(simd::exp_bounded(d, hn::Sub(v, l)), s, u); },
        x);
  }
}

// dx = scale * (exp(x - lse) - uniform), of x's dtype or bfloat16.
void probability_row(DType dx_dtype, DType dtype, bool stream, void* dx, const void* x,
                     std::size_t n, float lse, float scale, float uniform) {
  constexpr const char* kOp = "cross_entropy_backward";
  dispatch_float(dtype, kOp, [&]<typename T>(TypeTag<T>) HWY_ATTR {
    const T* from = static_cast<const T*>(x);
    if (dx_dtype != DType::kBFloat16)
      return probability_row_typed(stream, static_cast<T*>(dx), from, n, lse, scale, uniform);
    simd::dispatch_computed(dx_dtype, kOp, [&]<typename D>(TypeTag<D>) HWY_ATTR {
      if constexpr (simd::kCoarseSuffices<D>)
        probability_row_typed(stream, static_cast<D*>(dx), from, n, lse, scale, uniform);
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

HWY_EXPORT(row_statistics);
HWY_EXPORT(probability_row);

RowStatistics row_statistics_double(const double* x, std::int64_t n) {
  if (n == 0) return {-std::numeric_limits<double>::infinity(), 0.0};
  // Finite, so that -inf everywhere gives -inf.
  const double top = std::max(*std::max_element(x, x + n), std::numeric_limits<double>::lowest());
  RowStatistics result;
  double exp_sum = 0.0;
  for (std::int64_t i = 0; i < n; ++i) {
    exp_sum += std::exp(x[i] - top);
    result.sum += x[i];
  }
  result.lse = top + std::log(exp_sum);
  return result;
}

template <typename T>
double element(const std::byte* row, std::int64_t index) {
  return convert<double>(reinterpret_cast<const T*>(row)[index]);
}

double element(DType dtype, const std::byte* row, std::int64_t index) {
  double value = 0.0;
  dispatch_any(dtype, "cross_entropy",
               [&]<typename T>(TypeTag<T>) { value = element<T>(row, index); });
  return value;
}

const std::byte* row_of(const TensorView& view, std::int64_t row) {
  return view.as<const std::byte>() +
         row * view.stride(0) * static_cast<std::int64_t>(dtype_size(view.dtype));
}

// Losses, their gradients and lse are float32 or float64.
double load_row(const TensorView& view, std::int64_t row) {
  return view.dtype == DType::kFloat64 ? view.as<const double>()[row] : view.as<const float>()[row];
}

void store_row(const TensorView& view, std::int64_t row, double value) {
  if (view.dtype == DType::kFloat64)
    view.as<double>()[row] = value;
  else
    view.as<float>()[row] = static_cast<float>(value);
}

// A target that is none of these classes has no logit here, whoever has it.
std::int64_t column_of(std::int64_t target, std::int64_t classes) {
  return target >= 0 && target < classes ? target : kOtherSlice;
}

// -(1 - smoothing) log p[target] - smoothing * mean of log p over all classes.
double row_loss(const RowStatistics& statistics, double target_logit, double smoothing,
                std::int64_t classes) {
  const double plain = statistics.lse - target_logit;
  if (smoothing == 0.0) return plain;
  const double mean = statistics.lse - statistics.sum / static_cast<double>(classes);
  return (1.0 - smoothing) * plain + smoothing * mean;
}

// What a slice of the classes adds to the loss beside lse.
double slice_loss(const RowStatistics& statistics, double target_logit, double smoothing,
                  std::int64_t total) {
  const double spread =
      smoothing == 0.0 ? 0.0 : smoothing * statistics.sum / static_cast<double>(total);
  return (smoothing - 1.0) * target_logit - spread;
}

struct BackwardRow {
  std::byte* dlogits;
  const std::byte* logits;
  std::int64_t target;
  double lse;
  double scale;
  std::int64_t total;  // classes of all slices
};

void backward_row(const BackwardRow& row, DType dlogits_dtype, DType dtype, bool stream,
                  std::int64_t classes, double smoothing) {
  const double uniform = smoothing / static_cast<double>(row.total);
  const bool here = row.target != kOtherSlice;
  if (dtype == DType::kFloat64) {
    auto* dx = reinterpret_cast<double*>(row.dlogits);
    const auto* x = reinterpret_cast<const double*>(row.logits);
    for (std::int64_t i = 0; i < classes; ++i)
      dx[i] = row.scale * (std::exp(x[i] - row.lse) - uniform);
    if (here) dx[row.target] -= row.scale * (1.0 - smoothing);
    return;
  }
  const double target_logit = here ? element(dtype, row.logits, row.target) : 0.0;
  HWY_DYNAMIC_DISPATCH(probability_row)
  (dlogits_dtype, dtype, stream, row.dlogits, row.logits, classes, static_cast<float>(row.lse),
   static_cast<float>(row.scale), static_cast<float>(uniform));
  finish_streaming(stream);
  if (!here) return;
  // Computed whole, not added to what was stored: that may be rounded to 16 bits.
  const double own = std::exp(target_logit - row.lse) - uniform - (1.0 - smoothing);
  dispatch_float(dlogits_dtype, "cross_entropy_backward", [&]<typename T>(TypeTag<T>) {
    reinterpret_cast<T*>(row.dlogits)[row.target] = convert<T>(row.scale * own);
  });
}

template <typename T>
void combine_rows(const CrossEntropyRows& rows, const TensorView& slices,
                  std::int64_t ignore_index) {
  const std::int64_t ranks = slices.size(0), count = slices.size(2);
  const auto* all = slices.as<const T>();
  const auto at = [&](std::int64_t rank, std::int64_t which, std::int64_t row) {
    return static_cast<double>(all[(rank * 2 + which) * count + row]);
  };
  for (std::int64_t row = 0; row < count; ++row) {
    double top = -std::numeric_limits<double>::infinity();
    for (std::int64_t r = 0; r < ranks; ++r) top = std::max(top, at(r, 1, row));
    double exp_sum = 0.0;
    double loss = 0.0;
    for (std::int64_t r = 0; r < ranks; ++r) {
      const double own = at(r, 1, row);
      exp_sum += own == top ? 1.0 : std::exp(own - top);
      loss += at(r, 0, row);
    }
    const double total = top + std::log(exp_sum);
    const bool ignored = rows.targets.as<const std::int64_t>()[row] == ignore_index;
    rows.lse.as<T>()[row] = static_cast<T>(total);
    rows.losses.as<T>()[row] = ignored ? T{0} : static_cast<T>(total + loss);
  }
}

}  // namespace

void CpuBackend::cross_entropy(const KernelContext& context, const CrossEntropyRows& rows,
                               const CrossEntropyOptions& options) {
  const auto& [logits, targets, losses, lse] = rows;
  const std::int64_t classes = logits.size(1);
  const std::int64_t total = options.slice.total;
  const bool wide = logits.dtype == DType::kFloat64;
  parallel_for(context.threads, logits.size(0), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const std::int64_t target = targets.as<const std::int64_t>()[r];
      const bool ignored = target == options.ignore_index;
      store_row(losses, r, 0.0);
      if (ignored && !lse.defined()) continue;
      const std::byte* x = row_of(logits, r);
      const RowStatistics statistics =
          wide ? row_statistics_double(reinterpret_cast<const double*>(x), classes)
               : HWY_DYNAMIC_DISPATCH(row_statistics)(logits.dtype, x, classes,
                                                      options.label_smoothing != 0.0);
      if (lse.defined()) store_row(lse, r, statistics.lse);
      if (ignored) continue;
      const std::int64_t column = column_of(target, classes);
      const double logit = column == kOtherSlice ? 0.0 : element(logits.dtype, x, column);
      store_row(losses, r,
                total > 0 ? slice_loss(statistics, logit, options.label_smoothing, total)
                          : row_loss(statistics, logit, options.label_smoothing, classes));
    }
  });
}

void CpuBackend::combine_class_slices(const KernelContext&, const CrossEntropyRows& rows,
                                      const TensorView& slices, std::int64_t ignore_index) {
  if (rows.losses.dtype == DType::kFloat64)
    combine_rows<double>(rows, slices, ignore_index);
  else
    combine_rows<float>(rows, slices, ignore_index);
}

void CpuBackend::cross_entropy_backward(const KernelContext& context, const TensorView& dlogits,
                                        const TensorView& grad_losses, const CrossEntropyRows& rows,
                                        const CrossEntropyOptions& options) {
  const TensorView &logits = rows.logits, &lse = rows.lse, &targets = rows.targets;
  const std::int64_t classes = logits.size(1);
  const std::int64_t total = options.slice.total;
  const std::size_t row_bytes = classes * dtype_size(dlogits.dtype);
  const bool stream = dlogits.data != logits.data && dlogits.bytes() >= kStreamingBytes;
  parallel_for(context.threads, logits.size(0), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      auto* dx = const_cast<std::byte*>(row_of(dlogits, r));
      const std::int64_t target = targets.as<const std::int64_t>()[r];
      if (target == options.ignore_index) {
        std::memset(dx, 0, row_bytes);
        continue;
      }
      const double grad = grad_losses.defined() ? load_row(grad_losses, r) : 1.0;
      const BackwardRow row{dx,
                            row_of(logits, r),
                            column_of(target, classes),
                            load_row(lse, r),
                            grad * options.grad_scale,
                            total > 0 ? total : classes};
      backward_row(row, dlogits.dtype, logits.dtype, stream, classes, options.label_smoothing);
    }
  });
}

}  // namespace meshloom::kernels::cpu
#endif  // HWY_ONCE
