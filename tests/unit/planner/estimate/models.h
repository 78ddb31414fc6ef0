// SPDX-License-Identifier: Apache-2.0
// Models that the tests of estimates share.
#pragma once

#include "planner/estimate/model_shape.h"

namespace meshloom::planner::testing {

inline ModelShape gpt2_124m() {
  return {.kind = Architecture::kGpt2,
          .layers = 12,
          .hidden = 768,
          .heads = 12,
          .kv_heads = 12,
          .head_dim = 64,
          .intermediate = 3072,
          .vocab = 50257,
          .positions = 1024};
}

inline ModelShape byte_gpt() {
  return {.kind = Architecture::kGpt2,
          .layers = 6,
          .hidden = 384,
          .heads = 6,
          .kv_heads = 6,
          .head_dim = 64,
          .intermediate = 1536,
          .vocab = 256,
          .positions = 256};
}

/// Returns the model of configs/models/llama_debug.json.
inline ModelShape small_llama() {
  return {.kind = Architecture::kLlama,
          .layers = 6,
          .hidden = 256,
          .heads = 16,
          .kv_heads = 8,
          .head_dim = 16,
          .intermediate = 768,
          .vocab = 2048,
          .positions = 2048,
          .tied = false,
          .activation = MlpActivation::kSilu};
}

/// Norms of queries and keys, biases of their projections, and windows in some of the layers.
inline ModelShape small_qwen() {
  ModelShape model = small_llama();
  model.attention_bias = model.qk_norm = true;
  model.window = 100;
  model.windowed_layers = 2;
  return model;
}

inline ModelShape llama3_8b() {
  return {.kind = Architecture::kLlama,
          .layers = 32,
          .hidden = 4096,
          .heads = 32,
          .kv_heads = 8,
          .head_dim = 128,
          .intermediate = 14336,
          .vocab = 128256,
          .positions = 8192,
          .tied = false,
          .activation = MlpActivation::kSilu};
}

inline ModelShape small_bert() {
  return {.kind = Architecture::kBert,
          .layers = 2,
          .hidden = 24,
          .heads = 3,
          .kv_heads = 3,
          .head_dim = 8,
          .intermediate = 50,
          .vocab = 41,
          .positions = 32,
          .token_types = 2};
}

/// Returns a BERT of sizes at which tensors outweigh what a process takes beside them.
inline ModelShape measured_bert(int layers) {
  ModelShape model = small_bert();
  model.layers = layers;
  model.hidden = 192;
  model.heads = model.kv_heads = 3;
  model.head_dim = 64;
  model.intermediate = 700;
  model.vocab = 300;
  model.positions = 256;
  return model;
}

}  // namespace meshloom::planner::testing
