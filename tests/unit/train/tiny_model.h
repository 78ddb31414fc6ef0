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

}  // namespace meshloom::testing
