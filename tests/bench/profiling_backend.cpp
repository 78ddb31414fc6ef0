// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/profiling_backend.h"

#include <fmt/format.h>

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
  return fmt::format("matmul {}{}{} {} x {} x {} {}", layout_of(a), layout_of(b),
                     options.beta != 0.0f ? '+' : ' ', y.numel() / n, n, k, dtype_name(a.dtype));
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
auto ProfilingBackend::timed(const std::string& name, Work work, Call&& call) {
  struct Record {
    ~Record() {
      profile.seconds += bench::seconds_since(begin);
      ++profile.calls;
    }
    KernelProfile& profile;
    bench::Clock::time_point begin = bench::Clock::now();
  };
  KernelProfile& profile = profiles_[{phase_, name}];
  profile.flops += work.flops;
  profile.bytes += work.bytes;
  const Record record{profile};
  return call();
}

void ProfilingBackend::copy(const KernelContext& context, const TensorView& dst,
                            const TensorView& src) {
  timed(fmt::format("copy {} to {}", text_of(src), dtype_name(dst.dtype)),
        Work{bytes_of({&dst, &src}), 0.0}, [&] { return inner_.copy(context, dst, src); });
}

void ProfilingBackend::fill(const KernelContext& context, const TensorView& dst, double value) {
  timed("fill", Work{bytes_of({&dst}), 0.0}, [&] { return inner_.fill(context, dst, value); });
}

void ProfilingBackend::unary(const KernelContext& context, UnaryOp op, const TensorView& y,
                             const TensorView& x, double scalar) {
  timed(fmt::format("unary {} {}", static_cast<int>(op), text_of(x)), Work{bytes_of({&y, &x}), 0.0},
        [&] { return inner_.unary(context, op, y, x, scalar); });
}

void ProfilingBackend::unary_backward(const KernelContext& context, UnaryOp op,
                                      const TensorView& dx, const TensorView& dy,
                                      const TensorView& x, const TensorView& y, double scalar) {
  timed(fmt::format("unary_backward {} {}", static_cast<int>(op), text_of(x)),
        Work{bytes_of({&dx, &dy, &x, &y}), 0.0},
        [&] { return inner_.unary_backward(context, op, dx, dy, x, y, scalar); });
}

void ProfilingBackend::binary(const KernelContext& context, BinaryOp op, const TensorView& y,
                              const TensorView& a, const TensorView& b) {
  timed("binary", Work{bytes_of({&y, &a, &b}), 0.0},
        [&] { return inner_.binary(context, op, y, a, b); });
}

void ProfilingBackend::where(const KernelContext& context, const TensorView& y,
                             const TensorView& condition, const TensorView& a,
                             const TensorView& b) {
  timed("where", Work{bytes_of({&y, &condition, &a, &b}), 0.0},
        [&] { return inner_.where(context, y, condition, a, b); });
}

void ProfilingBackend::triangle(const KernelContext& context, const TensorView& y,
                                const TensorView& x, bool upper, std::int64_t diagonal) {
  timed("triangle", Work{bytes_of({&y, &x}), 0.0},
        [&] { return inner_.triangle(context, y, x, upper, diagonal); });
}

void ProfilingBackend::swiglu(const KernelContext& context, const TensorView& y,
                              const TensorView& gate, const TensorView& up) {
  timed("swiglu", Work{bytes_of({&y, &gate, &up}), 0.0},
        [&] { return inner_.swiglu(context, y, gate, up); });
}

void ProfilingBackend::swiglu_backward(const KernelContext& context, const TensorView& dgate,
                                       const TensorView& dup, const TensorView& dy,
                                       const TensorView& gate, const TensorView& up) {
  timed("swiglu_backward", Work{bytes_of({&dgate, &dup, &dy, &gate, &up}), 0.0},
        [&] { return inner_.swiglu_backward(context, dgate, dup, dy, gate, up); });
}

void ProfilingBackend::dropout(const KernelContext& context, const TensorView& y,
                               const TensorView& x, const DropoutOptions& options) {
  timed("dropout", Work{bytes_of({&y, &x}), 0.0},
        [&] { return inner_.dropout(context, y, x, options); });
}

void ProfilingBackend::fill_normal(const KernelContext& context, const TensorView& dst,
                                   const PhiloxStream& random, std::uint64_t first_index,
                                   float mean, float std) {
  timed("fill_normal", Work{bytes_of({&dst}), 0.0},
        [&] { return inner_.fill_normal(context, dst, random, first_index, mean, std); });
}

void ProfilingBackend::fill_uniform(const KernelContext& context, const TensorView& dst,
                                    const PhiloxStream& random, std::uint64_t first_index,
                                    float low, float high) {
  timed("fill_uniform", Work{bytes_of({&dst}), 0.0},
        [&] { return inner_.fill_uniform(context, dst, random, first_index, low, high); });
}

void ProfilingBackend::reduce(const KernelContext& context, ReduceOp op, const TensorView& y,
                              const TensorView& x, double correction) {
  timed(fmt::format("reduce {}", text_of(x)), Work{bytes_of({&y, &x}), 0.0},
        [&] { return inner_.reduce(context, op, y, x, correction); });
}

void ProfilingBackend::sum_of_squares(const KernelContext& context, float* out,
                                      std::span<const TensorView> xs, bool accumulate) {
  timed("sum_of_squares", Work{bytes_of(xs), 0.0},
        [&] { return inner_.sum_of_squares(context, out, xs, accumulate); });
}

std::int64_t ProfilingBackend::first_nonfinite(const KernelContext& context, const TensorView& x) {
  return timed("first_nonfinite", Work{bytes_of({&x}), 0.0},
               [&] { return inner_.first_nonfinite(context, x); });
}

void ProfilingBackend::softmax(const KernelContext& context, const TensorView& y,
                               const TensorView& x, bool log) {
  timed("softmax", Work{bytes_of({&y, &x}), 0.0},
        [&] { return inner_.softmax(context, y, x, log); });
}

void ProfilingBackend::softmax_backward(const KernelContext& context, const TensorView& dx,
                                        const TensorView& dy, const TensorView& y, bool log) {
  timed("softmax_backward", Work{bytes_of({&dx, &dy, &y}), 0.0},
        [&] { return inner_.softmax_backward(context, dx, dy, y, log); });
}

void ProfilingBackend::layer_norm(const KernelContext& context, const TensorView& y,
                                  const TensorView& mean, const TensorView& rstd,
                                  const TensorView& x, const TensorView& weight,
                                  const TensorView& bias, const NormOptions& options) {
  timed("layer_norm", Work{bytes_of({&y, &mean, &rstd, &x, &weight, &bias}), 0.0},
        [&] { return inner_.layer_norm(context, y, mean, rstd, x, weight, bias, options); });
}

void ProfilingBackend::layer_norm_backward(const KernelContext& context, const TensorView& dx,
                                           const TensorView& dweight, const TensorView& dbias,
                                           const TensorView& dy, const TensorView& x,
                                           const TensorView& weight, const TensorView& mean,
                                           const TensorView& rstd, bool accumulate_dx,
                                           bool accumulate_params) {
  timed("layer_norm_backward",
        Work{bytes_of({&dx, &dweight, &dbias, &dy, &x, &weight, &mean, &rstd}), 0.0}, [&] {
          return inner_.layer_norm_backward(context, dx, dweight, dbias, dy, x, weight, mean, rstd,
                                            accumulate_dx, accumulate_params);
        });
}

void ProfilingBackend::rms_norm(const KernelContext& context, const TensorView& y,
                                const TensorView& rstd, const TensorView& x,
                                const TensorView& weight, const NormOptions& options) {
  timed("rms_norm", Work{bytes_of({&y, &rstd, &x, &weight}), 0.0},
        [&] { return inner_.rms_norm(context, y, rstd, x, weight, options); });
}

void ProfilingBackend::rms_norm_backward(const KernelContext& context, const TensorView& dx,
                                         const TensorView& dweight, const TensorView& dy,
                                         const TensorView& x, const TensorView& weight,
                                         const TensorView& rstd, bool accumulate_dx,
                                         bool accumulate_params) {
  timed("rms_norm_backward", Work{bytes_of({&dx, &dweight, &dy, &x, &weight, &rstd}), 0.0}, [&] {
    return inner_.rms_norm_backward(context, dx, dweight, dy, x, weight, rstd, accumulate_dx,
                                    accumulate_params);
  });
}

void ProfilingBackend::add_norm(const KernelContext& context, const TensorView& y,
                                const TensorView& sum, const TensorView& mean,
                                const TensorView& rstd, const TensorView& x,
                                const TensorView& residual, const TensorView& weight,
                                const TensorView& bias, bool rms, const NormOptions& options) {
  timed("add_norm", Work{bytes_of({&y, &sum, &mean, &rstd, &x, &residual, &weight, &bias}), 0.0},
        [&] {
          return inner_.add_norm(context, y, sum, mean, rstd, x, residual, weight, bias, rms,
                                 options);
        });
}

void ProfilingBackend::embedding(const KernelContext& context, const TensorView& y,
                                 const TensorView& weight, const TensorView& ids) {
  timed("embedding", Work{bytes_of({&y, &weight, &ids}), 0.0},
        [&] { return inner_.embedding(context, y, weight, ids); });
}

void ProfilingBackend::embedding_backward(const KernelContext& context, const TensorView& dweight,
                                          const TensorView& dy, const TensorView& ids,
                                          std::int64_t padding_idx) {
  timed("embedding_backward", Work{bytes_of({&dweight, &dy, &ids}), 0.0},
        [&] { return inner_.embedding_backward(context, dweight, dy, ids, padding_idx); });
}

void ProfilingBackend::matmul(const KernelContext& context, const TensorView& y,
                              const TensorView& a, const TensorView& b,
                              const MatmulOptions& options) {
  timed(matmul_text(y, a, b, options),
        Work{bytes_of({&y, &a, &b}), product_flops(static_cast<double>(y.numel()), 1.0,
                                                   static_cast<double>(a.size(a.ndim() - 1)))},
        [&] { return inner_.matmul(context, y, a, b, options); });
}

void ProfilingBackend::attention(const KernelContext& context, const AttentionOutputs& out,
                                 const AttentionInputs& in, const AttentionOptions& options) {
  timed("attention",
        Work{bytes_of({&in.q, &in.k, &in.v, &out.o}), attention_flops(in, options, 2.0)},
        [&] { return inner_.attention(context, out, in, options); });
}

void ProfilingBackend::attention_rows(const KernelContext& context, const AttentionOutputs& out,
                                      const TensorView& q,
                                      std::span<const AttentionMemory> memories, double scale) {
  Work work{bytes_of({&q, &out.o}), 0.0};
  for (const auto& [k, v] : memories) {
    const double heads = static_cast<double>(q.size(1)) / static_cast<double>(k.size(1));
    work.bytes += bytes_of({&k, &v});
    work.flops += 2.0 * heads * static_cast<double>(k.numel() + v.numel());
  }
  timed("attention_rows", work,
        [&] { return inner_.attention_rows(context, out, q, memories, scale); });
}

void ProfilingBackend::attention_backward(const KernelContext& context, const AttentionGrads& grads,
                                          const AttentionInputs& in,
                                          const AttentionOptions& options) {
  timed("attention_backward",
        Work{bytes_of({&in.q, &in.k, &in.v, &grads.grad_o, &grads.dq, &grads.dk, &grads.dv}),
             attention_flops(in, options, 5.0)},
        [&] { return inner_.attention_backward(context, grads, in, options); });
}

void ProfilingBackend::attention_delta(const KernelContext& context, const TensorView& delta,
                                       const TensorView& grad_o, const TensorView& o) {
  timed("attention_delta", Work{bytes_of({&delta, &grad_o, &o}), 0.0},
        [&] { return inner_.attention_delta(context, delta, grad_o, o); });
}

void ProfilingBackend::rope(const KernelContext& context, const TensorView& y, const TensorView& x,
                            const RopeOptions& options) {
  timed("rope", Work{bytes_of({&y, &x}), 0.0}, [&] { return inner_.rope(context, y, x, options); });
}

void ProfilingBackend::cross_entropy(const KernelContext& context, const TensorView& losses,
                                     const TensorView& lse, const TensorView& logits,
                                     const TensorView& targets,
                                     const CrossEntropyOptions& options) {
  timed("cross_entropy", Work{bytes_of({&losses, &lse, &logits, &targets}), 0.0},
        [&] { return inner_.cross_entropy(context, losses, lse, logits, targets, options); });
}

void ProfilingBackend::cross_entropy_backward(const KernelContext& context,
                                              const TensorView& dlogits,
                                              const TensorView& grad_losses,
                                              const TensorView& logits, const TensorView& lse,
                                              const TensorView& targets,
                                              const CrossEntropyOptions& options) {
  timed("cross_entropy_backward",
        Work{bytes_of({&dlogits, &grad_losses, &logits, &lse, &targets}), 0.0}, [&] {
          return inner_.cross_entropy_backward(context, dlogits, grad_losses, logits, lse, targets,
                                               options);
        });
}

void ProfilingBackend::output_loss_chunk(const KernelContext& context, const TensorView& losses,
                                         const TensorView& lse, const TensorView& logits,
                                         const TensorView& hidden, const TensorView& weight,
                                         const TensorView& bias, const TensorView& targets,
                                         const CrossEntropyOptions& options) {
  timed("output_loss_chunk",
        Work{bytes_of({&losses, &lse, &logits, &hidden, &weight, &bias, &targets}),
             product_flops(static_cast<double>(hidden.numel()), static_cast<double>(weight.size(0)),
                           1.0)},
        [&] {
          return inner_.output_loss_chunk(context, losses, lse, logits, hidden, weight, bias,
                                          targets, options);
        });
}

void ProfilingBackend::output_loss_products(const KernelContext& context, const TensorView& dhidden,
                                            const TensorView& dweight, const TensorView& dbias,
                                            const TensorView& gradient, const TensorView& hidden,
                                            const TensorView& weight, bool accumulate_params) {
  timed("output_loss_products",
        Work{bytes_of({&dhidden, &dweight, &dbias, &gradient, &hidden, &weight}),
             (0.0 + dhidden.defined() + dweight.defined()) *
                 product_flops(static_cast<double>(hidden.numel()),
                               static_cast<double>(weight.size(0)), 1.0)},
        [&] {
          return inner_.output_loss_products(context, dhidden, dweight, dbias, gradient, hidden,
                                             weight, accumulate_params);
        });
}

void ProfilingBackend::adam_step(const KernelContext& context,
                                 std::span<const OptimizerTensor> tensors,
                                 const AdamOptions& options) {
  timed("adam_step", Work{traffic(tensors, 28.0), 0.0},
        [&] { return inner_.adam_step(context, tensors, options); });
}

void ProfilingBackend::sgd_step(const KernelContext& context,
                                std::span<const OptimizerTensor> tensors,
                                const SgdOptions& options) {
  timed("sgd_step", Work{traffic(tensors, 20.0), 0.0},
        [&] { return inner_.sgd_step(context, tensors, options); });
}

}  // namespace meshloom::kernels
