// SPDX-License-Identifier: Apache-2.0
#include "daemon/plan/model_shape.h"

namespace meshloom::plan {

planner::ModelShape make_model_shape(const nn::ModelConfig& c) {
  return {.layers = c.num_layers,
          .hidden = c.hidden_size,
          .heads = c.num_heads,
          .kv_heads = c.num_kv_heads,
          .head_dim = c.head_dim,
          .vocab = c.vocab_size,
          .positions = c.context_length(),
          .longest_sequence = c.longest_sequence(),
          .causal = c.is_causal(),
          .window = c.sliding_window,
          .windowed_layers = c.windowed_layer_count()};
}

}  // namespace meshloom::plan
