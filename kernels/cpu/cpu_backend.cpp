// SPDX-License-Identifier: Apache-2.0
// Forwards every call of the compute interface to the file of its topic.
#include "kernels/cpu/cpu_backend.h"

#include <unistd.h>

#include <chrono>

#include "kernels/backend_table.h"
#include "kernels/base/error.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/attention_one_query.h"
#include "kernels/cpu/copy.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/cross_entropy.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/embedding.h"
#include "kernels/cpu/heap_source.h"
#include "kernels/cpu/ids.h"
#include "kernels/cpu/library_threads.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/matmul_table.h"
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

/// All work before a mark is done when it is made.
class CpuEvent final : public Event {
 public:
  void record(const Stream&) override { mark_ = std::chrono::steady_clock::now(); }
  void wait() override {}
  bool done() override { return true; }
  double seconds_since(Event& start) override {
    return std::chrono::duration<double>(mark_ - static_cast<CpuEvent&>(start).mark_).count();
  }

 private:
  std::chrono::steady_clock::time_point mark_;
};

class CpuBackend final : public Backend {
 public:
  // Settles the class of CPU before any kernel runs, and refuses an OpenBLAS that would fight for
  // the cores.
  CpuBackend() {
    cpu_class();
    verify_blas();
  }
  const char* name() const override { return "cpu"; }
  ComputeDescription describe() const override {
    return {cpu_class_name(cpu_class()), cpu_class_name(hardware_cpu_class()),
            std::to_string(kMatmulTableVersion)};
  }
  DType fast_dtype(std::int64_t channels) const override {
    return cpu::fast_dtype(cpu_class(), channels);
  }

  std::unique_ptr<SegmentSource> make_source(MemoryKind kind, Threads threads) override {
    if (kind == MemoryKind::kSymmetric)
      throw Unimplemented("cpu: peers make symmetric memory together; a backend has none");
    return make_heap_source(threads);
  }
  DeviceMemory memory() const override {
    const auto bytes = [](int pages) {
      return static_cast<std::int64_t>(sysconf(pages)) * sysconf(_SC_PAGESIZE);
    };
    return {bytes(_SC_AVPHYS_PAGES), bytes(_SC_PHYS_PAGES)};
  }
  std::shared_ptr<OwnedStream> make_stream(Device) override {
    return std::make_shared<OwnedStream>(Stream{});
  }
  std::unique_ptr<Event> make_event() override { return std::make_unique<CpuEvent>(); }
  void wait_event(const Stream&, Event&) override {}
  void copy(const KernelContext& context, const TensorView& dst, const TensorView& src) override {
    cpu::copy(context, dst, src);
  }
  void fill(const KernelContext& context, const TensorView& dst, double value) override {
    cpu::fill(context, dst, value);
  }
  void copy_from_host(const KernelContext& context, const TensorView& dst,
                      const TensorView& host) override {
    cpu::copy(context, dst, host);
  }
  void copy_from_host_async(const KernelContext& context, const TensorView& dst,
                            const TensorView& host) override {
    cpu::copy(context, dst, host);
  }
  void copy_to_host(const KernelContext& context, const TensorView& host,
                    const TensorView& src) override {
    cpu::copy(context, host, src);
  }
  void copy_to_host_async(const KernelContext& context, const TensorView& host,
                          const TensorView& src) override {
    cpu::copy(context, host, src);
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
  void sum_of_squares(const KernelContext& context, const TensorView& out,
                      std::span<const TensorView> xs, bool accumulate) override {
    cpu::sum_of_squares(context, out, xs, accumulate);
  }
  void first_nonfinite(const KernelContext& context, const TensorView& index,
                       std::span<const TensorView> xs) override {
    cpu::first_nonfinite(context, index, xs);
  }
  void clip_factor(const KernelContext&, const TensorView& norm, const TensorView& factor,
                   const TensorView& sum_of_squares, double max_norm) override {
    cpu::clip_factor(norm, factor, sum_of_squares, max_norm);
  }
  void softmax(const KernelContext& context, const TensorView& y, const TensorView& x,
               bool log) override {
    cpu::softmax(context, y, x, log);
  }
  void softmax_backward(const KernelContext& context, const TensorView& dx, const TensorView& dy,
                        const TensorView& y, bool log) override {
    cpu::softmax_backward(context, dx, dy, y, log);
  }
  void norm(const KernelContext& context, const NormViews& views,
            const NormOptions& options) override {
    cpu::norm(context, views, options);
  }
  void norm_backward(const KernelContext& context, const NormGrads& grads) override {
    cpu::norm_backward(context, grads);
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
  void slice_ids(const KernelContext&, const TensorView& places, const TensorView& ids,
                 const IdSlice& slice) override {
    cpu::slice_ids(places, ids, slice);
  }
  void first_id_outside(const KernelContext&, const TensorView& found, const TensorView& ids,
                        std::int64_t limit, std::optional<std::int64_t> allowed) override {
    cpu::first_id_outside(found, ids, limit, allowed);
  }
  void count_ids(const KernelContext&, const TensorView& count, const TensorView& ids,
                 std::int64_t id) override {
    cpu::count_ids(count, ids, id);
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
  void cross_entropy(const KernelContext& context, const CrossEntropyRows& rows,
                     const CrossEntropyOptions& options) override {
    cpu::cross_entropy(context, rows, options);
  }
  void combine_class_slices(const KernelContext&, const CrossEntropyRows& rows,
                            const TensorView& slices, std::int64_t ignore_index) override {
    cpu::combine_class_slices(rows, slices, ignore_index);
  }
  void cross_entropy_backward(const KernelContext& context, const TensorView& dlogits,
                              const TensorView& grad_losses, const CrossEntropyRows& rows,
                              const CrossEntropyOptions& options) override {
    cpu::cross_entropy_backward(context, dlogits, grad_losses, rows, options);
  }
  OutputLossPlan output_loss_plan(const TensorView& hidden, const TensorView& weight,
                                  std::int64_t widest) const override {
    return cpu::output_loss_plan(hidden, weight, widest);
  }
  void output_loss_chunk(const KernelContext& context, const CrossEntropyRows& rows,
                         const OutputProjection& projection,
                         const CrossEntropyOptions& options) override {
    cpu::output_loss_chunk(context, rows, projection, options);
  }
  void output_loss_products(const KernelContext& context, const OutputLossGrads& grads,
                            const TensorView& gradient,
                            const OutputProjection& projection) override {
    cpu::output_loss_products(context, grads, gradient, projection);
  }
  void adam_step(const KernelContext& context, std::span<const OptimizerTensor> tensors,
                 const StepScalars& scalars, const AdamOptions& options) override {
    cpu::adam_step(context, tensors, scalars, options);
  }
  void sgd_step(const KernelContext& context, std::span<const OptimizerTensor> tensors,
                const StepScalars& scalars, const SgdOptions& options) override {
    cpu::sgd_step(context, tensors, scalars, options);
  }
};

}  // namespace

Backend& cpu_backend() {
  static CpuBackend backend;
  return backend;
}

void add_cpu_device() {
  add_device(kCpuDevice, []() -> Backend& { return cpu_backend(); });
}

}  // namespace meshloom::kernels::cpu
