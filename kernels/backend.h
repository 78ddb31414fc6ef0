// SPDX-License-Identifier: Apache-2.0
// The one compute interface: what a device must be able to compute. Views in, views out.
//
// Contracts that hold for every call:
//
// Kernels own nothing and allocate nothing; scratch memory comes from KernelContext::workspace.
//
// Views are checked by the ops above (daemon/tensor/ops). Kernels trust shapes and dtypes, and
// throw Unimplemented for a dtype that they do not offer. Ids, targets and positions that lie in
// device memory are not trusted: one that is outside reads and writes nothing outside, and the
// result is of no use (first_id_outside tells). All memory is the device's, scalars too, except in
// the calls that say "host".
//
// Elementwise calls, copy, reduce and matmul take any strides; the calls that say "contiguous" want
// rows of the last dim to be dense (stride 1) and row-major.
//
// Floating dtypes are float32, bfloat16, float16 and float64 unless a call says otherwise. Sums run
// in float32 (float64 for float64) in an order that depends on shapes and thread count alone.
//
// Outputs may alias inputs only where a call says so.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "kernels/base/parallel_for.h"
#include "kernels/base/segment_source.h"
#include "kernels/base/stream.h"
#include "kernels/options.h"

namespace meshloom::kernels {

/// Workspace is scratch memory that is valid until the next call that gets the same context.
/// Implemented by the owner of an allocator.
class Workspace {
 public:
  virtual ~Workspace() = default;
  /// Returns at least `bytes`, aligned to 64. A second call within one op replaces the first span.
  virtual std::span<std::byte> reserve(std::size_t bytes) = 0;
};

struct KernelContext {
  Threads threads;
  Stream stream;
  Workspace* workspace = nullptr;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const char* name() const = 0;
  // describe, fast_dtype and memory may be called by any thread, beside all other calls, and make
  // no context on the device: a daemon asks all devices at its start.
  virtual ComputeDescription describe() const = 0;
  /// Returns what `dtype: auto` means here for a model of so many channels (hidden size): bfloat16
  /// where that trains faster than float32, else float32. A fixed table; nothing is timed.
  virtual DType fast_dtype(std::int64_t channels) const = 0;

  // --- Memory
  /// A new source of memory of a kind, which `threads` touch: kDevice and kHost. kSymmetric is not
  /// one backend's to give: Unimplemented.
  virtual std::unique_ptr<SegmentSource> make_source(MemoryKind kind, Threads threads) = 0;
  /// Returns what there is of the device's memory, whoever uses it. The CPU's is the host's,
  /// whatever part of it a process may use.
  virtual DeviceMemory memory() const = 0;
  /// Makes a stream of its own on a device of this backend, without work.
  virtual std::shared_ptr<OwnedStream> make_stream(Device device) = 0;
  /// Makes an event without a mark, of its owner's from then on.
  virtual std::unique_ptr<Event> make_event() = 0;
  /// Makes work that `stream` is given later begin after all that lies before the event's mark,
  /// whatever stream that is in. The host does not wait. An event without a mark changes nothing.
  virtual void wait_event(const Stream& stream, Event& event) = 0;
  /// dst = src, same shape, any strides, any pair of dtypes (numeric conversion, round to nearest
  /// even).
  virtual void copy(const KernelContext&, const TensorView& dst, const TensorView& src) = 0;
  virtual void fill(const KernelContext&, const TensorView& dst, double value) = 0;
  /// Copies from host memory as copy does; the host may change that memory once the call returns.
  virtual void copy_from_host(const KernelContext&, const TensorView& dst,
                              const TensorView& host) = 0;
  /// Copies as copy_from_host does, without waiting: `host` is of kind kHost and stays as it is
  /// until an event recorded afterwards has come.
  virtual void copy_from_host_async(const KernelContext&, const TensorView& dst,
                                    const TensorView& host) = 0;
  /// Copies into host memory as copy does. That memory is written when the call returns, which
  /// waits for all work before it.
  virtual void copy_to_host(const KernelContext&, const TensorView& host,
                            const TensorView& src) = 0;
  /// Copies as copy_to_host does, without waiting: in order with the other work of the stream, so
  /// that host memory is written when an event recorded afterwards has come. `host` is of kind
  /// kHost.
  virtual void copy_to_host_async(const KernelContext&, const TensorView& host,
                                  const TensorView& src) = 0;

  // --- Elementwise (inputs already broadcast: strides of 0)
  /// y = op(x). y may alias x.
  virtual void unary(const KernelContext&, UnaryOp, const TensorView& y, const TensorView& x,
                     double scalar) = 0;
  /// dx = dy * op'(x). `y` is op(x). dx may alias dy.
  virtual void unary_backward(const KernelContext&, UnaryOp, const TensorView& dx,
                              const TensorView& dy, const TensorView& x, const TensorView& y,
                              double scalar) = 0;
  /// y = op(a, b). y may alias a or b.
  virtual void binary(const KernelContext&, BinaryOp, const TensorView& y, const TensorView& a,
                      const TensorView& b) = 0;
  /// y = condition ? a : b; condition is bool.
  virtual void where(const KernelContext&, const TensorView& y, const TensorView& condition,
                     const TensorView& a, const TensorView& b) = 0;
  /// y = x with elements outside the triangle set to 0: kept where column - row <= diagonal (lower)
  /// or >= diagonal (upper), over the last two dims.
  virtual void triangle(const KernelContext&, const TensorView& y, const TensorView& x, bool upper,
                        std::int64_t diagonal) = 0;
  /// y = silu(gate) * up.
  virtual void swiglu(const KernelContext&, const TensorView& y, const TensorView& gate,
                      const TensorView& up) = 0;
  virtual void swiglu_backward(const KernelContext&, const TensorView& dgate, const TensorView& dup,
                               const TensorView& dy, const TensorView& gate,
                               const TensorView& up) = 0;
  /// y = dropout(x); the same call with dy gives dx. y may alias x. x contiguous.
  virtual void dropout(const KernelContext&, const TensorView& y, const TensorView& x,
                       const DropoutOptions&) = 0;
  /// Fills a contiguous dst: normal(mean, std) by Box-Muller, or uniform [low, high), element i
  /// from the stream's values at first_index + i.
  virtual void fill_normal(const KernelContext&, const TensorView& dst, const PhiloxStream&,
                           std::uint64_t first_index, float mean, float std) = 0;
  virtual void fill_uniform(const KernelContext&, const TensorView& dst, const PhiloxStream&,
                            std::uint64_t first_index, float low, float high) = 0;

  // --- Reductions
  /// y = op over the dims where y's size is 1 and x's is not (y has x's number of dims).
  /// `correction` is var's.
  virtual void reduce(const KernelContext&, ReduceOp, const TensorView& y, const TensorView& x,
                      double correction) = 0;
  /// out (float32 [1]) = sum of squares over all views (float32 or bfloat16, contiguous); with
  /// `accumulate` it is added to.
  virtual void sum_of_squares(const KernelContext&, const TensorView& out,
                              std::span<const TensorView> xs, bool accumulate) = 0;
  /// index (int64 [1]) = that of the first view with a NaN or infinite element, or -1.
  virtual void first_nonfinite(const KernelContext&, const TensorView& index,
                               std::span<const TensorView> xs) = 0;
  /// Computes, from the sum of squares of all gradients (float64 [1]), norm = its root and factor =
  /// min(1, max_norm / (norm + 1e-6)), or 1 for max_norm 0; float32 [1] both, and so is the
  /// arithmetic.
  virtual void clip_factor(const KernelContext&, const TensorView& norm, const TensorView& factor,
                           const TensorView& sum_of_squares, double max_norm) = 0;

  // --- Softmax and norms, over the last dim (contiguous rows)
  /// y = softmax(x), or its logarithm if `log`; y and x of one floating dtype, y may be x. The
  /// backward reads y and not x; dx may be dy.
  virtual void softmax(const KernelContext&, const TensorView& y, const TensorView& x,
                       bool log) = 0;
  virtual void softmax_backward(const KernelContext&, const TensorView& dx, const TensorView& dy,
                                const TensorView& y, bool log) = 0;
  virtual void norm(const KernelContext&, const NormViews&, const NormOptions&) = 0;
  virtual void norm_backward(const KernelContext&, const NormGrads&) = 0;

  // --- Embedding
  /// y[i] = weight[ids[i]], zeros where weight has no such row; ids int64 contiguous, y [ids.., C].
  virtual void embedding(const KernelContext&, const TensorView& y, const TensorView& weight,
                         const TensorView& ids) = 0;
  /// dweight[ids[i]] += dy[i], in the order of i for every row (deterministic). Skipped are ids
  /// equal to padding_idx and those without a row. dweight is float32 (float64 for float64) and is
  /// not cleared first.
  virtual void embedding_backward(const KernelContext&, const TensorView& dweight,
                                  const TensorView& dy, const TensorView& ids,
                                  std::int64_t padding_idx) = 0;

  // --- Ids (int64, contiguous)
  /// places[i] = place of ids[i] in the slice: its position in the ranges, kOtherSlice if none has
  /// it, special_place if it is `special`.
  virtual void slice_ids(const KernelContext&, const TensorView& places, const TensorView& ids,
                         const IdSlice&) = 0;
  /// found (int64 [2]) = index and value of the first id outside [0, limit) that is not `allowed`,
  /// or -1 and 0.
  virtual void first_id_outside(const KernelContext&, const TensorView& found,
                                const TensorView& ids, std::int64_t limit,
                                std::optional<std::int64_t> allowed) = 0;
  /// count (int64 [1]) = how many of the ids are `id`.
  virtual void count_ids(const KernelContext&, const TensorView& count, const TensorView& ids,
                         std::int64_t id) = 0;

  // --- Matmul
  /// y [.., M, N] = epilogue(alpha * a [.., M, K] b [.., K, N] + beta * y); leading dims equal, or
  /// of stride 0 in a or b. Inputs of one dtype; y that dtype or float32 (beta 1 accumulates
  /// gradients in float32).
  virtual void matmul(const KernelContext&, const TensorView& y, const TensorView& a,
                      const TensorView& b, const MatmulOptions&) = 0;

  // --- Attention
  /// Attention of a block of queries to a block of keys; shapes and dtypes are at the structs. The
  /// backward makes probabilities again from lse.
  virtual void attention(const KernelContext&, const AttentionOutputs&, const AttentionInputs&,
                         const AttentionOptions&) = 0;
  /// Computes attention of one query of each batch row, which sees all of the keys that the row has
  /// for itself: row b of q [B,Hq,1,D] reads memories[b], of any length. Every row gets the bits
  /// that `attention` of it alone gives, with a causal query at the last key; no carry. A backend
  /// that takes all rows at once overrides this.
  virtual void attention_rows(const KernelContext& context, const AttentionOutputs& out,
                              const TensorView& q, std::span<const AttentionMemory> memories,
                              double scale) {
    for (std::size_t i = 0; i < memories.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i);
      const auto& [k, v] = memories[i];
      AttentionOptions options;
      options.scale = scale;
      options.is_causal = true;
      options.query_offset = k.size(2) - 1;
      attention(context, {rows_of(out.o, row, 1), rows_of(out.lse, row, 1)},
                {rows_of(q, row, 1), k, v}, options);
    }
  }
  virtual void attention_backward(const KernelContext&, const AttentionGrads&,
                                  const AttentionInputs&, const AttentionOptions&) = 0;
  /// Tells whether attention_backward of these arguments reads grads.delta, which this call does
  /// not; else delta need not be given.
  virtual bool reads_attention_delta(const AttentionGrads&, const AttentionInputs&,
                                     const AttentionOptions&) const {
    return true;
  }
  /// delta [B,H,S] float32 = rowsum(grad_o * o), any strides.
  virtual void attention_delta(const KernelContext&, const TensorView& delta,
                               const TensorView& grad_o, const TensorView& o) = 0;
  /// Computes the rotary embedding, half-split pairs (x[i], x[i + D/2]) as Hugging Face stores
  /// them. x, y [B,H,S,D] any strides with dense D; y may alias x.
  virtual void rope(const KernelContext&, const TensorView& y, const TensorView& x,
                    const RopeOptions&) = 0;

  // --- Loss
  /// Losses by row (0 where ignored) and lse. Of a slice of the classes (options.slice): the
  /// slice's share, without lse: (smoothing - 1) * target logit - smoothing * sum of logits /
  /// total; and its lse (required, also of ignored rows).
  virtual void cross_entropy(const KernelContext&, const CrossEntropyRows&,
                             const CrossEntropyOptions&) = 0;
  /// Combines losses and lse of all classes, from those of every slice: slices [ranks, 2, rows] has
  /// each rank's losses, then its lse, as cross_entropy gave them, of the rows' dtype. Summed in
  /// rank order and in double, so that every rank gets the same bits. Losses of rows whose target
  /// is ignore_index are 0. Logits are not read.
  virtual void combine_class_slices(const KernelContext&, const CrossEntropyRows&,
                                    const TensorView& slices, std::int64_t ignore_index) = 0;
  /// dlogits = grad_losses[row] * grad_scale * d loss / d logits; of logits' dtype, then it may
  /// alias logits, or bfloat16 for float32 logits. grad_losses float32 or float64 [rows];
  /// undefined: 1.
  virtual void cross_entropy_backward(const KernelContext&, const TensorView& dlogits,
                                      const TensorView& grad_losses, const CrossEntropyRows&,
                                      const CrossEntropyOptions&) = 0;
  /// Plans output projection and cross entropy together, forward and backward, by chunks of
  /// rows, so that full logits never exist: how rows are to be split, for hidden [rows, C] and
  /// weight [V, C] by their shapes and dtype alone. `widest` is V, or the largest V of all ranks
  /// that hold slices of the classes, so that all split alike.
  virtual OutputLossPlan output_loss_plan(const TensorView& hidden, const TensorView& weight,
                                          std::int64_t widest) const = 0;
  /// Computes, for at most plan.chunk rows, the logits (of plan's dtype) of the projection, then
  /// cross_entropy of them, with lse of logits' dtype.
  virtual void output_loss_chunk(const KernelContext&, const CrossEntropyRows&,
                                 const OutputProjection&, const CrossEntropyOptions&) = 0;
  /// Computes the gradients of the projection of at most plan.block rows, from the gradient of
  /// their logits [rows, V] (of plan's dtype, as cross_entropy_backward gives it).
  virtual void output_loss_products(const KernelContext&, const OutputLossGrads&,
                                    const TensorView& gradient, const OutputProjection&) = 0;

  // --- Optimizer
  /// Each updates masters, moments and working copies of all tensors in one step, whose number,
  /// rate and factor the scalars give. It changes nothing where these tell of a norm or loss that
  /// is NaN or infinite.
  virtual void adam_step(const KernelContext&, std::span<const OptimizerTensor>, const StepScalars&,
                         const AdamOptions&) = 0;
  virtual void sgd_step(const KernelContext&, std::span<const OptimizerTensor>, const StepScalars&,
                        const SgdOptions&) = 0;
};

}  // namespace meshloom::kernels
