// SPDX-License-Identifier: Apache-2.0
// The CUDA backend: products by cuBLASLt, attention by cuDNN where its rule allows, and own kernels
// for the rest.
#pragma once

#include "kernels/backend.h"
#include "kernels/float8_products.h"
#include "kernels/product_choices.h"

namespace meshloom::kernels::cuda {

/// The calls of one device of this process. Every call queues its work on the context's stream and
/// returns; contracts are Backend's. Calls come from one thread at a time for each stream. A call
/// that this backend does not offer throws Unimplemented ("... is not built yet on cuda"). Each
/// call is defined in the file that its section names; kernels and their launch functions are in
/// the .cu file of that name.
class CudaBackend final : public Backend, public ProductChoices, public Float8Products {
 public:
  /// `index` is the device's index among those that the CUDA runtime sees. Makes no context on it.
  /// Throws FailedPrecondition for a device below compute capability 8.0.
  explicit CudaBackend(int index);
  ~CudaBackend() override;

  // --- cuda_backend.cpp
  const char* name() const override { return "cuda"; }
  ComputeDescription describe() const override;
  DType fast_dtype(std::int64_t channels) const override;
  std::unique_ptr<SegmentSource> make_source(MemoryKind kind, Threads threads) override;
  DeviceMemory memory() const override;
  std::shared_ptr<OwnedStream> make_stream(Device device) override;
  std::unique_ptr<Event> make_event() override;
  void wait_event(const Stream& stream, Event& event) override;

  // --- copy.cpp
  void copy(const KernelContext&, const TensorView& dst, const TensorView& src) override;
  void fill(const KernelContext&, const TensorView& dst, double value) override;
  void copy_from_host(const KernelContext&, const TensorView& dst, const TensorView& host) override;
  void copy_from_host_async(const KernelContext&, const TensorView& dst,
                            const TensorView& host) override;
  void copy_to_host(const KernelContext&, const TensorView& host, const TensorView& src) override;
  void copy_to_host_async(const KernelContext&, const TensorView& host,
                          const TensorView& src) override;

  // --- elementwise.cpp
  void unary(const KernelContext&, UnaryOp, const TensorView& y, const TensorView& x,
             double scalar) override;
  void unary_backward(const KernelContext&, UnaryOp, const TensorView& dx, const TensorView& dy,
                      const TensorView& x, const TensorView& y, double scalar) override;

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

  // --- norm.cpp
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

  bool takes_float8() const override;

  // --- matmul/product_choices.cpp
  int count_choices(const TensorView& y, const TensorView& a, const TensorView& b,
                    const MatmulOptions&) override;
  void matmul_by(int choice, const KernelContext&, const TensorView& y, const TensorView& a,
                 const TensorView& b, const MatmulOptions&) override;
  std::string choice_entry(int choice, const TensorView& y, const TensorView& a,
                           const TensorView& b, const MatmulOptions&) override;
  std::string choice_table(std::span<const std::string> entries) override;
  std::string choice_file() const override { return "kernels/cuda/matmul/matmul_choices.h"; }

  // --- attention/attention.cpp
  void attention(const KernelContext&, const AttentionOutputs&, const AttentionInputs&,
                 const AttentionOptions&) override;
  void attention_rows(const KernelContext&, const AttentionOutputs&, const TensorView& q,
                      std::span<const AttentionMemory>, double scale) override;
  void attention_backward(const KernelContext&, const AttentionGrads&, const AttentionInputs&,
                          const AttentionOptions&) override;
  bool reads_attention_delta(const AttentionGrads&, const AttentionInputs&,
                             const AttentionOptions&) const override;
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

 private:
  int index_;
  ComputeDescription description_;
  std::int64_t all_memory_ = 0;
};

}  // namespace meshloom::kernels::cuda
