// SPDX-License-Identifier: Apache-2.0
// A GPT-2 over bytes that trains in milliseconds.
#pragma once

#include <cstdint>
#include <string>

#include <fmt/format.h>

namespace meshloom::testing {

inline constexpr std::int64_t kTinyContext = 16;

/// config.json: 2 layers, 2 heads, 16 channels.
inline std::string tiny_gpt2_config(double dropout = 0.0) {
  return fmt::format(
      R"({{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 256,
    "n_positions": {}, "n_embd": 16, "n_layer": 2, "n_head": 2, "resid_pdrop": {}, "embd_pdrop": {}, "attn_pdrop": {},
    "activation_function": "gelu_new", "layer_norm_epsilon": 1e-05, "initializer_range": 0.2}})",
      kTinyContext, dropout, dropout, dropout);
}

/// config.json of a Mistral of the same size whose layers all see `window` positions.
inline std::string tiny_mistral_config(int window) {
  return fmt::format(
      R"({{"model_type": "mistral", "architectures": ["MistralForCausalLM"], "vocab_size": 256,
    "max_position_embeddings": {}, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "intermediate_size": 24, "sliding_window": {}}})",
      kTinyContext, window);
}

}  // namespace meshloom::testing
