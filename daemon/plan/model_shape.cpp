// SPDX-License-Identifier: Apache-2.0
#include "daemon/plan/model_shape.h"

#include "kernels/base/error.h"

namespace meshloom::plan {
namespace {

planner::MlpActivation activation_of(nn::ActivationKind activation) {
  switch (activation) {
    case nn::ActivationKind::kGelu:
    case nn::ActivationKind::kGeluTanh: return planner::MlpActivation::kGelu;
    case nn::ActivationKind::kSilu: return planner::MlpActivation::kSilu;
    case nn::ActivationKind::kRelu: return planner::MlpActivation::kRelu;
  }
  throw InternalError("unknown activation");
}

}  // namespace

planner::ModelShape make_model_shape(const nn::ModelConfig& c) {
  return {.kind = c.architecture,
          .layers = c.num_layers,
          .hidden = c.hidden_size,
          .heads = c.num_heads,
          .kv_heads = c.num_kv_heads,
          .head_dim = c.head_dim,
          .intermediate = c.intermediate_size,
          .vocab = c.vocab_size,
          .positions = c.context_length(),
          .longest_sequence = c.longest_sequence(),
          .token_types = c.type_vocab_size,
          .tied = c.tie_word_embeddings,
          .attention_bias = c.attention_bias,
          .attention_output_bias = c.attention_output_bias,
          .mlp_bias = c.mlp_bias,
          .qk_norm = c.qk_norm,
          .window = c.sliding_window,
          .windowed_layers = c.windowed_layer_count(),
          .activation = activation_of(c.activation),
          .embedding_dropout = c.embedding_dropout > 0.0,
          .residual_dropout = c.residual_dropout > 0.0};
}

}  // namespace meshloom::plan
