// SPDX-License-Identifier: Apache-2.0
// ProfilingBackend: passes every call on and keeps its time, arithmetic and traffic.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend.h"

namespace meshloom::kernels {

/// Of all calls of one kind.
struct KernelProfile {
  std::int64_t calls = 0;
  double seconds = 0.0;
  double flops = 0.0;  ///< of products; 0 where memory is the bound
  double bytes = 0.0;  ///< that the views hold: each read or written once
};

/// Used from one thread, as an ExecutionContext is.
class ProfilingBackend : public Backend {
 public:
  explicit ProfilingBackend(Backend& inner) : inner_(inner) {}

  /// Which part of a step runs from now on.
  void set_phase(const std::string& phase) { phase_ = phase; }
  /// By phase, then by name and, of products, layout and sizes. Begins anew.
  /// Waits for the device, whose events tell what its calls took.
  std::map<std::pair<std::string, std::string>, KernelProfile> take();

  const char* name() const override { return inner_.name(); }
  ComputeDescription describe() const override { return inner_.describe(); }
  DType fast_dtype(std::int64_t channels) const override { return inner_.fast_dtype(channels); }
  std::unique_ptr<SegmentSource> make_source(MemoryKind kind, Threads threads) override {
    return inner_.make_source(kind, threads);
  }
  DeviceMemory memory() const override { return inner_.memory(); }
  std::shared_ptr<OwnedStream> make_stream(Device device) override {
    return inner_.make_stream(device);
  }
  std::unique_ptr<Event> make_event() override { return inner_.make_event(); }
  void wait_event(const Stream& stream, Event& event) override { inner_.wait_event(stream, event); }
  void copy(const KernelContext&, const TensorView& dst, const TensorView& src) override;
  void fill(const KernelContext&, const TensorView& dst, double value) override;
  void copy_from_host(const KernelContext&, const TensorView& dst, const TensorView& host) override;
  void copy_from_host_async(const KernelContext&, const TensorView& dst,
                            const TensorView& host) override;
  void copy_to_host(const KernelContext&, const TensorView& host, const TensorView& src) override;
  void copy_to_host_async(const KernelContext&, const TensorView& host,
                          const TensorView& src) override;
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
  void dropout(const KernelContext&, const TensorView& y, const TensorView& x,
               const DropoutOptions&) override;
  void fill_normal(const KernelContext&, const TensorView& dst, const PhiloxStream&,
                   std::uint64_t first_index, float mean, float std) override;
  void fill_uniform(const KernelContext&, const TensorView& dst, const PhiloxStream&,
                    std::uint64_t first_index, float low, float high) override;
  void reduce(const KernelContext&, ReduceOp, const TensorView& y, const TensorView& x,
              double correction) override;
  void sum_of_squares(const KernelContext&, const TensorView& out, std::span<const TensorView> xs,
                      bool accumulate) override;
  void first_nonfinite(const KernelContext&, const TensorView& index,
                       std::span<const TensorView> xs) override;
  void clip_factor(const KernelContext&, const TensorView& norm, const TensorView& factor,
                   const TensorView& sum_of_squares, double max_norm) override;
  void softmax(const KernelContext&, const TensorView& y, const TensorView& x, bool log) override;
  void softmax_backward(const KernelContext&, const TensorView& dx, const TensorView& dy,
                        const TensorView& y, bool log) override;
  void norm(const KernelContext&, const NormViews&, const NormOptions&) override;
  void norm_backward(const KernelContext&, const NormGrads&) override;
  void embedding(const KernelContext&, const TensorView& y, const TensorView& weight,
                 const TensorView& ids) override;
  void embedding_backward(const KernelContext&, const TensorView& dweight, const TensorView& dy,
                          const TensorView& ids, std::int64_t padding_idx) override;
  void slice_ids(const KernelContext& context, const TensorView& places, const TensorView& ids,
                 const IdSlice& slice) override {
    inner_.slice_ids(context, places, ids, slice);
  }
  void first_id_outside(const KernelContext& context, const TensorView& found,
                        const TensorView& ids, std::int64_t limit,
                        std::optional<std::int64_t> allowed) override {
    inner_.first_id_outside(context, found, ids, limit, allowed);
  }
  void count_ids(const KernelContext& context, const TensorView& count, const TensorView& ids,
                 std::int64_t id) override {
    inner_.count_ids(context, count, ids, id);
  }
  void matmul(const KernelContext&, const TensorView& y, const TensorView& a, const TensorView& b,
              const MatmulOptions&) override;
  void attention(const KernelContext&, const AttentionOutputs&, const AttentionInputs&,
                 const AttentionOptions&) override;
  void attention_rows(const KernelContext&, const AttentionOutputs&, const TensorView& q,
                      std::span<const AttentionMemory>, double scale) override;
  void attention_backward(const KernelContext&, const AttentionGrads&, const AttentionInputs&,
                          const AttentionOptions&) override;
  bool reads_attention_delta(const AttentionGrads& grads, const AttentionInputs& in,
                             const AttentionOptions& options) const override {
    return inner_.reads_attention_delta(grads, in, options);
  }
  void attention_delta(const KernelContext&, const TensorView& delta, const TensorView& grad_o,
                       const TensorView& o) override;
  void rope(const KernelContext&, const TensorView& y, const TensorView& x,
            const RopeOptions&) override;
  void cross_entropy(const KernelContext&, const CrossEntropyRows&,
                     const CrossEntropyOptions&) override;
  void combine_class_slices(const KernelContext& context, const CrossEntropyRows& rows,
                            const TensorView& slices, std::int64_t ignore_index) override {
    inner_.combine_class_slices(context, rows, slices, ignore_index);
  }
  void cross_entropy_backward(const KernelContext&, const TensorView& dlogits,
                              const TensorView& grad_losses, const CrossEntropyRows&,
                              const CrossEntropyOptions&) override;
  OutputLossPlan output_loss_plan(const TensorView& hidden, const TensorView& weight,
                                  std::int64_t widest) const override {
    return inner_.output_loss_plan(hidden, weight, widest);
  }
  void output_loss_chunk(const KernelContext&, const CrossEntropyRows&, const OutputProjection&,
                         const CrossEntropyOptions&) override;
  void output_loss_products(const KernelContext&, const OutputLossGrads&,
                            const TensorView& gradient, const OutputProjection&) override;
  void adam_step(const KernelContext&, std::span<const OptimizerTensor>, const StepScalars&,
                 const AdamOptions&) override;
  void sgd_step(const KernelContext&, std::span<const OptimizerTensor>, const StepScalars&,
                const SgdOptions&) override;

 private:
  /// What one call must do at least.
  struct Work {
    double bytes = 0.0, flops = 0.0;
  };
  template <typename Call>
  void timed(const KernelContext& context, const std::string& name, Work work, Call&& call);

  /// A call that a device may still be at.
  struct QueuedCall {
    KernelProfile* profile;
    std::unique_ptr<Event> begin, end;
  };

  Backend& inner_;
  std::string phase_;
  std::map<std::pair<std::string, std::string>, KernelProfile> profiles_;
  std::vector<QueuedCall> queued_;
};

}  // namespace meshloom::kernels
