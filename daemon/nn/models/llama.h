// SPDX-License-Identifier: Apache-2.0
// Llama with its language-model head; parameters are named as transformers' LlamaForCausalLM.
//
// Source: Touvron et al., "LLaMA: Open and Efficient Foundation Language Models", 2023; grouped
// queries and the scaled rotary embedding as in Llama 3.1.
#pragma once

#include <memory>
#include <vector>

#include "daemon/nn/models/causal_model.h"
#include "daemon/nn/modules/embedding.h"
#include "daemon/nn/modules/norm.h"
#include "daemon/nn/rope_table.h"

namespace meshloom::nn {

/// What every block of one forward pass is told.
struct LlamaPass {
  DropoutState dropout;
  Tensor document_ids;
  Tensor position_ids;  ///< undefined: position_offset + s
  std::int64_t position_offset = 0;
  Tensor cos, sin;
  KvCache* cache = nullptr;
};

class LlamaBlock : public Module {
 public:
  LlamaBlock(ExecutionContext& context, const ModelConfig& config, std::int64_t layer, DType dtype);
  ResidualStream forward(const ResidualStream& stream, const LlamaPass& pass) const;

 private:
  Tensor attend(const Tensor& normed, const LlamaPass& pass) const;

  const ModelConfig& config_;
  std::int64_t layer_;
  RmsNorm input_norm_;
  Linear q_, k_, v_, o_;
  RmsNorm post_attention_norm_;
  Linear gate_, up_, down_;
};

class Llama : public CausalModel {
 public:
  Llama(ExecutionContext& context, const ModelConfig& config, DType dtype);

 protected:
  Tensor hidden(const Batch& batch, const ForwardOptions& options, KvCache* cache) override;
  const Tensor& output_weight() const override {
    return lm_head_ ? lm_head_->weight() : token_embedding_.weight();
  }

 private:
  Embedding token_embedding_;
  std::vector<std::unique_ptr<LlamaBlock>> blocks_;
  RmsNorm final_norm_;
  std::unique_ptr<Linear> lm_head_;  ///< null: tied to the token embedding
  RopeTable rope_;
};

}  // namespace meshloom::nn
