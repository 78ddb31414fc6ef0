// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention.h"
#include "kernels/cpu/dispatch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_delta.cpp"
#include <hwy/foreach_target.h>  // keep before highway.h
#include <hwy/highway.h>

#include "kernels/cpu/simd.h"

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

// Of two rows with dense elements.
float row_dot(DType grad_dtype, DType o_dtype, const void* grad_o, const void* o, std::int64_t n) {
  float sum = 0.0f;
  dispatch_float(grad_dtype, "attention_delta", [&]<typename G>(TypeTag<G>) HWY_ATTR {
    if (o_dtype == DType::kFloat32) {
      sum = dense_dot(static_cast<const G*>(grad_o), static_cast<const float*>(o), n);
    } else {
      sum = dense_dot(static_cast<const G*>(grad_o), static_cast<const G*>(o), n);
    }
  });
  return sum;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::kernels::cpu {
namespace {

HWY_EXPORT(row_dot);

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

}  // namespace

void attention_delta(const KernelContext& context, const TensorView& delta,
                     const TensorView& grad_o, const TensorView& o) {
  const std::int64_t heads = o.size(1), queries = o.size(2);
  const bool dense = grad_o.dtype != DType::kFloat64 && grad_o.stride(3) == 1 && o.stride(3) == 1 &&
                     (o.dtype == grad_o.dtype || o.dtype == DType::kFloat32);
  constexpr std::int64_t kGrain = 256;
  parallel_for(
      context.threads, o.size(0) * heads * queries, kGrain,
      [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          const std::int64_t b = row / queries / heads, h = row / queries % heads;
          const std::int64_t s = row % queries;
          const std::byte* grad_row = row_of(grad_o, b, h, s);
          const std::byte* o_row = row_of(o, b, h, s);
          delta.as<float>()[b * delta.stride(0) + h * delta.stride(1) + s * delta.stride(2)] =
              dense
                  ? HWY_DYNAMIC_DISPATCH(row_dot)(grad_o.dtype, o.dtype, grad_row, o_row, o.size(3))
                  : static_cast<float>(strided_dot(grad_o, o, grad_row, o_row));
        }
      });
}

}  // namespace meshloom::kernels::cpu
#endif
