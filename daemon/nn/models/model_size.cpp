// SPDX-License-Identifier: Apache-2.0
// Parameters and flops by formula: no model is made.
#include "daemon/nn/models/architectures/architecture.h"

namespace meshloom::nn {

std::int64_t parameter_count(const ModelConfig& c) {
  const std::int64_t untied_output = c.tie_word_embeddings ? 0 : c.vocab_size * c.hidden_size;
  return architecture_of(c.architecture).parameters(c) + untied_output;
}

ModelFlops model_flops(const ModelConfig& c) {
  std::int64_t multiplied = parameter_count(c) - architecture_of(c.architecture).looked_up(c);
  if (!c.tie_word_embeddings) multiplied -= c.vocab_size * c.hidden_size;
  return {6.0 * static_cast<double>(multiplied),
          12.0 * static_cast<double>(c.num_layers * c.num_heads * c.head_dim)};
}

double attention_pairs(const ModelConfig& c, std::int64_t length) {
  const auto n = static_cast<double>(length);
  if (!c.is_causal()) return n * n;
  const double all = n * n / 2.0;
  if (c.sliding_window >= length) return all;
  const auto window = static_cast<double>(c.sliding_window);
  const double windowed = n * window - window * window / 2.0;
  const double share =
      static_cast<double>(c.windowed_layer_count()) / static_cast<double>(c.num_layers);
  return all + share * (windowed - all);
}

double flops_per_token(const ModelConfig& c, std::int64_t sequence_length) {
  const ModelFlops flops = model_flops(c);
  return flops.per_token + flops.per_pair * attention_pairs(c, sequence_length) /
                               static_cast<double>(sequence_length);
}

}  // namespace meshloom::nn
