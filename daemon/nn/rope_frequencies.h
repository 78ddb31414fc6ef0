// SPDX-License-Identifier: Apache-2.0
// By which angle rotary position embedding turns each pair of channels from one position to the
// next, as transformers computes it for each "rope_type".
//
// Sources: Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021; Chen
// et al., "Extending Context Window of Large Language Models via Positional Interpolation", 2023
// (linear); Peng et al., "YaRN: Efficient Context Window Extension of Large Language Models", 2023
// (yarn, and dynamic in its section 3); Llama 3.1 (llama3).
#pragma once

#include <vector>

#include "daemon/nn/models/model_config.h"

namespace meshloom::nn {

struct RopeFrequencies {
  std::vector<double> angles;  ///< per position, [head_dim / 2]
  double scale = 1.0;          ///< of cosines and sines
  /// Each step is rounded to float32, the product with a position too. At thousands of positions
  /// that rounding is as much a part of what a model was trained with as the formula.
  bool single_precision = false;
};

/// `length`: how many positions are computed at once. RopeType::kDynamic alone depends on it.
RopeFrequencies rope_frequencies(const ModelConfig& config, std::int64_t length);

}  // namespace meshloom::nn
