// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/trace/no_backend.h"

#include <new>

namespace meshloom::kernels {
namespace {

/// Addresses for tensors, which nothing reads or writes.
class UntouchedSource final : public SegmentSource {
 public:
  Device device() const override { return kCpuDevice; }
  std::size_t granularity() const override { return std::size_t{1} << 16; }
  std::byte* acquire(std::size_t bytes) override {
    return static_cast<std::byte*>(::operator new(bytes, kAlignment));
  }
  bool extend(std::byte*, std::size_t, std::size_t) override { return false; }
  void release(std::byte* data, std::size_t) override { ::operator delete(data, kAlignment); }

 private:
  static constexpr std::align_val_t kAlignment{std::size_t{2} << 20};
};

class NoEvent final : public Event {
 public:
  void record(const Stream&) override {}
  void wait() override {}
  bool done() override { return true; }
  double seconds_since(Event&) override { return 0.0; }
};

class NoBackend final : public Backend {
 public:
  const char* name() const override { return "none"; }
  ComputeDescription describe() const override { return {"none", "none", "none"}; }
  DType fast_dtype(std::int64_t) const override { return DType::kFloat32; }
  std::unique_ptr<SegmentSource> make_source(MemoryKind, Threads) override {
    return std::make_unique<UntouchedSource>();
  }
  DeviceMemory memory() const override { return {}; }
  std::shared_ptr<OwnedStream> make_stream(Device) override {
    return std::make_shared<OwnedStream>(Stream{});
  }
  std::unique_ptr<Event> make_event() override { return std::make_unique<NoEvent>(); }
  void wait_event(const Stream&, Event&) override {}
  OutputLossPlan output_loss_plan(const TensorView&, const TensorView&,
                                  std::int64_t) const override {
    return {};
  }
  // Nothing is computed.
  void copy(const KernelContext&, const TensorView&, const TensorView&) override {}
  void fill(const KernelContext&, const TensorView&, double) override {}
  void copy_from_host(const KernelContext&, const TensorView&, const TensorView&) override {}
  void copy_from_host_async(const KernelContext&, const TensorView&, const TensorView&) override {}
  void copy_to_host(const KernelContext&, const TensorView&, const TensorView&) override {}
  void copy_to_host_async(const KernelContext&, const TensorView&, const TensorView&) override {}
  void unary(const KernelContext&, UnaryOp, const TensorView&, const TensorView&, double) override {
  }
  void unary_backward(const KernelContext&, UnaryOp, const TensorView&, const TensorView&,
                      const TensorView&, const TensorView&, double) override {}
  void binary(const KernelContext&, BinaryOp, const TensorView&, const TensorView&,
              const TensorView&) override {}
  void where(const KernelContext&, const TensorView&, const TensorView&, const TensorView&,
             const TensorView&) override {}
  void triangle(const KernelContext&, const TensorView&, const TensorView&, bool,
                std::int64_t) override {}
  void swiglu(const KernelContext&, const TensorView&, const TensorView&,
              const TensorView&) override {}
  void swiglu_backward(const KernelContext&, const TensorView&, const TensorView&,
                       const TensorView&, const TensorView&, const TensorView&) override {}
  void dropout(const KernelContext&, const TensorView&, const TensorView&,
               const DropoutOptions&) override {}
  void fill_normal(const KernelContext&, const TensorView&, const PhiloxStream&, std::uint64_t,
                   float, float) override {}
  void fill_uniform(const KernelContext&, const TensorView&, const PhiloxStream&, std::uint64_t,
                    float, float) override {}
  void reduce(const KernelContext&, ReduceOp, const TensorView&, const TensorView&,
              double) override {}
  void sum_of_squares(const KernelContext&, const TensorView&, std::span<const TensorView>,
                      bool) override {}
  void first_nonfinite(const KernelContext&, const TensorView&,
                       std::span<const TensorView>) override {}
  void clip_factor(const KernelContext&, const TensorView&, const TensorView&, const TensorView&,
                   double) override {}
  void softmax(const KernelContext&, const TensorView&, const TensorView&, bool) override {}
  void softmax_backward(const KernelContext&, const TensorView&, const TensorView&,
                        const TensorView&, bool) override {}
  void norm(const KernelContext&, const NormViews&, const NormOptions&) override {}
  void norm_backward(const KernelContext&, const NormGrads&) override {}
  void embedding(const KernelContext&, const TensorView&, const TensorView&,
                 const TensorView&) override {}
  void embedding_backward(const KernelContext&, const TensorView&, const TensorView&,
                          const TensorView&, std::int64_t) override {}
  void slice_ids(const KernelContext&, const TensorView&, const TensorView&,
                 const IdSlice&) override {}
  void first_id_outside(const KernelContext&, const TensorView&, const TensorView&, std::int64_t,
                        std::optional<std::int64_t>) override {}
  void count_ids(const KernelContext&, const TensorView&, const TensorView&,
                 std::int64_t) override {}
  void matmul(const KernelContext&, const TensorView&, const TensorView&, const TensorView&,
              const MatmulOptions&) override {}
  void attention(const KernelContext&, const AttentionOutputs&, const AttentionInputs&,
                 const AttentionOptions&) override {}
  void attention_backward(const KernelContext&, const AttentionGrads&, const AttentionInputs&,
                          const AttentionOptions&) override {}
  void attention_delta(const KernelContext&, const TensorView&, const TensorView&,
                       const TensorView&) override {}
  void rope(const KernelContext&, const TensorView&, const TensorView&,
            const RopeOptions&) override {}
  void cross_entropy(const KernelContext&, const CrossEntropyRows&,
                     const CrossEntropyOptions&) override {}
  void combine_class_slices(const KernelContext&, const CrossEntropyRows&, const TensorView&,
                            std::int64_t) override {}
  void cross_entropy_backward(const KernelContext&, const TensorView&, const TensorView&,
                              const CrossEntropyRows&, const CrossEntropyOptions&) override {}
  void output_loss_chunk(const KernelContext&, const CrossEntropyRows&, const OutputProjection&,
                         const CrossEntropyOptions&) override {}
  void output_loss_products(const KernelContext&, const OutputLossGrads&, const TensorView&,
                            const OutputProjection&) override {}
  void adam_step(const KernelContext&, std::span<const OptimizerTensor>, const StepScalars&,
                 const AdamOptions&) override {}
  void sgd_step(const KernelContext&, std::span<const OptimizerTensor>, const StepScalars&,
                const SgdOptions&) override {}
};

Backend& nothing() {
  static NoBackend backend;
  return backend;
}

}  // namespace
}  // namespace meshloom::kernels

namespace meshloom::nn {

kernels::Backend& no_backend() { return kernels::nothing(); }

}  // namespace meshloom::nn
