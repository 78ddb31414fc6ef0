// SPDX-License-Identifier: Apache-2.0
// Cross entropy, from logits or fused with the output projection.
#pragma once

#include "daemon/tensor/tensor.h"

namespace meshloom::ops {

enum class Reduction { kNone, kMean, kSum };

struct CrossEntropyOptions {
  std::int64_t ignore_index = -100;
  Reduction reduction = Reduction::kMean;
  double label_smoothing = 0.0;
  /// One number per class, by which the losses of its rows count (a mean is over the sum of them);
  /// undefined: all alike. Floating [V], the same on all ranks: plain, or replicated. No gradient.
  Tensor class_weights = {};
};

/// Class weights and label smoothing together throw Unimplemented. logits [N,V] or [N,V,d..] (class
/// dim 1) or [V]; targets int64. A target outside [0, V) that is not ignore_index throws
/// InvalidArgument naming it.
Tensor cross_entropy(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& = {});

struct LinearCrossEntropyOptions {
  std::int64_t ignore_index = -100;
  /// d(result) is taken to be this: the gradients of hidden, weight and bias are computed in the
  /// forward call, in chunks, so that logits never exist whole. Typically 1 / (global number of
  /// counted tokens).
  double grad_scale = 1.0;
};

/// Computes the sum over counted rows of cross entropy of hidden [..,C] weight^T [V,C] + bias [V]
/// (may be undefined) against targets [..]. Returns float32 [1] (float64 for float64): sum(losses)
/// * grad_scale. While recording, the gradients of weights and biases that are leaves are added to
/// their buffers by the forward call itself, so backward must follow, with gradient 1 (else
/// FailedPrecondition).
Tensor linear_cross_entropy(const Tensor& hidden, const Tensor& weight, const Tensor& bias,
                            const Tensor& targets, const LinearCrossEntropyOptions&);

/// WeightedLoss holds the loss of some rows, and of each.
struct WeightedLoss {
  Tensor sum;     ///< [1]
  Tensor losses;  ///< of targets' shape, 0 where a target is ignored; no gradient goes through them
};

/// Computes linear_cross_entropy with sum = sum(row_weights * losses) * grad_scale: row_weights are
/// float32 (float64 for float64) of targets' shape, of any sign, and get no gradient. Weights of 1
/// give the bits of linear_cross_entropy.
WeightedLoss weighted_linear_cross_entropy(const Tensor& hidden, const Tensor& weight,
                                           const Tensor& bias, const Tensor& targets,
                                           const Tensor& row_weights,
                                           const LinearCrossEntropyOptions&);

/// Returns the loss of each target, -log p, for targets [..] or [.., K] of hidden [.., C]: float32
/// (float64 for float64) of targets' shape, 0 where a target is `ignore_index`. Any gradient may
/// come back; logits are made again for it, chunk by chunk. The values have the bits of
/// weighted_linear_cross_entropy's losses.
Tensor linear_token_losses(const Tensor& hidden, const Tensor& weight, const Tensor& bias,
                           const Tensor& targets, std::int64_t ignore_index = -100);

}  // namespace meshloom::ops
