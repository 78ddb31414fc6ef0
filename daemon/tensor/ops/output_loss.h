// SPDX-License-Identifier: Apache-2.0
// The output projection with its loss on one rank, by chunks of rows.
#pragma once

#include "daemon/tensor/ops/class_slice.h"
#include "kernels/options.h"

namespace meshloom::ops {

/// An OutputLoss has hidden [rows, C] and weight [V, C] of one dtype, optional bias [V], targets
/// [K, rows] int64 as places among the rows of weight. losses [K, rows] get each target's loss, lse
/// [rows], if it is given, the logarithm of each row's sum of exponentials over all classes (both
/// float32, float64 for float64). dhidden [rows, C] and dweight, dbias (float32, or float64), added
/// to if `accumulate`, get the gradients of options.grad_scale * sum(row_weights * losses), for K =
/// 1; undefined ones are not computed.
struct OutputLoss {
  TensorView losses{}, lse{}, dhidden{}, dweight{}, dbias{};
  TensorView hidden{}, weight{}, bias{}, targets{};
  TensorView row_weights{};  ///< [rows] of losses' dtype; undefined: 1
  kernels::CrossEntropyOptions options;
  bool accumulate = false;
  /// Given if weight's rows are a slice of the classes: a chunk's exchange then overlaps the next
  /// chunk's product, for which a second buffer of logits is taken.
  const SliceExchange* exchange = nullptr;
};

/// Throws InvalidArgument unless these are arguments of an output projection with a loss: hidden
/// [.., C], weight [V, C] and, if given, bias [V] of one floating dtype, and int64 targets [..], or
/// with `several` also [.., K].
void check_output_loss(const char* name, const Tensor& hidden, const Tensor& weight,
                       const Tensor& bias, const Tensor& targets, bool several);

/// Full logits never exist: memory for a chunk or two of them, and in bfloat16 for a block of their
/// gradients, comes from the context's allocator.
void run_output_loss(ExecutionContext& context, const OutputLoss& loss);

/// These go back through losses [K, rows] that were computed before, from the lse that they came
/// with. Chunks of logits are made again; nothing is exchanged.
struct OutputLossBackward {
  TensorView dhidden{}, dweight{}, dbias{};  ///< as in OutputLoss
  TensorView loss_grads{};                   ///< [K, rows], of losses' dtype
  TensorView lse{};                          ///< [rows]
  TensorView hidden{}, weight{}, bias{}, targets{};
  kernels::CrossEntropyOptions options;
  bool accumulate = false;
};

/// Memory as run_output_loss; for K above 1 two more chunks of logits.
void run_output_loss_backward(ExecutionContext& context, const OutputLossBackward& loss);

/// Returns target k, rows [begin, begin + count) of a view [K, rows].
TensorView part_of_target(const TensorView& view, std::int64_t k, std::int64_t begin,
                          std::int64_t count);
/// Clears gradients of parameters that no row adds to.
void clear_unless_added(ExecutionContext& context, const TensorView& dweight,
                        const TensorView& dbias, bool accumulate);

}  // namespace meshloom::ops
