// SPDX-License-Identifier: Apache-2.0
// GPT-2 with its language-model head; parameters are named and laid out as transformers'
// GPT2LMHeadModel.
//
// Source: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019.
#pragma once

#include <memory>
#include <vector>

#include "daemon/nn/models/causal_model.h"
#include "daemon/nn/models/position_range.h"
#include "daemon/nn/modules/embedding.h"
#include "daemon/nn/modules/norm.h"

namespace meshloom::nn {

/// Every block of one forward pass is told this.
struct Gpt2Pass {
  DropoutState dropout;
  BatchDocuments documents;
  Tensor bias;  ///< of attention_mask (mask_bias)
  KvCaches caches = {};
};

class Gpt2Attention : public Module {
 public:
  Gpt2Attention(ExecutionContext& context, const ModelConfig& config, std::int64_t layer,
                DType dtype);
  Tensor operator()(const Tensor& x, const Gpt2Pass& pass) const;

 private:
  Tensor attend(const Tensor& x, const Gpt2Pass& pass) const;

  const ModelConfig& config_;
  std::int64_t layer_;
  Linear in_;  ///< c_attn: queries, keys and values in one
  Linear out_;
};

class Gpt2Mlp : public Module {
 public:
  Gpt2Mlp(ExecutionContext& context, const ModelConfig& config, DType dtype);
  Tensor operator()(const Tensor& x) const;

 private:
  ActivationKind activation_;
  Linear in_;
  Linear out_;
};

/// Gpt2Block computes x + attention(norm(x)), then x + mlp(norm(x)).
class Gpt2Block : public Module {
 public:
  Gpt2Block(ExecutionContext& context, const ModelConfig& config, std::int64_t layer, DType dtype);
  ResidualStream operator()(const ResidualStream& stream, const Gpt2Pass& pass) const;
  std::span<const std::string_view> input_names() const override { return kStreamInputs; }

 private:
  const ModelConfig& config_;
  std::int64_t layer_;
  LayerNorm ln_1_;
  Gpt2Attention attention_;
  LayerNorm ln_2_;
  Gpt2Mlp mlp_;
};

class Gpt2 : public CausalModel {
 public:
  Gpt2(ExecutionContext& context, const ModelConfig& config, DType dtype);

 protected:
  Tensor hidden(const Batch& batch, const ForwardOptions& options, KvCaches caches) override;
  const OutputProjection& lm_head() const override { return lm_head_; }

 private:
  Embedding token_embedding_;
  Embedding position_embedding_;
  PositionRange positions_;
  std::vector<std::unique_ptr<Gpt2Block>> blocks_;
  LayerNorm final_norm_;
  OutputProjection lm_head_;
};

}  // namespace meshloom::nn
