// SPDX-License-Identifier: Apache-2.0
// The output projection with its loss on one rank, by chunks of rows.
#pragma once

#include "daemon/tensor/ops/class_slice.h"
#include "kernels/options.h"

namespace meshloom::ops {

/// hidden [rows, C] and weight [V, C] of one dtype, optional bias [V], targets [rows] int64 as
/// places among the rows of weight. losses [rows] get each row's loss (float32, float64 for
/// float64). dhidden [rows, C] and dweight, dbias (float32, or float64), added to if `accumulate`,
/// get the gradients of options.grad_scale * sum(losses); undefined ones are not computed.
struct OutputLoss {
  TensorView losses, dhidden, dweight, dbias;
  TensorView hidden, weight, bias, targets;
  kernels::CrossEntropyOptions options;
  bool accumulate = false;
  /// Given if weight's rows are a slice of the classes: a chunk's exchange then overlaps the next
  /// chunk's product, for which a second buffer of logits is taken.
  const SliceExchange* exchange = nullptr;
};

/// Full logits never exist: memory for a chunk or two of them, and in bfloat16 for a block of their
/// gradients, comes from the context's allocator.
void run_output_loss(ExecutionContext& context, const OutputLoss& loss);

}  // namespace meshloom::ops
