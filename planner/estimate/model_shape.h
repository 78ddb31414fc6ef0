// SPDX-License-Identifier: Apache-2.0
// ModelShape: the sizes of a Transformer.
#pragma once

#include <cstdint>

namespace meshloom::planner {

/// ModelShape is a plain value; sizes as in Hugging Face's config.json.
struct ModelShape {
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t vocab = 0;
  std::int64_t positions = 0;         ///< of the context
  std::int64_t longest_sequence = 0;  ///< that is computed, if more than those; 0: no more
  bool causal = true;                 ///< a token sees none behind it
  std::int64_t window = 0;            ///< positions that a query of a windowed layer sees
  std::int64_t windowed_layers = 0;   ///< how many of the layers have it
};

/// Returns the number of positions that a query sees in a sequence of so many tokens, the mean over
/// queries and layers: all, of a causal model half of them, fewer where layers have windows.
double seen_positions(const ModelShape& model, std::int64_t sequence);

/// Throws InvalidArgument naming the size that is not positive or does not fit another.
void check_model_shape(const ModelShape& model);

}  // namespace meshloom::planner
