// SPDX-License-Identifier: Apache-2.0
// BERT with its masked-language-model head; parameters are named as transformers' BertForMaskedLM.
//
// Source: Devlin, Chang, Lee, Toutanova, "BERT: Pre-training of Deep Bidirectional Transformers",
// 2019.
#pragma once

#include <memory>
#include <vector>

#include "daemon/nn/models/model.h"
#include "daemon/nn/models/model_support.h"
#include "daemon/nn/models/position_range.h"
#include "daemon/nn/modules/embedding.h"
#include "daemon/nn/modules/norm.h"
#include "daemon/nn/modules/output_projection.h"

namespace meshloom::nn {

/// Every block of one forward pass is told this.
struct BertPass {
  DropoutState dropout;
  BatchDocuments documents;
  Tensor bias;  ///< of attention_mask (mask_bias)
};

/// BertSelfAttention computes queries, keys, values and attention, without the projection that
/// follows.
class BertSelfAttention : public Module {
 public:
  BertSelfAttention(ExecutionContext& context, const ModelConfig& config, std::int64_t layer,
                    DType dtype);
  Tensor operator()(const Tensor& x, const BertPass& pass) const;

 private:
  Tensor attend(const Tensor& x, const BertPass& pass) const;

  const ModelConfig& config_;
  std::int64_t layer_;
  Linear query_, key_, value_;
};

/// BertBlock computes norm(x + attention(x)), then norm(x + mlp(x)).
class BertBlock : public Module {
 public:
  BertBlock(ExecutionContext& context, const ModelConfig& config, std::int64_t layer, DType dtype);
  Tensor operator()(const Tensor& x, const BertPass& pass) const;

 private:
  const ModelConfig& config_;
  std::int64_t layer_;
  BertSelfAttention attention_;
  Linear attention_out_;
  LayerNorm attention_norm_;
  Linear mlp_in_, mlp_out_;
  LayerNorm mlp_norm_;
};

class Bert : public Model {
 public:
  Bert(ExecutionContext& context, const ModelConfig& config, DType dtype);

  const ModelConfig& config() const override { return config_; }
  std::unique_ptr<KvCache> make_cache(std::int64_t max_length) override;

 protected:
  Tensor compute_loss(const Batch& batch, float grad_scale, const ForwardOptions& options) override;
  Tensor compute_hidden(const Batch& batch, const ForwardOptions& options) override;
  const OutputProjection& output_projection() const override { return predictions_; }
  Tensor compute_decode(const Batch& batch, KvCaches caches) override;

 private:
  Tensor embed(const Batch& batch, const DropoutState& dropout) const;
  /// Returns the output of the head's transform [B,S,C].
  Tensor hidden(const Batch& batch, const ForwardOptions& options) const;

  ModelConfig config_;
  Embedding word_embedding_, position_embedding_, type_embedding_;
  PositionRange positions_;
  LayerNorm embedding_norm_;
  std::vector<std::unique_ptr<BertBlock>> blocks_;
  OutputProjection predictions_;  ///< the bias alone, unless untied
  Linear transform_;
  LayerNorm transform_norm_;
};

}  // namespace meshloom::nn
