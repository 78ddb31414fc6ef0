// SPDX-License-Identifier: Apache-2.0
// From hidden states to logits over the vocabulary, or straight to the loss.
#pragma once

#include <optional>
#include <string>

#include "daemon/nn/modules/embedding.h"
#include "daemon/tensor/ops/loss.h"

namespace meshloom::nn {

/// Uses a weight [V,C] of its own, or that of an embedding (tied).
class OutputProjection : public Module {
 public:
  struct Options {
    std::optional<Init> weight = {};     ///< a weight of its own
    const Embedding* tied = nullptr;     ///< or this one's, which outlives the projection
    bool bias = false;                   ///< [V]
    const char* weight_name = "weight";  ///< of the one of its own
  };
  OutputProjection(ExecutionContext& context, std::int64_t in, std::int64_t vocabulary, DType dtype,
                   const Options& options);

  /// Maps hidden [.., C] to logits [.., V].
  Tensor operator()(const Tensor& hidden) const;
  /// Returns the logits not rounded to hidden's dtype: float32, or float64 of such. Records no
  /// gradient.
  Tensor unrounded(const Tensor& hidden) const;
  /// Returns float32 [1]: sum of the losses of counted labels * grad_scale
  /// (ops::linear_cross_entropy).
  Tensor loss(const Tensor& hidden, const Tensor& labels, float grad_scale) const;
  /// Computes ops::weighted_linear_cross_entropy: weights [..] as labels.
  ops::WeightedLoss weighted_loss(const Tensor& hidden, const Tensor& labels, const Tensor& weights,
                                  float grad_scale) const;
  /// Computes ops::linear_token_losses: labels [..] or [.., K].
  Tensor token_losses(const Tensor& hidden, const Tensor& labels) const;

  /// Tells how it shards by vocabulary: each rank has the logits of its tokens.
  std::optional<FeatureSharding> column_sharding() const override;

 private:
  /// Says that no logits come out of a forward that ends in losses: hooks see its input alone.
  template <typename Loss>
  void call_for_loss(const Tensor& hidden, Loss&& loss) const;
  const Tensor& weight() const { return weight_ ? weight_->value : tied_->weight(); }
  Tensor bias() const { return bias_ ? bias_->value : Tensor(); }

  std::string weight_name_;
  Parameter* weight_ = nullptr;
  Parameter* bias_ = nullptr;
  const Embedding* tied_;
};

}  // namespace meshloom::nn
