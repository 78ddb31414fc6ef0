// SPDX-License-Identifier: Apache-2.0
// Small models and batches for tests.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "daemon/nn/models/model.h"

namespace meshloom::testing {

/// Two layers of everything, sizes that are no powers of two where they need not be.
inline nn::ModelConfig tiny_gpt2() {
  return nn::parse_hf_config(
      R"({"architectures":["GPT2LMHeadModel"],"vocab_size":37,"n_positions":24,
      "n_embd":24,"n_layer":2,"n_head":3,"n_inner":52,"bos_token_id":null,"eos_token_id":null,
      "resid_pdrop":0.2,"embd_pdrop":0.1,"attn_pdrop":0.3})");
}
inline nn::ModelConfig tiny_llama() {
  return nn::parse_hf_config(R"({"architectures":["LlamaForCausalLM"],"vocab_size":37,
      "max_position_embeddings":24,"hidden_size":24,"num_hidden_layers":2,"num_attention_heads":6,
      "num_key_value_heads":2,"intermediate_size":40,"attention_bias":true,"mlp_bias":true,
      "bos_token_id":null,"eos_token_id":null,"attention_dropout":0.2,
      "rope_parameters":{"rope_type":"llama3","rope_theta":100.0,"factor":4.0,"low_freq_factor":1.0,
      "high_freq_factor":4.0,"original_max_position_embeddings":12}})");
}
/// Norms of queries and keys, a first layer with a window, biases but not in the MLP, and heads
/// that are wider than the hidden size divides into.
inline nn::ModelConfig tiny_qwen3() {
  return nn::parse_hf_config(R"({"architectures":["Qwen3ForCausalLM"],"vocab_size":37,
      "max_position_embeddings":24,"hidden_size":24,"num_hidden_layers":2,"num_attention_heads":6,
      "num_key_value_heads":3,"head_dim":6,"intermediate_size":40,"attention_bias":true,
      "use_sliding_window":true,"sliding_window":5,
      "layer_types":["sliding_attention","full_attention"],"attention_dropout":0.2,
      "rope_parameters":{"rope_type":"default","rope_theta":100.0}})");
}
inline nn::ModelConfig tiny_bert() {
  return nn::parse_hf_config(R"({"architectures":["BertForMaskedLM"],"vocab_size":37,
      "max_position_embeddings":24,"hidden_size":24,"num_hidden_layers":2,"num_attention_heads":3,
      "intermediate_size":40,"hidden_dropout_prob":0.2,"attention_probs_dropout_prob":0.3})");
}

inline Tensor random_ids(ExecutionContext& context, std::int64_t rows, std::int64_t length,
                         std::int64_t vocab, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::int64_t> ids(static_cast<std::size_t>(rows * length));
  for (std::int64_t& id : ids)
    id = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(vocab));
  return from_values(context, {rows, length}, std::span<const std::int64_t>(ids));
}

/// A model with larger weights than training starts from, so that its outputs differ clearly.
inline std::unique_ptr<nn::Model> make_random_model(ExecutionContext& context,
                                                    const nn::ModelConfig& config,
                                                    DType dtype = DType::kFloat32) {
  nn::ModelConfig wide = config;
  wide.initializer_range = 0.3;
  auto model = nn::make_model(context, wide, dtype);
  nn::initialize_parameters(*model, 3);
  return model;
}

}  // namespace meshloom::testing
