// SPDX-License-Identifier: Apache-2.0
// Cosines and sines of rotary position embedding.
#pragma once

#include <span>

#include "daemon/nn/rope_frequencies.h"
#include "daemon/tensor/tensor.h"

namespace meshloom::nn {

/// RopeRows holds float32 [positions, head_dim / 2] both.
struct RopeRows {
  Tensor cos, sin;
};

/// RopePosition is a position of a sequence that is `length` long in all.
struct RopePosition {
  std::int64_t position, length;
};

/// Grows with the longest sequence that was asked for, so that long contexts cost nothing before
/// use.
class RopeTable {
 public:
  RopeTable(ExecutionContext& context, const ModelConfig& config)
      : context_(context), config_(config) {}

  /// Tells whether a position's values depend on how many are computed at once.
  bool depends_on_length() const {
    return config_.rope_scaling && config_.rope_scaling->type == RopeType::kDynamic;
  }
  /// Returns the rows of the positions below `positions`, or of more, in a sequence of `length`;
  /// without memory while the context defers parameters.
  RopeRows rows(std::int64_t positions, std::int64_t length);
  /// Returns one row for each of `positions`, which depends on that position alone.
  RopeRows rows(std::span<const RopePosition> positions) const;

 private:
  ExecutionContext& context_;
  ModelConfig config_;
  std::int64_t count_ = 0;
  std::int64_t length_ = 0;  ///< that the rows are for, where they depend on it
  RopeRows rows_;
};

}  // namespace meshloom::nn
