// SPDX-License-Identifier: Apache-2.0
// Parameters and flops by formula: no model is made.
#include "daemon/nn/models/model_config.h"
#include "kernels/base/error.h"

namespace meshloom::nn {

std::int64_t parameter_count(const ModelConfig& c) {
  const std::int64_t hidden = c.hidden_size, inner = c.intermediate_size, vocab = c.vocab_size;
  const std::int64_t untied_output = c.tie_word_embeddings ? 0 : vocab * hidden;
  const std::int64_t norm = 2 * hidden;
  switch (c.architecture) {
    case Architecture::kGpt2: {
      const std::int64_t attention = hidden * 3 * hidden + 3 * hidden + hidden * hidden + hidden;
      const std::int64_t mlp = hidden * inner + inner + inner * hidden + hidden;
      return vocab * hidden + c.max_position_embeddings * hidden +
             c.num_layers * (attention + mlp + 2 * norm) + norm + untied_output;
    }
    case Architecture::kLlama: {
      const std::int64_t q = c.num_heads * c.head_dim, kv = c.num_kv_heads * c.head_dim;
      const std::int64_t attention =
          hidden * (q + 2 * kv) + q * hidden + (c.attention_bias ? q + 2 * kv : 0) +
          (c.attention_output_bias ? hidden : 0) + (c.qk_norm ? 2 * c.head_dim : 0);
      const std::int64_t mlp = 3 * hidden * inner + (c.mlp_bias ? 2 * inner + hidden : 0);
      return vocab * hidden + c.num_layers * (attention + mlp + 2 * hidden) + hidden +
             untied_output;
    }
    case Architecture::kBert: {
      const std::int64_t dense = hidden * hidden + hidden;
      const std::int64_t layer =
          4 * dense + hidden * inner + inner + inner * hidden + hidden + 2 * norm;
      const std::int64_t tables = (vocab + c.max_position_embeddings + c.type_vocab_size) * hidden;
      return tables + norm + c.num_layers * layer + dense + norm + vocab + untied_output;
    }
  }
  throw InternalError("parameter_count: unknown architecture");
}

ModelFlops model_flops(const ModelConfig& c) {
  std::int64_t multiplied = parameter_count(c);
  if (c.architecture != Architecture::kLlama)
    multiplied -= c.max_position_embeddings * c.hidden_size;
  if (c.architecture == Architecture::kBert) multiplied -= c.type_vocab_size * c.hidden_size;
  if (!c.tie_word_embeddings) multiplied -= c.vocab_size * c.hidden_size;
  return {6.0 * static_cast<double>(multiplied),
          12.0 * static_cast<double>(c.num_layers * c.num_heads * c.head_dim)};
}

double attention_pairs(const ModelConfig& c, std::int64_t length) {
  const auto n = static_cast<double>(length);
  if (c.architecture == Architecture::kBert) return n * n;
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
