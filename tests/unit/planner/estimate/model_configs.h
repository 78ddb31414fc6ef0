// SPDX-License-Identifier: Apache-2.0
// The real models of the shapes that are estimated.
#pragma once

#include "daemon/nn/models/model_config.h"
#include "planner/estimate/model_shape.h"

namespace meshloom::planner::testing {

inline nn::ModelConfig config_of(const ModelShape& m) {
  nn::ModelConfig config;
  config.architecture = m.kind;
  config.vocab_size = m.vocab;
  config.hidden_size = m.hidden;
  config.num_layers = m.layers;
  config.num_heads = m.heads;
  config.num_kv_heads = m.kv_heads;
  config.head_dim = m.head_dim;
  config.intermediate_size = m.intermediate;
  config.max_position_embeddings = m.positions;
  config.type_vocab_size = m.token_types;
  config.activation = m.activation == MlpActivation::kGelu   ? nn::ActivationKind::kGeluTanh
                      : m.activation == MlpActivation::kRelu ? nn::ActivationKind::kRelu
                                                             : nn::ActivationKind::kSilu;
  config.tie_word_embeddings = m.tied;
  config.attention_bias = m.attention_bias;
  config.attention_output_bias = m.attention_output_bias;
  config.mlp_bias = m.mlp_bias;
  config.qk_norm = m.qk_norm;
  config.sliding_window = m.window;
  if (m.windowed_layers < m.layers && m.window > 0)
    for (std::int64_t i = 0; i < m.layers; ++i)
      config.windowed_layers.push_back(i >= m.layers - m.windowed_layers);
  config.embedding_dropout = m.embedding_dropout ? 0.1 : 0.0;
  config.residual_dropout = m.residual_dropout ? 0.1 : 0.0;
  return config;
}

}  // namespace meshloom::planner::testing
