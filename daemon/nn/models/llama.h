// SPDX-License-Identifier: Apache-2.0
// Llama with its language-model head, and the decoders that differ from it in switches of the
// config: Mistral, Qwen2 and Qwen3. Gemma 3 has other blocks of the same parts. Parameters are
// named as transformers' LlamaForCausalLM.
//
// Source: Touvron et al., "LLaMA: Open and Efficient Foundation Language Models", 2023; grouped
// queries as in Llama 3.1; windows as in Jiang et al., "Mistral
// 7B", 2023; norms of queries and keys as in Qwen Team, "Qwen3 Technical Report", 2025.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "daemon/nn/models/causal_model.h"
#include "daemon/nn/modules/embedding.h"
#include "daemon/nn/modules/norm.h"
#include "daemon/nn/rope_table.h"

namespace meshloom::nn {

/// Every block of one forward pass is told this.
struct LlamaPass {
  DropoutState dropout;
  BatchDocuments documents;
  Tensor bias;          ///< of attention_mask (mask_bias)
  Tensor position_ids;  ///< undefined: position_offset + s
  std::int64_t position_offset = 0;
  Tensor cos, sin;  ///< plain on every mesh
  KvCaches caches = {};
};

class LlamaAttention : public Module {
 public:
  LlamaAttention(ExecutionContext& context, const ModelConfig& config, std::int64_t layer,
                 DType dtype);
  Tensor operator()(const Tensor& x, const LlamaPass& pass) const;

 private:
  Tensor attend(const Tensor& x, const LlamaPass& pass) const;

  const ModelConfig& config_;
  std::int64_t layer_;
  Linear q_, k_, v_, o_;
  std::optional<RmsNorm> q_norm_, k_norm_;  ///< of each head (ModelConfig::qk_norm)
};

class LlamaMlp : public Module {
 public:
  LlamaMlp(ExecutionContext& context, const ModelConfig& config, DType dtype);
  Tensor operator()(const Tensor& x) const;

 private:
  ActivationKind activation_;  ///< of the gate: silu, or one of the GELUs
  Linear gate_, up_, down_;
};

class LlamaBlock : public Module {
 public:
  LlamaBlock(ExecutionContext& context, const ModelConfig& config, std::int64_t layer, DType dtype);
  ResidualStream operator()(const ResidualStream& stream, const LlamaPass& pass) const;
  std::span<const std::string_view> input_names() const override { return kStreamInputs; }

 private:
  LlamaAttention attention_;
  LlamaMlp mlp_;
  RmsNorm input_norm_;
  RmsNorm post_attention_norm_;
};

class Llama : public CausalModel {
 public:
  Llama(ExecutionContext& context, const ModelConfig& config, DType dtype);

 protected:
  Tensor hidden(const Batch& batch, const ForwardOptions& options, KvCaches caches) override;
  const OutputProjection& lm_head() const override { return lm_head_; }

 private:
  Embedding token_embedding_;
  std::vector<std::unique_ptr<LlamaBlock>> blocks_;
  RmsNorm final_norm_;
  /// The rotation says where the queries and keys of a pass stand, and holds the table for it.
  struct Rotation {
    RopeRows rows;
    Tensor position_ids;  ///< undefined: position_offset + s
    std::int64_t position_offset = 0;
  };
  Rotation rotation(const Batch& batch, KvCaches caches);

  OutputProjection lm_head_;
  RopeTable rope_;
};

}  // namespace meshloom::nn
