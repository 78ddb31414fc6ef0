// SPDX-License-Identifier: Apache-2.0
// Models that the tests of estimates share.
#pragma once

#include "daemon/nn/models/model_config.h"

namespace meshloom::planner::testing {

inline nn::ModelConfig gpt2_124m() {
  nn::ModelConfig model;
  model.architecture = nn::Architecture::kGpt2;
  model.num_layers = 12;
  model.hidden_size = 768;
  model.num_heads = 12;
  model.num_kv_heads = 12;
  model.head_dim = 64;
  model.intermediate_size = 3072;
  model.vocab_size = 50257;
  model.max_position_embeddings = 1024;
  return model;
}

inline nn::ModelConfig byte_gpt() {
  nn::ModelConfig model;
  model.architecture = nn::Architecture::kGpt2;
  model.num_layers = 6;
  model.hidden_size = 384;
  model.num_heads = 6;
  model.num_kv_heads = 6;
  model.head_dim = 64;
  model.intermediate_size = 1536;
  model.vocab_size = 256;
  model.max_position_embeddings = 256;
  return model;
}

/// Returns the model of configs/models/llama_debug.json.
inline nn::ModelConfig small_llama() {
  nn::ModelConfig model;
  model.architecture = nn::Architecture::kLlama;
  model.num_layers = 6;
  model.hidden_size = 256;
  model.num_heads = 16;
  model.num_kv_heads = 8;
  model.head_dim = 16;
  model.intermediate_size = 768;
  model.vocab_size = 2048;
  model.max_position_embeddings = 2048;
  model.tie_word_embeddings = false;
  model.activation = nn::ActivationKind::kSilu;
  return model;
}

/// Norms of queries and keys, biases of their projections, and windows in some of the layers.
inline nn::ModelConfig small_qwen() {
  nn::ModelConfig model = small_llama();
  model.attention_bias = model.qk_norm = true;
  model.sliding_window = 100;
  model.windowed_layers = {false, false, false, false, true, true};
  return model;
}

inline nn::ModelConfig llama3_8b() {
  nn::ModelConfig model;
  model.architecture = nn::Architecture::kLlama;
  model.num_layers = 32;
  model.hidden_size = 4096;
  model.num_heads = 32;
  model.num_kv_heads = 8;
  model.head_dim = 128;
  model.intermediate_size = 14336;
  model.vocab_size = 128256;
  model.max_position_embeddings = 8192;
  model.tie_word_embeddings = false;
  model.activation = nn::ActivationKind::kSilu;
  return model;
}

inline nn::ModelConfig small_bert() {
  nn::ModelConfig model;
  model.architecture = nn::Architecture::kBert;
  model.num_layers = 2;
  model.hidden_size = 24;
  model.num_heads = 3;
  model.num_kv_heads = 3;
  model.head_dim = 8;
  model.intermediate_size = 50;
  model.vocab_size = 41;
  model.max_position_embeddings = 32;
  model.type_vocab_size = 2;
  return model;
}

/// Returns a BERT of sizes at which tensors outweigh what a process takes beside them.
inline nn::ModelConfig measured_bert(int layers) {
  nn::ModelConfig model = small_bert();
  model.num_layers = layers;
  model.hidden_size = 192;
  model.num_heads = model.num_kv_heads = 3;
  model.head_dim = 64;
  model.intermediate_size = 700;
  model.vocab_size = 300;
  model.max_position_embeddings = 256;
  return model;
}

}  // namespace meshloom::planner::testing
