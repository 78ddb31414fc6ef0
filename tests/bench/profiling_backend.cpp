// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/profiling_backend.h"

#include <fmt/format.h>

#include <algorithm>

#include "tests/bench/bench.h"

namespace meshloom::kernels {
namespace {

double bytes_of(std::initializer_list<const TensorView*> views) {
  double bytes = 0.0;
  for (const TensorView* view : views)
    if (view->defined()) bytes += static_cast<double>(view->bytes());
  return bytes;
}

double bytes_of(std::span<const TensorView> views) {
  double bytes = 0.0;
  for (const TensorView& view : views) bytes += static_cast<double>(view.bytes());
  return bytes;
}

double product_flops(double m, double n, double k) { return 2.0 * m * n * k; }

std::string text_of(const TensorView& view) {
  return fmt::format("{} {}", dtype_name(view.dtype), fmt::join(view.shape, "x"));
}

char layout_of(const TensorView& matrix) {
  const int last = matrix.ndim() - 1;
  return matrix.stride(last) == 1 || matrix.size(last) == 1 ? 'N' : 'T';
}

std::string matmul_text(const TensorView& y, const TensorView& a, const TensorView& b,
                        const MatmulOptions& options) {
  const std::int64_t n = y.size(y.ndim() - 1), k = a.size(a.ndim() - 1);
  const std::int64_t m = n == 0 ? 0 : y.numel() / n;
  return fmt::format("matmul {}{}{} {} x {} x {} {}", layout_of(a), layout_of(b),
                     options.beta != 0.0f ? '+' : ' ', m, n, k, dtype_name(a.dtype));
}

// Of so many products of queries by keys; half where causal.
double attention_flops(const AttentionInputs& in, const AttentionOptions& options,
                       double products) {
  const double queries = static_cast<double>(in.q.size(2)),
               keys = static_cast<double>(in.k.size(2));
  const double heads = static_cast<double>(in.q.size(0) * in.q.size(1));
  const double seen = options.is_causal ? 0.5 : 1.0;
  return products * seen * heads * product_flops(queries, keys, static_cast<double>(in.q.size(3)));
}

double traffic(std::span<const OptimizerTensor> tensors, double bytes_per_element) {
  double elements = 0.0;
  for (const OptimizerTensor& tensor : tensors)
    elements += static_cast<double>(tensor.master.numel());
  return elements * bytes_per_element;
}

}  // namespace

template <typename Call>
void ProfilingBackend::timed(const KernelContext& context, const std::string& name, Work work,
                             Call&& call) {
  KernelProfile& profile = profiles_[{phase_, name}];
  profile.flops += work.flops;
  profile.bytes += work.bytes;
  ++profile.calls;
  QueuedCall queued{&profile, inner_.make_event(), inner_.make_event()};
  queued.begin->record(context.stream);
  call();
  queued.end->record(context.stream);
  queued_.push_back(std::move(queued));
}

std::map<std::pair<std::string, std::string>, KernelProfile> ProfilingBackend::take() {
  for (const QueuedCall& call : queued_)
    call.profile->seconds += call.end->seconds_since(*call.begin);
  queued_.clear();
  return std::exchange(profiles_, {});
}

void ProfilingBackend::copy(const KernelContext& context, const TensorView& dst,
                            const TensorView& src) {
  timed(context, fmt::format("copy {} to {}", text_of(src), dtype_name(dst.dtype)),
        Work{bytes_of({&dst, &src}), 0.0}, [&] { return inner_.copy(context, dst, src); });
}

void ProfilingBackend::fill(const KernelContext& context, const TensorView& dst, double value) {
  timed(context, "fill", Work{bytes_of({&dst}), 0.0},
        [&] { return inner_.fill(context, dst, value); });
}

void ProfilingBackend::copy_from_host(const KernelContext& context, const TensorView& dst,
                                      const TensorView& host) {
  timed(context, "copy_from_host", Work{bytes_of({&dst, &host}), 0.0},
        [&] { return inner_.copy_from_host(context, dst, host); });
}

void ProfilingBackend::copy_from_host_async(const KernelContext& context, const TensorView& dst,
                                            const TensorView& host) {
  timed(context, "copy_from_host_async", Work{bytes_of({&dst, &host}), 0.0},
        [&] { return inner_.copy_from_host_async(context, dst, host); });
}

void ProfilingBackend::copy_to_host(const KernelContext& context, const TensorView& host,
                                    const TensorView& src) {
  timed(context, "copy_to_host", Work{bytes_of({&host, &src}), 0.0},
        [&] { return inner_.copy_to_host(context, host, src); });
}

void ProfilingBackend::copy_to_host_async(const KernelContext& context, const TensorView& host,
                                          const TensorView& src) {
  timed(context, "copy_to_host_async", Work{bytes_of({&host, &src}), 0.0},
        [&] { return inner_.copy_to_host_async(context, host, src); });
}

void ProfilingBackend::unary(const KernelContext& context, UnaryOp op, const TensorView& y,
                             const TensorView& x, double scalar) {
  timed(context, fmt::format("unary {} {}", static_cast<int>(op), text_of(x)),
        Work{bytes_of({&y, &x}), 0.0}, [&] { return inner_.unary(context, op, y, x, scalar); });
}

void ProfilingBackend::unary_backward(const KernelContext& context, UnaryOp op,
                                      const TensorView& dx, const TensorView& dy,
                                      const TensorView& x, const TensorView& y, double scalar) {
  timed(context, fmt::format("unary_backward {} {}", static_cast<int>(op), text_of(x)),
        Work{bytes_of({&dx, &dy, &x, &y}), 0.0},
        [&] { return inner_.unary_backward(context, op, dx, dy, x, y, scalar); });
}

void ProfilingBackend::binary(const KernelContext& context, BinaryOp op, const TensorView& y,
                              const TensorView& a, const TensorView& b) {
  timed(context, "binary", Work{bytes_of({&y, &a, &b}), 0.0},
        [&] { return inner_.binary(context, op, y, a, b); });
}

void ProfilingBackend::where(const KernelContext& context, const TensorView& y,
                             const TensorView& condition, const TensorView& a,
                             const TensorView& b) {
  timed(context, "where", Work{bytes_of({&y, &condition, &a, &b}), 0.0},
        [&] { return inner_.where(context, y, condition, a, b); });
}

void ProfilingBackend::triangle(const KernelContext& context, const TensorView& y,
                                const TensorView& x, bool upper, std::int64_t diagonal) {
  timed(context, "triangle", Work{bytes_of({&y, &x}), 0.0},
        [&] { return inner_.triangle(context, y, x, upper, diagonal); });
}

void ProfilingBackend::swiglu(const KernelContext& context, const TensorView& y,
                              const TensorView& gate, const TensorView& up) {
  timed(context, "swiglu", Work{bytes_of({&y, &gate, &up}), 0.0},
        [&] { return inner_.swiglu(context, y, gate, up); });
}

void ProfilingBackend::swiglu_backward(const KernelContext& context, const TensorView& dgate,
                                       const TensorView& dup, const TensorView& dy,
                                       const TensorView& gate, const TensorView& up) {
  timed(context, "swiglu_backward", Work{bytes_of({&dgate, &dup, &dy, &gate, &up}), 0.0},
        [&] { return inner_.swiglu_backward(context, dgate, dup, dy, gate, up); });
}

void ProfilingBackend::dropout(const KernelContext& context, const TensorView& y,
                               const TensorView& x, const DropoutOptions& options) {
  timed(context, "dropout", Work{bytes_of({&y, &x}), 0.0},
        [&] { return inner_.dropout(context, y, x, options); });
}

void ProfilingBackend::fill_normal(const KernelContext& context, const TensorView& dst,
                                   const PhiloxStream& random, std::uint64_t first_index,
                                   float mean, float std) {
  timed(context, "fill_normal", Work{bytes_of({&dst}), 0.0},
        [&] { return inner_.fill_normal(context, dst, random, first_index, mean, std); });
}

void ProfilingBackend::fill_uniform(const KernelContext& context, const TensorView& dst,
                                    const PhiloxStream& random, std::uint64_t first_index,
                                    float low, float high) {
  timed(context, "fill_uniform", Work{bytes_of({&dst}), 0.0},
        [&] { return inner_.fill_uniform(context, dst, random, first_index, low, high); });
}

void ProfilingBackend::reduce(const KernelContext& context, ReduceOp op, const TensorView& y,
                              const TensorView& x, double correction) {
  timed(context, fmt::format("reduce {}", text_of(x)), Work{bytes_of({&y, &x}), 0.0},
        [&] { return inner_.reduce(context, op, y, x, correction); });
}

void ProfilingBackend::sum_of_squares(const KernelContext& context, const TensorView& out,
                                      std::span<const TensorView> xs, bool accumulate) {
  timed(context, "sum_of_squares", Work{bytes_of(xs), 0.0},
        [&] { return inner_.sum_of_squares(context, out, xs, accumulate); });
}

void ProfilingBackend::first_nonfinite(const KernelContext& context, const TensorView& index,
                                       std::span<const TensorView> xs) {
  timed(context, "first_nonfinite", Work{bytes_of(xs), 0.0},
        [&] { return inner_.first_nonfinite(context, index, xs); });
}

void ProfilingBackend::clip_factor(const KernelContext& context, const TensorView& norm,
                                   const TensorView& factor, const TensorView& sum_of_squares,
                                   double max_norm) {
  inner_.clip_factor(context, norm, factor, sum_of_squares, max_norm);
}

void ProfilingBackend::softmax(const KernelContext& context, const TensorView& y,
                               const TensorView& x, bool log) {
  timed(context, "softmax", Work{bytes_of({&y, &x}), 0.0},
        [&] { return inner_.softmax(context, y, x, log); });
}

void ProfilingBackend::softmax_backward(const KernelContext& context, const TensorView& dx,
                                        const TensorView& dy, const TensorView& y, bool log) {
  timed(context, "softmax_backward", Work{bytes_of({&dx, &dy, &y}), 0.0},
        [&] { return inner_.softmax_backward(context, dx, dy, y, log); });
}

void ProfilingBackend::norm(const KernelContext& context, const NormViews& views,
                            const NormOptions& options) {
  const char* name = views.residual.defined()           ? "add_norm"
                     : options.kind == NormKind::kLayer ? "layer_norm"
                                                        : "rms_norm";
  const auto& [y, sum, mean, rstd, x, residual, weight, bias] = views;
  timed(context, name, Work{bytes_of({&y, &sum, &mean, &rstd, &x, &residual, &weight, &bias}), 0.0},
        [&] { return inner_.norm(context, views, options); });
}

void ProfilingBackend::norm_backward(const KernelContext& context, const NormGrads& grads) {
  const char* name = grads.mean.defined() ? "layer_norm_backward" : "rms_norm_backward";
  timed(context, name,
        Work{bytes_of({&grads.dx, &grads.dweight, &grads.dbias, &grads.dy, &grads.x, &grads.weight,
                       &grads.mean, &grads.rstd}),
             0.0},
        [&] { return inner_.norm_backward(context, grads); });
}

void ProfilingBackend::embedding(const KernelContext& context, const TensorView& y,
                                 const TensorView& weight, const TensorView& ids) {
  timed(context, "embedding", Work{bytes_of({&y, &weight, &ids}), 0.0},
        [&] { return inner_.embedding(context, y, weight, ids); });
}

void ProfilingBackend::embedding_backward(const KernelContext& context, const TensorView& dweight,
                                          const TensorView& dy, const TensorView& ids,
                                          std::int64_t padding_idx) {
  timed(context, "embedding_backward", Work{bytes_of({&dweight, &dy, &ids}), 0.0},
        [&] { return inner_.embedding_backward(context, dweight, dy, ids, padding_idx); });
}

void ProfilingBackend::matmul(const KernelContext& context, const TensorView& y,
                              const TensorView& a, const TensorView& b,
                              const MatmulOptions& options) {
  timed(context, matmul_text(y, a, b, options),
        Work{bytes_of({&y, &a, &b}), product_flops(static_cast<double>(y.numel()), 1.0,
                                                   static_cast<double>(a.size(a.ndim() - 1)))},
        [&] { return inner_.matmul(context, y, a, b, options); });
}

void ProfilingBackend::attention(const KernelContext& context, const AttentionOutputs& out,
                                 const AttentionInputs& in, const AttentionOptions& options) {
  timed(context, "attention",
        Work{bytes_of({&in.q, &in.k, &in.v, &out.o}), attention_flops(in, options, 2.0)},
        [&] { return inner_.attention(context, out, in, options); });
}

void ProfilingBackend::attention_rows(const KernelContext& context, const AttentionOutputs& out,
                                      const TensorView& q,
                                      std::span<const AttentionMemory> memories, double scale) {
  Work work{bytes_of({&q, &out.o}), 0.0};
  for (const auto& [k, v] : memories) {
    const double heads =
        static_cast<double>(q.size(1)) / static_cast<double>(std::max<std::int64_t>(1, k.size(1)));
    work.bytes += bytes_of({&k, &v});
    work.flops += 2.0 * heads * static_cast<double>(k.numel() + v.numel());
  }
  timed(context, "attention_rows", work,
        [&] { return inner_.attention_rows(context, out, q, memories, scale); });
}

void ProfilingBackend::attention_backward(const KernelContext& context, const AttentionGrads& grads,
                                          const AttentionInputs& in,
                                          const AttentionOptions& options) {
  timed(context, "attention_backward",
        Work{bytes_of({&in.q, &in.k, &in.v, &grads.grad_o, &grads.dq, &grads.dk, &grads.dv}),
             attention_flops(in, options, 5.0)},
        [&] { return inner_.attention_backward(context, grads, in, options); });
}

void ProfilingBackend::attention_delta(const KernelContext& context, const TensorView& delta,
                                       const TensorView& grad_o, const TensorView& o) {
  timed(context, "attention_delta", Work{bytes_of({&delta, &grad_o, &o}), 0.0},
        [&] { return inner_.attention_delta(context, delta, grad_o, o); });
}

void ProfilingBackend::rope(const KernelContext& context, const TensorView& y, const TensorView& x,
                            const RopeOptions& options) {
  timed(context, "rope", Work{bytes_of({&y, &x}), 0.0},
        [&] { return inner_.rope(context, y, x, options); });
}

void ProfilingBackend::cross_entropy(const KernelContext& context, const CrossEntropyRows& rows,
                                     const CrossEntropyOptions& options) {
  timed(context, "cross_entropy",
        Work{bytes_of({&rows.losses, &rows.lse, &rows.logits, &rows.targets}), 0.0},
        [&] { return inner_.cross_entropy(context, rows, options); });
}

void ProfilingBackend::cross_entropy_backward(const KernelContext& context,
                                              const TensorView& dlogits,
                                              const TensorView& grad_losses,
                                              const CrossEntropyRows& rows,
                                              const CrossEntropyOptions& options) {
  timed(context, "cross_entropy_backward",
        Work{bytes_of({&dlogits, &grad_losses, &rows.logits, &rows.lse, &rows.targets}), 0.0}, [&] {
          return inner_.cross_entropy_backward(context, dlogits, grad_losses, rows, options);
        });
}

void ProfilingBackend::output_loss_chunk(const KernelContext& context, const CrossEntropyRows& rows,
                                         const OutputProjection& projection,
                                         const CrossEntropyOptions& options) {
  const auto& [hidden, weight, bias] = projection;
  timed(context, "output_loss_chunk",
        Work{bytes_of(
                 {&rows.losses, &rows.lse, &rows.logits, &hidden, &weight, &bias, &rows.targets}),
             product_flops(static_cast<double>(hidden.numel()), static_cast<double>(weight.size(0)),
                           1.0)},
        [&] { return inner_.output_loss_chunk(context, rows, projection, options); });
}

void ProfilingBackend::output_loss_products(const KernelContext& context,
                                            const OutputLossGrads& grads,
                                            const TensorView& gradient,
                                            const OutputProjection& projection) {
  const TensorView &hidden = projection.hidden, &weight = projection.weight;
  timed(context, "output_loss_products",
        Work{bytes_of({&grads.dhidden, &grads.dweight, &grads.dbias, &gradient, &hidden, &weight}),
             (0.0 + grads.dhidden.defined() + grads.dweight.defined()) *
                 product_flops(static_cast<double>(hidden.numel()),
                               static_cast<double>(weight.size(0)), 1.0)},
        [&] { return inner_.output_loss_products(context, grads, gradient, projection); });
}

void ProfilingBackend::adam_step(const KernelContext& context,
                                 std::span<const OptimizerTensor> tensors,
                                 const StepScalars& scalars, const AdamOptions& options) {
  timed(context, "adam_step", Work{traffic(tensors, 28.0), 0.0},
        [&] { return inner_.adam_step(context, tensors, scalars, options); });
}

void ProfilingBackend::sgd_step(const KernelContext& context,
                                std::span<const OptimizerTensor> tensors,
                                const StepScalars& scalars, const SgdOptions& options) {
  timed(context, "sgd_step", Work{traffic(tensors, 20.0), 0.0},
        [&] { return inner_.sgd_step(context, tensors, scalars, options); });
}

}  // namespace meshloom::kernels
