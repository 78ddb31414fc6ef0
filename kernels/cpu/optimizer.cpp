// SPDX-License-Identifier: Apache-2.0
// Fused optimizer steps over all parameters: calls of Backend on the CPU.
#include "kernels/cpu/cpu_backend.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/simd/dispatch.h"
#include "kernels/cpu/strided_loop.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/optimizer.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/simd/simd.h"

#ifndef MESHLOOM_KERNELS_CPU_OPTIMIZER_ROWS_
#define MESHLOOM_KERNELS_CPU_OPTIMIZER_ROWS_
namespace meshloom::kernels::cpu {
namespace {

// A dense piece of one parameter and its state.
struct Piece {
  float* master;
  const float* grad;
  float* moment1;
  float* moment2;
  bfloat16* working;  // null: none
  std::size_t n;
  float weight_decay;
};

// What every element of an Adam step shares.
struct AdamFactors {
  float lr, beta1, beta2, eps, grad_factor;
  float step_size;   // lr / (1 - beta1^step)
  float root_scale;  // 1 / sqrt(1 - beta2^step)
  bool decoupled;
};

struct SgdFactors {
  float lr, momentum, keep, grad_factor;  // keep: 1 - dampening
  bool nesterov, first_step;
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

// Calls step(at, load, store) for whole vectors and for the rest.
template <class F>
HWY_INLINE void for_each_vector(std::size_t n, const F& step) {
  const FloatTag d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes)
    step(
        i, [d](const float* p) HWY_ATTR { return simd::load(d, p); },
        [d](V v, auto* p) HWY_ATTR { simd::store(d, v, p); });
  if (i == n) return;
  const std::size_t rest = n - i;
  step(
      i, [d, rest](const float* p) HWY_ATTR { return simd::load_n(d, p, rest); },
      [d, rest](V v, auto* p) HWY_ATTR { simd::store_n(d, v, p, rest); });
}

// Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019 (decoupled); Kingma and
// Ba, "Adam", ICLR 2015 (not).
void adam_piece(const Piece& piece, const AdamFactors& factors) {
  const FloatTag d;
  const V factor = hn::Set(d, factors.grad_factor);
  const V beta1 = hn::Set(d, factors.beta1);
  const V rest1 = hn::Set(d, 1.0f - factors.beta1);
  const V beta2 = hn::Set(d, factors.beta2);
  const V rest2 = hn::Set(d, 1.0f - factors.beta2);
  const V root_scale = hn::Set(d, factors.root_scale);
  const V eps = hn::Set(d, factors.eps);
  const V step_size = hn::Set(d, factors.step_size);
  const V shrink = hn::Set(d, factors.decoupled ? 1.0f - factors.lr * piece.weight_decay : 1.0f);
  const V decay = hn::Set(d, factors.decoupled ? 0.0f : piece.weight_decay);
  for_each_vector(piece.n, [&](std::size_t i, auto load, auto store) HWY_ATTR {
    V p = load(piece.master + i);
    const V g = hn::MulAdd(decay, p, hn::Mul(load(piece.grad + i), factor));
    const V m = hn::MulAdd(beta1, load(piece.moment1 + i), hn::Mul(rest1, g));
    const V v = hn::MulAdd(beta2, load(piece.moment2 + i), hn::Mul(rest2, hn::Mul(g, g)));
    const V denominator = hn::MulAdd(hn::Sqrt(v), root_scale, eps);
    p = hn::NegMulAdd(step_size, hn::Div(m, denominator), hn::Mul(p, shrink));
    store(m, piece.moment1 + i);
    store(v, piece.moment2 + i);
    store(p, piece.master + i);
    if (piece.working != nullptr) store(p, piece.working + i);
  });
}

void sgd_piece(const Piece& piece, const SgdFactors& factors) {
  const FloatTag d;
  const V factor = hn::Set(d, factors.grad_factor);
  const V momentum = hn::Set(d, factors.momentum);
  const V keep = hn::Set(d, factors.keep);
  const V lr = hn::Set(d, factors.lr);
  const V decay = hn::Set(d, piece.weight_decay);
  for_each_vector(piece.n, [&](std::size_t i, auto load, auto store) HWY_ATTR {
    V p = load(piece.master + i);
    V g = hn::MulAdd(decay, p, hn::Mul(load(piece.grad + i), factor));
    if (piece.moment1 != nullptr) {
      V m = g;
      if (!factors.first_step) m = hn::MulAdd(momentum, load(piece.moment1 + i), hn::Mul(keep, g));
      store(m, piece.moment1 + i);
      g = factors.nesterov ? hn::MulAdd(momentum, m, g) : m;
    }
    p = hn::NegMulAdd(lr, g, p);
    store(p, piece.master + i);
    if (piece.working != nullptr) store(p, piece.working + i);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::kernels::cpu {
namespace {

HWY_EXPORT(adam_piece);
HWY_EXPORT(sgd_piece);

Piece piece_of(const OptimizerTensor& tensor, std::int64_t begin, std::int64_t end) {
  const auto at = [begin]<typename T>(T* data) { return data == nullptr ? nullptr : data + begin; };
  return {at(tensor.master.as<float>()),
          at(tensor.grad.as<const float>()),
          at(tensor.moment1.as<float>()),
          at(tensor.moment2.as<float>()),
          at(tensor.working.as<bfloat16>()),
          static_cast<std::size_t>(end - begin),
          tensor.weight_decay};
}

// Lays all tensors end to end and gives every thread one range of elements.
template <typename Fn>
void for_each_piece(Threads threads, std::span<const OptimizerTensor> tensors, Fn&& fn) {
  std::int64_t total = 0;
  for (const OptimizerTensor& tensor : tensors) total += tensor.master.numel();
  parallel_for(threads, total, kElementGrain, [&](std::int64_t begin, std::int64_t end) {
    std::int64_t start = 0;
    for (const OptimizerTensor& tensor : tensors) {
      const std::int64_t n = tensor.master.numel();
      const std::int64_t first = std::max<std::int64_t>(begin - start, 0);
      const std::int64_t last = std::min(end - start, n);
      if (first < last) fn(piece_of(tensor, first, last));
      start += n;
      if (start >= end) return;
    }
  });
}

float factor_of(const StepScalars& scalars) {
  return scalars.grad_factor.defined() ? *scalars.grad_factor.as<float>() : 1.0f;
}

bool leaves_all_untouched(const StepScalars& scalars) {
  const auto& [lr, step, grad_factor, norm, loss] = scalars;
  return (norm.defined() && !std::isfinite(*norm.as<float>())) ||
         (loss.defined() && !std::isfinite(*loss.as<double>()));
}

}  // namespace

void CpuBackend::clip_factor(const KernelContext&, const TensorView& norm, const TensorView& factor,
                             const TensorView& sum_of_squares, double max_norm) {
  const float root = std::sqrt(static_cast<float>(*sum_of_squares.as<double>()));
  *norm.as<float>() = root;
  *factor.as<float>() =
      max_norm > 0.0 ? std::min(1.0f, static_cast<float>(max_norm) / (root + 1e-6f)) : 1.0f;
}

void CpuBackend::adam_step(const KernelContext& context, std::span<const OptimizerTensor> tensors,
                           const StepScalars& scalars, const AdamOptions& options) {
  if (leaves_all_untouched(scalars)) return;
  const auto step = static_cast<double>(*scalars.step.as<std::int64_t>());
  const float lr = *scalars.lr.as<float>();
  const double correction1 = 1.0 - std::pow(static_cast<double>(options.beta1), step);
  const double correction2 = 1.0 - std::pow(static_cast<double>(options.beta2), step);
  const AdamFactors factors{lr,
                            options.beta1,
                            options.beta2,
                            options.eps,
                            factor_of(scalars),
                            static_cast<float>(lr / correction1),
                            static_cast<float>(1.0 / std::sqrt(correction2)),
                            options.decoupled};
  for_each_piece(context.threads, tensors, [&](const Piece& piece) {
    HWY_DYNAMIC_DISPATCH(adam_piece)(piece, factors);
  });
}

void CpuBackend::sgd_step(const KernelContext& context, std::span<const OptimizerTensor> tensors,
                          const StepScalars& scalars, const SgdOptions& options) {
  if (leaves_all_untouched(scalars)) return;
  const SgdFactors factors{*scalars.lr.as<float>(),  options.momentum,
                           1.0f - options.dampening, factor_of(scalars),
                           options.nesterov,         *scalars.step.as<std::int64_t>() == 1};
  for_each_piece(context.threads, tensors, [&](Piece piece) {
    if (options.momentum == 0.0f) piece.moment1 = nullptr;
    HWY_DYNAMIC_DISPATCH(sgd_piece)(piece, factors);
  });
}

}  // namespace meshloom::kernels::cpu
#endif  // HWY_ONCE
