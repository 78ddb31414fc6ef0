// SPDX-License-Identifier: Apache-2.0
// FencedBackend: the CPU's kernels as a device whose memory is closed and whose work comes late.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "tests/support/fenced_device/fenced_memory.h"
#include "tests/support/fenced_device/fenced_sources.h"
#include "tests/support/fenced_device/fenced_streams.h"

namespace meshloom::testing {

/// A view of a call, by the name of its argument in kernels/backend.h.
struct Access {
  const char* name;
  const TensorView* view;  ///< lives as long as the call
  bool writes;
  bool on_host;  ///< memory of the host, not of the device
};

inline Access reads(const char* name, const TensorView& view) {
  return {name, &view, false, false};
}
inline Access writes(const char* name, const TensorView& view) {
  return {name, &view, true, false};
}
inline Access host_reads(const char* name, const TensorView& view) {
  return {name, &view, false, true};
}
inline Access host_writes(const char* name, const TensorView& view) {
  return {name, &view, true, true};
}

/// Gives the bits of the CPU's backend. Every call checks where its views lie and what other
/// streams do with that memory, throws InternalError for what no real device could do, and queues
/// the work. Used by one thread at a time.
class FencedBackend final : public kernels::Backend {
 public:
  FencedBackend(Device device, std::uint64_t seed);

  /// What follows comes in the order of this seed.
  void set_seed(std::uint64_t seed) { streams_.set_seed(seed); }
  /// While it is stalled, asking an event brings the device no nearer to it; waits do.
  void set_stalled(bool stalled) { streams_.set_stalled(stalled); }
  /// How much memory there is; 8 GiB without a call.
  void set_total_memory(std::int64_t bytes) { memory_.set_total(bytes); }
  /// Gives the device's results a class of their own. Before anybody asks for its description.
  void set_compute_class(std::string name) { compute_class_ = std::move(name); }
  /// Since the last reset.
  const FencedCounts& counts() { return streams_.counts(); }
  void reset_counts() { streams_.counts() = {}; }
  /// Host memory of kind kHost that was taken from this device and not given back.
  std::size_t pinned_bytes() const { return pinned_.bytes(); }
  /// Returns what FencedStreams::take_errors returns.
  std::vector<std::string> take_errors() { return streams_.take_errors(); }

  const char* name() const override { return "fenced"; }
  kernels::ComputeDescription describe() const override;
  DType fast_dtype(std::int64_t channels) const override;

  // --- Memory
  /// Makes sources of all kinds; kSymmetric is the device's own, which peers cannot map.
  std::unique_ptr<SegmentSource> make_source(MemoryKind kind, Threads threads) override;
  kernels::DeviceMemory memory() const override { return memory_.size(); }
  std::shared_ptr<OwnedStream> make_stream(Device device) override;
  std::unique_ptr<Event> make_event() override;
  void wait_event(const Stream& stream, Event& event) override;
  void copy(const kernels::KernelContext&, const TensorView& dst, const TensorView& src) override;
  void fill(const kernels::KernelContext&, const TensorView& dst, double value) override;
  void copy_from_host(const kernels::KernelContext&, const TensorView& dst,
                      const TensorView& host) override;
  void copy_from_host_async(const kernels::KernelContext&, const TensorView& dst,
                            const TensorView& host) override;
  void copy_to_host(const kernels::KernelContext&, const TensorView& host,
                    const TensorView& src) override;
  void copy_to_host_async(const kernels::KernelContext&, const TensorView& host,
                          const TensorView& src) override;

  // --- Elementwise
  void unary(const kernels::KernelContext&, kernels::UnaryOp, const TensorView& y,
             const TensorView& x, double scalar) override;
  void unary_backward(const kernels::KernelContext&, kernels::UnaryOp, const TensorView& dx,
                      const TensorView& dy, const TensorView& x, const TensorView& y,
                      double scalar) override;
  void binary(const kernels::KernelContext&, kernels::BinaryOp, const TensorView& y,
              const TensorView& a, const TensorView& b) override;
  void where(const kernels::KernelContext&, const TensorView& y, const TensorView& condition,
             const TensorView& a, const TensorView& b) override;
  void triangle(const kernels::KernelContext&, const TensorView& y, const TensorView& x, bool upper,
                std::int64_t diagonal) override;
  void swiglu(const kernels::KernelContext&, const TensorView& y, const TensorView& gate,
              const TensorView& up) override;
  void swiglu_backward(const kernels::KernelContext&, const TensorView& dgate,
                       const TensorView& dup, const TensorView& dy, const TensorView& gate,
                       const TensorView& up) override;
  void dropout(const kernels::KernelContext&, const TensorView& y, const TensorView& x,
               const kernels::DropoutOptions&) override;
  void fill_normal(const kernels::KernelContext&, const TensorView& dst, const PhiloxStream&,
                   std::uint64_t first_index, float mean, float std) override;
  void fill_uniform(const kernels::KernelContext&, const TensorView& dst, const PhiloxStream&,
                    std::uint64_t first_index, float low, float high) override;

  // --- Reductions, softmax and norms, embedding, ids
  void reduce(const kernels::KernelContext&, kernels::ReduceOp, const TensorView& y,
              const TensorView& x, double correction) override;
  void sum_of_squares(const kernels::KernelContext&, const TensorView& out,
                      std::span<const TensorView> xs, bool accumulate) override;
  void first_nonfinite(const kernels::KernelContext&, const TensorView& index,
                       std::span<const TensorView> xs) override;
  void clip_factor(const kernels::KernelContext&, const TensorView& norm, const TensorView& factor,
                   const TensorView& sum_of_squares, double max_norm) override;
  void softmax(const kernels::KernelContext&, const TensorView& y, const TensorView& x,
               bool log) override;
  void softmax_backward(const kernels::KernelContext&, const TensorView& dx, const TensorView& dy,
                        const TensorView& y, bool log) override;
  void norm(const kernels::KernelContext&, const kernels::NormViews&,
            const kernels::NormOptions&) override;
  void norm_backward(const kernels::KernelContext&, const kernels::NormGrads&) override;
  void embedding(const kernels::KernelContext&, const TensorView& y, const TensorView& weight,
                 const TensorView& ids) override;
  void embedding_backward(const kernels::KernelContext&, const TensorView& dweight,
                          const TensorView& dy, const TensorView& ids,
                          std::int64_t padding_idx) override;
  void slice_ids(const kernels::KernelContext&, const TensorView& places, const TensorView& ids,
                 const kernels::IdSlice&) override;
  void first_id_outside(const kernels::KernelContext&, const TensorView& found,
                        const TensorView& ids, std::int64_t limit,
                        std::optional<std::int64_t> allowed) override;
  void count_ids(const kernels::KernelContext&, const TensorView& count, const TensorView& ids,
                 std::int64_t id) override;

  // --- Matmul and attention
  void matmul(const kernels::KernelContext&, const TensorView& y, const TensorView& a,
              const TensorView& b, const kernels::MatmulOptions&) override;
  void attention(const kernels::KernelContext&, const kernels::AttentionOutputs&,
                 const kernels::AttentionInputs&, const kernels::AttentionOptions&) override;
  void attention_rows(const kernels::KernelContext&, const kernels::AttentionOutputs&,
                      const TensorView& q, std::span<const kernels::AttentionMemory>,
                      double scale) override;
  void attention_backward(const kernels::KernelContext&, const kernels::AttentionGrads&,
                          const kernels::AttentionInputs&,
                          const kernels::AttentionOptions&) override;
  void attention_delta(const kernels::KernelContext&, const TensorView& delta,
                       const TensorView& grad_o, const TensorView& o) override;
  void rope(const kernels::KernelContext&, const TensorView& y, const TensorView& x,
            const kernels::RopeOptions&) override;

  // --- Loss and optimizer
  void cross_entropy(const kernels::KernelContext&, const kernels::CrossEntropyRows&,
                     const kernels::CrossEntropyOptions&) override;
  void combine_class_slices(const kernels::KernelContext&, const kernels::CrossEntropyRows&,
                            const TensorView& slices, std::int64_t ignore_index) override;
  void cross_entropy_backward(const kernels::KernelContext&, const TensorView& dlogits,
                              const TensorView& grad_losses, const kernels::CrossEntropyRows&,
                              const kernels::CrossEntropyOptions&) override;
  kernels::OutputLossPlan output_loss_plan(const TensorView& hidden, const TensorView& weight,
                                           std::int64_t widest) const override;
  void output_loss_chunk(const kernels::KernelContext&, const kernels::CrossEntropyRows&,
                         const kernels::OutputProjection&,
                         const kernels::CrossEntropyOptions&) override;
  void output_loss_products(const kernels::KernelContext&, const kernels::OutputLossGrads&,
                            const TensorView& gradient, const kernels::OutputProjection&) override;
  void adam_step(const kernels::KernelContext&, std::span<const kernels::OptimizerTensor>,
                 const kernels::StepScalars&, const kernels::AdamOptions&) override;
  void sgd_step(const kernels::KernelContext&, std::span<const kernels::OptimizerTensor>,
                const kernels::StepScalars&, const kernels::SgdOptions&) override;

 private:
  /// Checks all views and queues `work`, which holds whatever it uses by value.
  void submit(const kernels::KernelContext& context, const char* call,
              const std::vector<Access>& accesses, FencedStreams::Work work);
  /// What the views with elements show. Throws InternalError where one lies elsewhere than it must.
  std::vector<MemoryUse> uses_of(const char* call, const std::vector<Access>& accesses) const;
  /// What is wrong with where a view lies, to stand behind its name; empty: nothing.
  std::string fault_of(const Access& access, const ByteRange& range) const;
  /// Throws InternalError unless `host`, which the device copies while the host goes on, is memory
  /// of kind kHost of this device.
  void check_pinned(const char* call, const TensorView& host) const;

  const Device device_;
  std::string compute_class_;  ///< empty: the CPU's with a prefix
  FencedMemory memory_;
  FencedStreams streams_;
  PinnedRanges pinned_;
};

}  // namespace meshloom::testing
