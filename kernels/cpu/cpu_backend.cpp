// SPDX-License-Identifier: Apache-2.0
// Forwards every call of the compute interface to the file of its topic.
#include "kernels/cpu/cpu_backend.h"

#include "kernels/cpu/attention.h"
#include "kernels/cpu/attention_one_query.h"
#include "kernels/cpu/copy.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/cross_entropy.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/embedding.h"
#include "kernels/cpu/library_threads.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/optimizer.h"
#include "kernels/cpu/output_loss.h"
#include "kernels/cpu/random.h"
#include "kernels/cpu/reduce.h"
#include "kernels/cpu/rope.h"
#include "kernels/cpu/softmax.h"
#include "kernels/cpu/unary.h"

namespace meshloom::kernels::cpu {
namespace {

class CpuBackend final : public Backend {
 public:
  // Settles the class of CPU before any kernel runs, and refuses an OpenBLAS that would fight for
  // the cores.
  CpuBackend() {
    cpu_class();
    verify_blas();
  }
  const char* name() const override { return "cpu"; }

  void copy(const KernelContext& context, const TensorView& dst, const TensorView& src) override {
    cpu::copy(context, dst, src);
  }
  void fill(const KernelContext& context, const TensorView& dst, double value) override {
    cpu::fill(context, dst, value);
  }
  void unary(const KernelContext& context, UnaryOp op, const TensorView& y, const TensorView& x,
             double scalar) override {
    cpu::unary(context, op, y, x, scalar);
  }
  void unary_backward(const KernelContext& context, UnaryOp op, const TensorView& dx,
                      const TensorView& dy, const TensorView& x, const TensorView& y,
                      double scalar) override {
    cpu::unary_backward(context, op, dx, dy, x, y, scalar);
  }
  void binary(const KernelContext& context, BinaryOp op, const TensorView& y, const TensorView& a,
              const TensorView& b) override {
    cpu::binary(context, op, y, a, b);
  }
  void where(const KernelContext& context, const TensorView& y, const TensorView& condition,
             const TensorView& a, const TensorView& b) override {
    cpu::where(context, y, condition, a, b);
  }
  void triangle(const KernelContext& context, const TensorView& y, const TensorView& x, bool upper,
                std::int64_t diagonal) override {
    cpu::triangle(context, y, x, upper, diagonal);
  }
  void swiglu(const KernelContext& context, const TensorView& y, const TensorView& gate,
              const TensorView& up) override {
    cpu::swiglu(context, y, gate, up);
  }
  void swiglu_backward(const KernelContext& context, const TensorView& dgate, const TensorView& dup,
                       const TensorView& dy, const TensorView& gate,
                       const TensorView& up) override {
    cpu::swiglu_backward(context, dgate, dup, dy, gate, up);
  }
  void dropout(const KernelContext& context, const TensorView& y, const TensorView& x,
               const DropoutOptions& options) override {
    cpu::dropout(context, y, x, options);
  }
  void fill_normal(const KernelContext& context, const TensorView& dst, const PhiloxStream& random,
                   std::uint64_t first_index, float mean, float std) override {
    cpu::fill_normal(context, dst, random, first_index, mean, std);
  }
  void fill_uniform(const KernelContext& context, const TensorView& dst, const PhiloxStream& random,
                    std::uint64_t first_index, float low, float high) override {
    cpu::fill_uniform(context, dst, random, first_index, low, high);
  }
  void reduce(const KernelContext& context, ReduceOp op, const TensorView& y, const TensorView& x,
              double correction) override {
    cpu::reduce(context, op, y, x, correction);
  }
  void sum_of_squares(const KernelContext& context, float* out, std::span<const TensorView> xs,
                      bool accumulate) override {
    cpu::sum_of_squares(context, out, xs, accumulate);
  }
  std::int64_t first_nonfinite(const KernelContext& context, const TensorView& x) override {
    return cpu::first_nonfinite(context, x);
  }
  void softmax(const KernelContext& context, const TensorView& y, const TensorView& x,
               bool log) override {
    cpu::softmax(context, y, x, log);
  }
  void softmax_backward(const KernelContext& context, const TensorView& dx, const TensorView& dy,
                        const TensorView& y, bool log) override {
    cpu::softmax_backward(context, dx, dy, y, log);
  }
  void layer_norm(const KernelContext& context, const TensorView& y, const TensorView& mean,
                  const TensorView& rstd, const TensorView& x, const TensorView& weight,
                  const TensorView& bias, const NormOptions& options) override {
    cpu::layer_norm(context, y, mean, rstd, x, weight, bias, options);
  }
  void layer_norm_backward(const KernelContext& context, const TensorView& dx,
                           const TensorView& dweight, const TensorView& dbias, const TensorView& dy,
                           const TensorView& x, const TensorView& weight, const TensorView& mean,
                           const TensorView& rstd, bool accumulate_dx,
                           bool accumulate_params) override {
    cpu::layer_norm_backward(context, dx, dweight, dbias, dy, x, weight, mean, rstd, accumulate_dx,
                             accumulate_params);
  }
  void rms_norm(const KernelContext& context, const TensorView& y, const TensorView& rstd,
                const TensorView& x, const TensorView& weight,
                const NormOptions& options) override {
    cpu::rms_norm(context, y, rstd, x, weight, options);
  }
  void rms_norm_backward(const KernelContext& context, const TensorView& dx,
                         const TensorView& dweight, const TensorView& dy, const TensorView& x,
                         const TensorView& weight, const TensorView& rstd, bool accumulate_dx,
                         bool accumulate_params) override {
    cpu::rms_norm_backward(context, dx, dweight, dy, x, weight, rstd, accumulate_dx,
                           accumulate_params);
  }
  void add_norm(const KernelContext& context, const TensorView& y, const TensorView& sum,
                const TensorView& mean, const TensorView& rstd, const TensorView& x,
                const TensorView& residual, const TensorView& weight, const TensorView& bias,
                bool rms, const NormOptions& options) override {
    cpu::add_norm(context, y, sum, mean, rstd, x, residual, weight, bias, rms, options);
  }
  void embedding(const KernelContext& context, const TensorView& y, const TensorView& weight,
                 const TensorView& ids) override {
    cpu::embedding(context, y, weight, ids);
  }
  void embedding_backward(const KernelContext& context, const TensorView& dweight,
                          const TensorView& dy, const TensorView& ids,
                          std::int64_t padding_idx) override {
    cpu::embedding_backward(context, dweight, dy, ids, padding_idx);
  }
  void matmul(const KernelContext& context, const TensorView& y, const TensorView& a,
              const TensorView& b, const MatmulOptions& options) override {
    cpu::matmul(context, y, a, b, options);
  }
  void attention(const KernelContext& context, const AttentionOutputs& outputs,
                 const AttentionInputs& inputs, const AttentionOptions& options) override {
    cpu::attention(context, outputs, inputs, options);
  }
  void attention_rows(const KernelContext& context, const AttentionOutputs& outputs,
                      const TensorView& q, std::span<const AttentionMemory> memories,
                      double scale) override {
    if (is_one_query_each(outputs, q, memories))
      return attention_one_query_each(context, outputs, q, memories, scale);
    Backend::attention_rows(context, outputs, q, memories, scale);
  }
  void attention_backward(const KernelContext& context, const AttentionGrads& grads,
                          const AttentionInputs& inputs, const AttentionOptions& options) override {
    cpu::attention_backward(context, grads, inputs, options);
  }
  void attention_delta(const KernelContext& context, const TensorView& delta,
                       const TensorView& grad_o, const TensorView& o) override {
    cpu::attention_delta(context, delta, grad_o, o);
  }
  void rope(const KernelContext& context, const TensorView& y, const TensorView& x,
            const RopeOptions& options) override {
    cpu::rope(context, y, x, options);
  }
  void cross_entropy(const KernelContext& context, const TensorView& losses, const TensorView& lse,
                     const TensorView& logits, const TensorView& targets,
                     const CrossEntropyOptions& options) override {
    cpu::cross_entropy(context, losses, lse, logits, targets, options);
  }
  void cross_entropy_backward(const KernelContext& context, const TensorView& dlogits,
                              const TensorView& grad_losses, const TensorView& logits,
                              const TensorView& lse, const TensorView& targets,
                              const CrossEntropyOptions& options) override {
    cpu::cross_entropy_backward(context, dlogits, grad_losses, logits, lse, targets, options);
  }
  OutputLossPlan output_loss_plan(const TensorView& hidden, const TensorView& weight,
                                  std::int64_t widest) const override {
    return cpu::output_loss_plan(hidden, weight, widest);
  }
  void output_loss_chunk(const KernelContext& context, const TensorView& losses,
                         const TensorView& lse, const TensorView& logits, const TensorView& hidden,
                         const TensorView& weight, const TensorView& bias,
                         const TensorView& targets, const CrossEntropyOptions& options) override {
    cpu::output_loss_chunk(context, losses, lse, logits, hidden, weight, bias, targets, options);
  }
  void output_loss_products(const KernelContext& context, const TensorView& dhidden,
                            const TensorView& dweight, const TensorView& dbias,
                            const TensorView& gradient, const TensorView& hidden,
                            const TensorView& weight, bool accumulate_params) override {
    cpu::output_loss_products(context, dhidden, dweight, dbias, gradient, hidden, weight,
                              accumulate_params);
  }
  void adam_step(const KernelContext& context, std::span<const OptimizerTensor> tensors,
                 const AdamOptions& options) override {
    cpu::adam_step(context, tensors, options);
  }
  void sgd_step(const KernelContext& context, std::span<const OptimizerTensor> tensors,
                const SgdOptions& options) override {
    cpu::sgd_step(context, tensors, options);
  }
};

}  // namespace

Backend& cpu_backend() {
  static CpuBackend backend;
  return backend;
}

}  // namespace meshloom::kernels::cpu
