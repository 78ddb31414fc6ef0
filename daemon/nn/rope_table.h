// SPDX-License-Identifier: Apache-2.0
// Cosines and sines of rotary position embedding, with Llama 3.1's scaling of slow frequencies.
//
// Source: Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021; the
// scaling as transformers' rope_type "llama3" computes it.
#pragma once

#include <vector>

#include "daemon/nn/models/model_config.h"
#include "daemon/tensor/tensor.h"

namespace meshloom::nn {

/// Angle per position of each pair, [head_dim / 2].
std::vector<double> rope_frequencies(const ModelConfig& config);

/// Grows with the longest sequence that was asked for, so that long contexts cost nothing before
/// use.
class RopeTable {
 public:
  RopeTable(ExecutionContext& context, const ModelConfig& config)
      : context_(context), frequencies_(rope_frequencies(config)) {}

  /// Makes sure that positions [0, length) are there.
  void reserve(std::int64_t length);
  /// float32 [positions, head_dim / 2].
  const Tensor& cos() const { return cos_; }
  const Tensor& sin() const { return sin_; }

 private:
  ExecutionContext& context_;
  std::vector<double> frequencies_;
  std::int64_t length_ = 0;
  Tensor cos_, sin_;
};

}  // namespace meshloom::nn
