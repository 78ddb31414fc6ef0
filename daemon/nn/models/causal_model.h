// SPDX-License-Identifier: Apache-2.0
// CausalModel: what GPT-2, Llama and Gemma 3 share, which is loss, logits and decoding around a
// stack of blocks.
#pragma once

#include "daemon/nn/models/model.h"
#include "daemon/nn/models/model_support.h"
#include "daemon/nn/modules/output_projection.h"

namespace meshloom::nn {

class CausalModel : public Model {
 public:
  CausalModel(ExecutionContext& context, const ModelConfig& config, DType dtype)
      : Model(context), config_(config), dtype_(dtype) {}

  const ModelConfig& config() const override { return config_; }
  std::unique_ptr<KvCache> make_cache(std::int64_t max_length) override;

 protected:
  Tensor compute_loss(const Batch& batch, float grad_scale, const ForwardOptions& options) override;
  Tensor compute_hidden(const Batch& batch, const ForwardOptions& options) override;
  const OutputProjection& output_projection() const override { return lm_head(); }
  Tensor compute_decode(const Batch& batch, KvCaches caches) override;
  /// Returns the normed output [B,S,C] of the last block. With caches the ids of each row follow
  /// the positions of its cache.
  virtual Tensor hidden(const Batch& batch, const ForwardOptions& options, KvCaches caches) = 0;
  virtual const OutputProjection& lm_head() const = 0;

  DType dtype() const { return dtype_; }

 private:
  ModelConfig config_;
  DType dtype_;
};

}  // namespace meshloom::nn
