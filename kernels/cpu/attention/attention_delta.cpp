// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/simd/dispatch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/attention_delta.cpp"
#include <hwy/foreach_target.h>  // keep before highway.h
#include <hwy/highway.h>

#include "kernels/cpu/simd/simd.h"

#ifndef MESHLOOM_KERNELS_CPU_DELTA_ROWS_
#define MESHLOOM_KERNELS_CPU_DELTA_ROWS_
namespace meshloom::kernels::cpu {
namespace {
// Pairs of rows at equal distances, and where their sums go; strides in elements.
struct DeltaRows {
  const void* grad_o;
  const void* o;
  float* delta;
  std::int64_t grad_stride, o_stride, delta_stride;
  std::int64_t count;
};
}  // namespace
}  // namespace meshloom::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace meshloom::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

template <typename G, typename O>
float dense_dot(const G* grad_o, const O* o, std::int64_t n) {
  const simd::FloatTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto a = hn::Zero(d), b = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    a = hn::MulAdd(simd::load(d, grad_o + i), simd::load(d, o + i), a);
    b = hn::MulAdd(simd::load(d, grad_o + i + lanes), simd::load(d, o + i + lanes), b);
  }
  float sum = simd::sum_lanes(d, hn::Add(a, b));
  for (; i < n; ++i) sum += static_cast<float>(grad_o[i]) * static_cast<float>(o[i]);
  return sum;
}

template <typename G, typename O>
void dense_dots(const DeltaRows& rows, std::int64_t n) {
  const G* grad_o = static_cast<const G*>(rows.grad_o);
  const O* o = static_cast<const O*>(rows.o);
  for (std::int64_t r = 0; r < rows.count; ++r)
    rows.delta[r * rows.delta_stride] =
        dense_dot(grad_o + r * rows.grad_stride, o + r * rows.o_stride, n);
}

void row_dots(DType grad_dtype, DType o_dtype, const DeltaRows& rows, std::int64_t n) {
  dispatch_float(grad_dtype, "attention_delta", [&]<typename G>(TypeTag<G>) HWY_ATTR {
    if (o_dtype == DType::kFloat32)
      dense_dots<G, float>(rows, n);
    else
      dense_dots<G, G>(rows, n);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::kernels::cpu {
namespace {

HWY_EXPORT(row_dots);

const std::byte* row_of(const TensorView& view, std::int64_t b, std::int64_t h, std::int64_t s) {
  const std::int64_t offset = b * view.stride(0) + h * view.stride(1) + s * view.stride(2);
  return view.as<const std::byte>() + offset * static_cast<std::int64_t>(dtype_size(view.dtype));
}

double element(const TensorView& view, const std::byte* row, std::int64_t index) {
  double value = 0.0;
  dispatch_any(view.dtype, "attention_delta", [&]<typename T>(TypeTag<T>) {
    value = convert<double>(reinterpret_cast<const T*>(row)[index * view.stride(3)]);
  });
  return value;
}

double strided_dot(const TensorView& grad_o, const TensorView& o, const std::byte* grad_row,
                   const std::byte* o_row) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < o.size(3); ++i)
    sum += element(grad_o, grad_row, i) * element(o, o_row, i);
  return sum;
}

double strided_row(const TensorView& grad_o, const TensorView& o, std::int64_t b, std::int64_t h,
                   std::int64_t s) {
  return strided_dot(grad_o, o, row_of(grad_o, b, h, s), row_of(o, b, h, s));
}

}  // namespace

// Heads of one token usually follow each other in memory, so tokens are the outer loop.
void CpuBackend::attention_delta(const KernelContext& context, const TensorView& delta,
                                 const TensorView& grad_o, const TensorView& o) {
  const std::int64_t heads = o.size(1), queries = o.size(2);
  const bool dense = grad_o.dtype != DType::kFloat64 && grad_o.stride(3) == 1 && o.stride(3) == 1 &&
                     (o.dtype == grad_o.dtype || o.dtype == DType::kFloat32);
  const std::int64_t grain = std::max<std::int64_t>(1, 256 / std::max<std::int64_t>(heads, 1));
  parallel_for(
      context.threads, o.size(0) * queries, grain, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t token = begin; token < end; ++token) {
          const std::int64_t b = token / queries, s = token % queries;
          float* to = delta.as<float>() + b * delta.stride(0) + s * delta.stride(2);
          if (!dense) {
            for (std::int64_t h = 0; h < heads; ++h)
              to[h * delta.stride(1)] = static_cast<float>(strided_row(grad_o, o, b, h, s));
            continue;
          }
          const DeltaRows rows{row_of(grad_o, b, 0, s),
                               row_of(o, b, 0, s),
                               to,
                               grad_o.stride(1),
                               o.stride(1),
                               delta.stride(1),
                               heads};
          HWY_DYNAMIC_DISPATCH(row_dots)(grad_o.dtype, o.dtype, rows, o.size(3));
        }
      });
}

}  // namespace meshloom::kernels::cpu
#endif
