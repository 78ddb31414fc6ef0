// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul/matmul_epilogue.h"

#include <cmath>
#include <numbers>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/simd/dispatch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul/matmul_epilogue.cpp"
#include <hwy/foreach_target.h>  // keep before highway.h
#include <hwy/highway.h>

#include "kernels/cpu/simd/simd.h"
#include "kernels/cpu/simd/simd_math.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// One row: x + bias to `pre` (where not null) and its activation to `y`.
template <Epilogue kKind, typename T>
void epilogue_row(const float* x, const float* bias, T* pre, T* y, std::int64_t n) {
  const simd::FloatTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto activate = [&](auto v) HWY_ATTR {
    if constexpr (kKind == Epilogue::kBiasGelu) return simd::gelu(d, v);
    if constexpr (kKind == Epilogue::kBiasGeluTanh) return simd::gelu_tanh(d, v);
    return v;
  };
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto v = hn::Add(hn::LoadU(d, x + i), hn::LoadU(d, bias + i));
    if (pre != nullptr) simd::store(d, v, pre + i);
    simd::store(d, activate(v), y + i);
  }
  if (i == n) return;
  const auto rest = static_cast<std::size_t>(n - i);
  const auto v = hn::Add(simd::load_n(d, x + i, rest), simd::load_n(d, bias + i, rest));
  if (pre != nullptr) simd::store_n(d, v, pre + i, rest);
  simd::store_n(d, activate(v), y + i, rest);
}

template <typename T>
void epilogue_rows(Epilogue kind, const float* x, std::int64_t ldx, const float* bias, T* pre,
                   std::int64_t ldpre, T* y, std::int64_t ldy, std::int64_t begin, std::int64_t end,
                   std::int64_t n) {
  for (std::int64_t r = begin; r < end; ++r) {
    T* pre_row = pre == nullptr ? nullptr : pre + r * ldpre;
    switch (kind) {
      case Epilogue::kBias:
        epilogue_row<Epilogue::kBias>(x + r * ldx, bias, pre_row, y + r * ldy, n);
        break;
      case Epilogue::kBiasGelu:
        epilogue_row<Epilogue::kBiasGelu>(x + r * ldx, bias, pre_row, y + r * ldy, n);
        break;
      case Epilogue::kBiasGeluTanh:
        epilogue_row<Epilogue::kBiasGeluTanh>(x + r * ldx, bias, pre_row, y + r * ldy, n);
        break;
      case Epilogue::kNone: break;
    }
  }
}

void epilogue_f32(Epilogue kind, const float* x, std::int64_t ldx, const float* bias, float* pre,
                  std::int64_t ldpre, float* y, std::int64_t ldy, std::int64_t begin,
                  std::int64_t end, std::int64_t n) {
  epilogue_rows(kind, x, ldx, bias, pre, ldpre, y, ldy, begin, end, n);
}
void epilogue_bf16(Epilogue kind, const float* x, std::int64_t ldx, const float* bias,
                   bfloat16* pre, std::int64_t ldpre, bfloat16* y, std::int64_t ldy,
                   std::int64_t begin, std::int64_t end, std::int64_t n) {
  epilogue_rows(kind, x, ldx, bias, pre, ldpre, y, ldy, begin, end, n);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::kernels::cpu {
namespace {

HWY_EXPORT(epilogue_f32);
HWY_EXPORT(epilogue_bf16);

constexpr std::int64_t kRowGrain = 8;

bool dense_rows(const TensorView& view) { return view.size(1) == 1 || view.stride(1) == 1; }

template <typename T, typename Rows>
void run_rows(const KernelContext& context, Epilogue kind, const ProductRows<float>& product,
              const float* bias, const TensorView& y, const TensorView& pre, Rows rows) {
  T* pre_data = pre.defined() ? pre.as<T>() : nullptr;
  const std::int64_t ldpre = pre.defined() ? pre.stride(0) : 0;
  parallel_for(context.threads, product.m, kRowGrain, [&](std::int64_t begin, std::int64_t end) {
    rows(kind, product.x, product.ldx, bias, pre_data, ldpre, y.as<T>(), y.stride(0), begin, end,
         product.n);
  });
}

double gelu(Epilogue kind, double x) {
  if (kind == Epilogue::kBiasGelu) return 0.5 * x * (1.0 + std::erf(x / std::numbers::sqrt2));
  if (kind == Epilogue::kBiasGeluTanh)
    return 0.5 * x *
           (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
  return x;
}

// Any dtype and strides: through x itself and element conversions.
template <typename Compute>
void run_in_place(const KernelContext& context, Epilogue kind, const ProductRows<Compute>& product,
                  const Compute* bias, const TensorView& y, const TensorView& pre) {
  constexpr DType kDType = sizeof(Compute) == 8 ? DType::kFloat64 : DType::kFloat32;
  const auto for_each = [&](auto&& fn) {
    for (std::int64_t r = 0; r < product.m; ++r)
      for (std::int64_t c = 0; c < product.n; ++c) fn(product.x[r * product.ldx + c], c);
  };
  const TensorView x{product.x, kDType, {product.m, product.n}, {product.ldx, 1}, kCpuDevice};
  if (bias != nullptr) for_each([&](Compute& value, std::int64_t c) { value += bias[c]; });
  if (pre.defined()) cpu_backend().copy(context, pre, x);
  for_each([&](Compute& value, std::int64_t) {
    value = static_cast<Compute>(gelu(kind, static_cast<double>(value)));
  });
  if (y.data != x.data || y.dtype != x.dtype) cpu_backend().copy(context, y, x);
}

}  // namespace

template <>
void apply_epilogue<float>(const KernelContext& context, Epilogue kind,
                           const ProductRows<float>& product, const float* bias,
                           const TensorView& y, const TensorView& pre) {
  const bool dense = dense_rows(y) && (!pre.defined() || (dense_rows(pre) && pre.dtype == y.dtype));
  if (dense && bias != nullptr && y.dtype == DType::kFloat32)
    return run_rows<float>(context, kind, product, bias, y, pre,
                           HWY_DYNAMIC_DISPATCH(epilogue_f32));
  if (dense && bias != nullptr && y.dtype == DType::kBFloat16)
    return run_rows<bfloat16>(context, kind, product, bias, y, pre,
                              HWY_DYNAMIC_DISPATCH(epilogue_bf16));
  run_in_place(context, kind, product, bias, y, pre);
}

template <>
void apply_epilogue<double>(const KernelContext& context, Epilogue kind,
                            const ProductRows<double>& product, const double* bias,
                            const TensorView& y, const TensorView& pre) {
  run_in_place(context, kind, product, bias, y, pre);
}

}  // namespace meshloom::kernels::cpu
#endif
