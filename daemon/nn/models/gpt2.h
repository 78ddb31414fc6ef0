// SPDX-License-Identifier: Apache-2.0
// GPT-2 with its language-model head; parameters are named and laid out as transformers'
// GPT2LMHeadModel.
//
// Source: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019.
#pragma once

#include <memory>
#include <vector>

#include "daemon/nn/models/causal_model.h"
#include "daemon/nn/modules/embedding.h"
#include "daemon/nn/modules/norm.h"

namespace meshloom::nn {

/// What every block of one forward pass is told.
struct Gpt2Pass {
  DropoutState dropout;
  Tensor document_ids;
  KvCache* cache = nullptr;
};

/// x + attention(norm(x)), then x + mlp(norm(x)).
class Gpt2Block : public Module {
 public:
  Gpt2Block(ExecutionContext& context, const ModelConfig& config, std::int64_t layer, DType dtype);
  ResidualStream forward(const ResidualStream& stream, const Gpt2Pass& pass) const;

 private:
  Tensor attend(const Tensor& normed, const Gpt2Pass& pass) const;

  const ModelConfig& config_;
  std::int64_t layer_;
  LayerNorm ln_1_;
  Linear attention_in_;  ///< c_attn: queries, keys and values in one
  Linear attention_out_;
  LayerNorm ln_2_;
  Linear mlp_in_;
  Linear mlp_out_;
};

class Gpt2 : public CausalModel {
 public:
  Gpt2(ExecutionContext& context, const ModelConfig& config, DType dtype);

 protected:
  Tensor hidden(const Batch& batch, const ForwardOptions& options, KvCache* cache) override;
  const Tensor& output_weight() const override {
    return lm_head_ ? lm_head_->weight() : token_embedding_.weight();
  }

 private:
  Embedding token_embedding_;
  Embedding position_embedding_;
  std::vector<std::unique_ptr<Gpt2Block>> blocks_;
  LayerNorm final_norm_;
  std::unique_ptr<Linear> lm_head_;  ///< null: tied to the token embedding
};

}  // namespace meshloom::nn
