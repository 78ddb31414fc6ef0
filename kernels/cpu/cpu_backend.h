// SPDX-License-Identifier: Apache-2.0
// The CPU backend: own kernels by Highway with run-time dispatch, matmul by oneDNN or OpenBLAS.
#pragma once

#include "kernels/backend.h"

namespace meshloom::kernels::cpu {

/// Every call does all its work before it returns, on the caller's thread and context.threads.
/// Stateless apart from caches of compiled oneDNN primitives; safe from any thread. Each call is
/// defined in the file that its section names; contracts are Backend's.
class CpuBackend final : public Backend {
 public:
  /// Settles the class of CPU before any kernel runs, and throws FailedPrecondition for an OpenBLAS
  /// that would fight for the cores.
  CpuBackend();

  // --- cpu_backend.cpp
  const char* name() const override { return "cpu"; }
  ComputeDescription describe() const override;
  DType fast_dtype(std::int64_t channels) const override;
  std::unique_ptr<SegmentSource> make_source(MemoryKind kind, Threads threads) override;
  DeviceMemory memory() const override;
  std::shared_ptr<OwnedStream> make_stream(Device device) override;
  std::unique_ptr<Event> make_event() override;
  void wait_event(const Stream&, Event&) override {}

  // --- copy.cpp
  void copy(const KernelContext&, const TensorView& dst, const TensorView& src) override;
  void fill(const KernelContext&, const TensorView& dst, double value) override;
  void copy_from_host(const KernelContext&, const TensorView& dst, const TensorView& host) override;
  void copy_from_host_async(const KernelContext&, const TensorView& dst,
                            const TensorView& host) override;
  void copy_to_host(const KernelContext&, const TensorView& host, const TensorView& src) override;
  void copy_to_host_async(const KernelContext&, const TensorView& host,
                          const TensorView& src) override;

  // --- unary.cpp
  void unary(const KernelContext&, UnaryOp, const TensorView& y, const TensorView& x,
             double scalar) override;
  void unary_backward(const KernelContext&, UnaryOp, const TensorView& dx, const TensorView& dy,
                      const TensorView& x, const TensorView& y, double scalar) override;

  // --- elementwise.cpp
  void binary(const KernelContext&, BinaryOp, const TensorView& y, const TensorView& a,
              const TensorView& b) override;
  void where(const KernelContext&, const TensorView& y, const TensorView& condition,
             const TensorView& a, const TensorView& b) override;
  void triangle(const KernelContext&, const TensorView& y, const TensorView& x, bool upper,
                std::int64_t diagonal) override;
  void swiglu(const KernelContext&, const TensorView& y, const TensorView& gate,
              const TensorView& up) override;
  void swiglu_backward(const KernelContext&, const TensorView& dgate, const TensorView& dup,
                       const TensorView& dy, const TensorView& gate, const TensorView& up) override;

  // --- random.cpp
  void dropout(const KernelContext&, const TensorView& y, const TensorView& x,
               const DropoutOptions&) override;
  void fill_normal(const KernelContext&, const TensorView& dst, const PhiloxStream&,
                   std::uint64_t first_index, float mean, float std) override;
  void fill_uniform(const KernelContext&, const TensorView& dst, const PhiloxStream&,
                    std::uint64_t first_index, float low, float high) override;

  // --- reduce.cpp
  void reduce(const KernelContext&, ReduceOp, const TensorView& y, const TensorView& x,
              double correction) override;
  void sum_of_squares(const KernelContext&, const TensorView& out, std::span<const TensorView> xs,
                      bool accumulate) override;
  void first_nonfinite(const KernelContext&, const TensorView& index,
                       std::span<const TensorView> xs) override;

  // --- softmax.cpp
  void softmax(const KernelContext&, const TensorView& y, const TensorView& x, bool log) override;
  void softmax_backward(const KernelContext&, const TensorView& dx, const TensorView& dy,
                        const TensorView& y, bool log) override;

  // --- norm.cpp and norm_backward.cpp
  void norm(const KernelContext&, const NormViews&, const NormOptions&) override;
  void norm_backward(const KernelContext&, const NormGrads&) override;

  // --- embedding.cpp
  void embedding(const KernelContext&, const TensorView& y, const TensorView& weight,
                 const TensorView& ids) override;
  void embedding_backward(const KernelContext&, const TensorView& dweight, const TensorView& dy,
                          const TensorView& ids, std::int64_t padding_idx) override;

  // --- ids.cpp
  void slice_ids(const KernelContext&, const TensorView& places, const TensorView& ids,
                 const IdSlice&) override;
  void first_id_outside(const KernelContext&, const TensorView& found, const TensorView& ids,
                        std::int64_t limit, std::optional<std::int64_t> allowed) override;
  void count_ids(const KernelContext&, const TensorView& count, const TensorView& ids,
                 std::int64_t id) override;

  // --- matmul/matmul.cpp
  void matmul(const KernelContext&, const TensorView& y, const TensorView& a, const TensorView& b,
              const MatmulOptions&) override;

  // --- attention/attention.cpp, attention_one_query.cpp and attention_delta.cpp
  void attention(const KernelContext&, const AttentionOutputs&, const AttentionInputs&,
                 const AttentionOptions&) override;
  void attention_backward(const KernelContext&, const AttentionGrads&, const AttentionInputs&,
                          const AttentionOptions&) override;
  void attention_rows(const KernelContext&, const AttentionOutputs&, const TensorView& q,
                      std::span<const AttentionMemory> memories, double scale) override;
  void attention_delta(const KernelContext&, const TensorView& delta, const TensorView& grad_o,
                       const TensorView& o) override;

  // --- rope.cpp
  void rope(const KernelContext&, const TensorView& y, const TensorView& x,
            const RopeOptions&) override;

  // --- cross_entropy.cpp
  void cross_entropy(const KernelContext&, const CrossEntropyRows&,
                     const CrossEntropyOptions&) override;
  void combine_class_slices(const KernelContext&, const CrossEntropyRows&, const TensorView& slices,
                            std::int64_t ignore_index) override;
  void cross_entropy_backward(const KernelContext&, const TensorView& dlogits,
                              const TensorView& grad_losses, const CrossEntropyRows&,
                              const CrossEntropyOptions&) override;

  // --- output_loss.cpp
  OutputLossPlan output_loss_plan(const TensorView& hidden, const TensorView& weight,
                                  std::int64_t widest) const override;
  void output_loss_chunk(const KernelContext&, const CrossEntropyRows&, const OutputProjection&,
                         const CrossEntropyOptions&) override;
  void output_loss_products(const KernelContext&, const OutputLossGrads&,
                            const TensorView& gradient, const OutputProjection&) override;

  // --- optimizer.cpp
  void clip_factor(const KernelContext&, const TensorView& norm, const TensorView& factor,
                   const TensorView& sum_of_squares, double max_norm) override;
  void adam_step(const KernelContext&, std::span<const OptimizerTensor>, const StepScalars&,
                 const AdamOptions&) override;
  void sgd_step(const KernelContext&, std::span<const OptimizerTensor>, const StepScalars&,
                const SgdOptions&) override;
};

/// Returns the process's CPU backend, made by the first call.
CpuBackend& cpu_backend();

}  // namespace meshloom::kernels::cpu
