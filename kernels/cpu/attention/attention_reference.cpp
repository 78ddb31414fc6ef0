// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention/attention_reference.h"

#include <cmath>
#include <limits>

#include "kernels/cpu/simd/dispatch.h"
#include "kernels/cpu/span_workspace.h"

namespace meshloom::kernels::cpu {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

double load(const TensorView& view, std::int64_t offset) {
  double value = 0.0;
  dispatch_any(view.dtype, "attention", [&](auto tag) {
    value = convert<double>(view.as<typename decltype(tag)::type>()[offset]);
  });
  return value;
}

void store(const TensorView& view, std::int64_t offset, double value) {
  dispatch_any(view.dtype, "attention", [&](auto tag) {
    using T = typename decltype(tag)::type;
    view.as<T>()[offset] = convert<T>(value);
  });
}

std::int64_t row_offset(const TensorView& view, std::int64_t b, std::int64_t h, std::int64_t s) {
  return b * view.stride(0) + h * view.stride(1) + s * view.stride(2);
}

// One (batch, query head): scores, masks and dropout as AttentionOptions defines them.
class Head {
 public:
  Head(const AttentionInputs& in, const AttentionOptions& options, std::int64_t b, std::int64_t h)
      : in_(in),
        options_(options),
        b_(b),
        h_(h),
        kv_(h / (in.q.size(1) / in.k.size(1))),
        scale_(options.scale != 0.0 ? options.scale
                                    : 1.0 / std::sqrt(static_cast<double>(in.q.size(3)))) {}

  double scale() const { return scale_; }
  std::int64_t kv_head() const { return kv_; }

  /// Score of (query i, key j), -inf where it is not seen.
  double score(std::int64_t i, std::int64_t j) const {
    if (!visible(i, j)) return kMinusInfinity;
    double sum = 0.0;
    const std::int64_t q = row_offset(in_.q, b_, h_, i), k = row_offset(in_.k, b_, kv_, j);
    for (std::int64_t d = 0; d < in_.q.size(3); ++d)
      sum += load(in_.q, q + d * in_.q.stride(3)) * load(in_.k, k + d * in_.k.stride(3));
    sum *= scale_;
    if (options_.bias.defined())
      sum +=
          load(options_.bias, row_offset(options_.bias, b_, h_, i) + j * options_.bias.stride(3));
    if (options_.alibi_slopes.defined())
      sum -= load(options_.alibi_slopes, h_ * options_.alibi_slopes.stride(0)) *
             std::abs(
                 static_cast<double>(query_position(i) + options_.query_offset - key_position(j)));
    return sum;
  }

  /// What dropout multiplies the probability by.
  double keep(std::int64_t i, std::int64_t j) const {
    if (options_.dropout_p <= 0.0f) return 1.0;
    const std::int64_t heads =
        options_.dropout_total_heads > 0 ? options_.dropout_total_heads : in_.q.size(1);
    const std::int64_t head = options_.dropout_first_head + b_ * heads + h_;
    const std::int64_t index =
        (head * options_.dropout_total_queries + query_position(i)) * options_.dropout_total_keys +
        key_position(j);
    const float u = philox_uniform(options_.dropout_random.at(static_cast<std::uint64_t>(index)));
    return u >= options_.dropout_p ? 1.0 / (1.0 - options_.dropout_p) : 0.0;
  }

 private:
  std::int64_t query_position(std::int64_t i) const {
    const TensorView& p = options_.query_positions;
    return p.defined() ? p.as<std::int64_t>()[i * p.stride(0)] : i;
  }
  std::int64_t key_position(std::int64_t j) const {
    const TensorView& p = options_.key_positions;
    return p.defined() ? p.as<std::int64_t>()[j * p.stride(0)] : options_.key_offset + j;
  }

  bool visible(std::int64_t i, std::int64_t j) const {
    const std::int64_t distance = key_position(j) - query_position(i) - options_.query_offset;
    if (options_.is_causal && distance > 0) return false;
    if (options_.window_left >= 0 && distance < -options_.window_left) return false;
    if (options_.window_right >= 0 && distance > options_.window_right) return false;
    const TensorView &qd = options_.query_documents, &kd = options_.key_documents;
    return !qd.defined() || qd.as<std::int64_t>()[b_ * qd.stride(0) + i * qd.stride(1)] ==
                                kd.as<std::int64_t>()[b_ * kd.stride(0) + j * kd.stride(1)];
  }

  const AttentionInputs& in_;
  const AttentionOptions& options_;
  std::int64_t b_, h_, kv_;
  double scale_;
};

void forward_row(const AttentionOutputs& out, const AttentionInputs& in, const Head& head,
                 std::int64_t b, std::int64_t h, std::int64_t i, double* p) {
  const std::int64_t keys = in.k.size(2);
  double top = kMinusInfinity;
  for (std::int64_t j = 0; j < keys; ++j) top = std::max(top, p[j] = head.score(i, j));
  double sum = 0.0;
  for (std::int64_t j = 0; j < keys; ++j)
    sum += p[j] = top == kMinusInfinity ? 0.0 : std::exp(p[j] - top);
  const double block_lse = sum > 0.0 ? top + std::log(sum) : kMinusInfinity;
  const std::int64_t lse_at = row_offset(out.lse, b, h, i);
  const double old_lse = out.carry ? load(out.lse, lse_at) : kMinusInfinity;
  const double high = std::max(block_lse, old_lse);
  const double lse = high == kMinusInfinity
                         ? kMinusInfinity
                         : high + std::log(std::exp(block_lse - high) + std::exp(old_lse - high));
  const double old_weight = old_lse == kMinusInfinity ? 0.0 : std::exp(old_lse - lse);
  const double weight = sum > 0.0 ? std::exp(top - lse) : 0.0;
  for (std::int64_t j = 0; j < keys; ++j)
    if (p[j] != 0.0) p[j] *= weight * head.keep(i, j);
  const std::int64_t o_at = row_offset(out.o, b, h, i);
  for (std::int64_t d = 0; d < in.v.size(3); ++d) {
    const std::int64_t at = o_at + d * out.o.stride(3);
    double value = old_weight > 0.0 ? old_weight * load(out.o, at) : 0.0;
    for (std::int64_t j = 0; j < keys; ++j)
      if (p[j] != 0.0)
        value += p[j] * load(in.v, row_offset(in.v, b, head.kv_head(), j) + d * in.v.stride(3));
    store(out.o, at, value);
  }
  store(out.lse, lse_at, lse);
}

// Sums of one (batch, kv head) in double: dk [Skv, D], dv [Skv, Dv], and dq [D] of one query.
struct GradSums {
  double *dk, *dv, *dq;
};

void backward_row(const AttentionGrads& grads, const AttentionInputs& in, const Head& head,
                  std::int64_t b, std::int64_t h, std::int64_t i, const GradSums& sums) {
  const std::int64_t dims = in.q.size(3), dims_v = in.v.size(3), kv = head.kv_head();
  const double lse = load(grads.lse, row_offset(grads.lse, b, h, i));
  const double delta = load(grads.delta, row_offset(grads.delta, b, h, i));
  const std::int64_t q_at = row_offset(in.q, b, h, i), do_at = row_offset(grads.grad_o, b, h, i);
  std::fill_n(sums.dq, dims, 0.0);
  for (std::int64_t j = 0; j < in.k.size(2); ++j) {
    const double score = head.score(i, j);
    if (score == kMinusInfinity || lse == kMinusInfinity) continue;
    const double p = std::exp(score - lse), keep = head.keep(i, j);
    const std::int64_t k_at = row_offset(in.k, b, kv, j), v_at = row_offset(in.v, b, kv, j);
    double dp = 0.0;
    for (std::int64_t d = 0; d < dims_v; ++d) {
      const double go = load(grads.grad_o, do_at + d * grads.grad_o.stride(3));
      dp += go * load(in.v, v_at + d * in.v.stride(3));
      sums.dv[j * dims_v + d] += p * keep * go;
    }
    const double ds = p * (keep * dp - delta);
    if (grads.grad_bias.defined()) {
      const std::int64_t at = row_offset(grads.grad_bias, b, h, i) + j * grads.grad_bias.stride(3);
      store(grads.grad_bias, at, load(grads.grad_bias, at) + ds);
    }
    for (std::int64_t d = 0; d < dims; ++d) {
      sums.dq[d] += ds * head.scale() * load(in.k, k_at + d * in.k.stride(3));
      sums.dk[j * dims + d] += ds * head.scale() * load(in.q, q_at + d * in.q.stride(3));
    }
  }
}

void store_row(const TensorView& view, std::int64_t offset, const double* values, bool accumulate) {
  for (std::int64_t d = 0; d < view.size(3); ++d) {
    const std::int64_t at = offset + d * view.stride(3);
    store(view, at, accumulate ? load(view, at) + values[d] : values[d]);
  }
}

void backward_kv_head(const AttentionGrads& grads, const AttentionInputs& in,
                      const AttentionOptions& options, std::int64_t b, std::int64_t kv,
                      double* scratch) {
  const std::int64_t keys = in.k.size(2), dims = in.q.size(3), dims_v = in.v.size(3);
  const std::int64_t group = in.q.size(1) / in.k.size(1);
  const GradSums sums{scratch, scratch + keys * dims, scratch + keys * (dims + dims_v)};
  std::fill_n(scratch, keys * (dims + dims_v), 0.0);
  for (std::int64_t h = kv * group; h < (kv + 1) * group; ++h) {
    const Head head(in, options, b, h);
    for (std::int64_t i = 0; i < in.q.size(2); ++i) {
      backward_row(grads, in, head, b, h, i, sums);
      store_row(grads.dq, row_offset(grads.dq, b, h, i), sums.dq, grads.accumulate);
    }
  }
  for (std::int64_t j = 0; j < keys; ++j) {
    store_row(grads.dk, row_offset(grads.dk, b, kv, j), sums.dk + j * dims, grads.accumulate);
    store_row(grads.dv, row_offset(grads.dv, b, kv, j), sums.dv + j * dims_v, grads.accumulate);
  }
}

}  // namespace

void reference_attention(const KernelContext& context, const AttentionOutputs& out,
                         const AttentionInputs& in, const AttentionOptions& options) {
  const std::int64_t heads = in.q.size(1), queries = in.q.size(2), keys = in.k.size(2);
  const int threads = std::max(context.threads.count, 1);
  SpanCutter cutter(
      reserve_workspace(context, piece_bytes<double>(threads * (keys + 1)), "attention"));
  double* scratch = cutter.take<double>(threads * (keys + 1));
  const std::int64_t rows = in.q.size(0) * heads * queries;
  parallel_for(context.threads, threads, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = rows * begin / threads; row < rows * end / threads; ++row) {
      const std::int64_t b = row / queries / heads, h = row / queries % heads;
      forward_row(out, in, Head(in, options, b, h), b, h, row % queries,
                  scratch + begin * (keys + 1));
    }
  });
}

void reference_attention_backward(const KernelContext& context, const AttentionGrads& grads,
                                  const AttentionInputs& in, const AttentionOptions& options) {
  const std::int64_t kv_heads = in.k.size(1);
  const std::int64_t per_item = in.k.size(2) * (in.q.size(3) + in.v.size(3)) + in.q.size(3);
  // Heads may share elements of a broadcast grad_bias: then one after the other.
  const int threads = grads.grad_bias.defined() ? 1 : std::max(context.threads.count, 1);
  SpanCutter cutter(
      reserve_workspace(context, piece_bytes<double>(threads * per_item), "attention_backward"));
  double* scratch = cutter.take<double>(threads * per_item);
  const std::int64_t items = in.q.size(0) * kv_heads;
  parallel_for({threads}, threads, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = items * begin / threads; i < items * end / threads; ++i)
      backward_kv_head(grads, in, options, i / kv_heads, i % kv_heads, scratch + begin * per_item);
  });
}

}  // namespace meshloom::kernels::cpu
