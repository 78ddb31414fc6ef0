// SPDX-License-Identifier: Apache-2.0
// How a config.json stretches rotary position embedding beyond the length that a model was trained
// on, in the terms of transformers ("rope_type").
#pragma once

#include <cstdint>
#include <optional>

namespace meshloom::nn {

enum class RopeType { kLinear, kDynamic, kYarn, kLlama3 };

/// RopeScaling holds values of one type; those of the others keep their defaults.
struct RopeScaling {
  RopeType type = RopeType::kLinear;
  double factor = 1.0;
  // kLlama3, kYarn
  std::int64_t original_max_position_embeddings = 0;
  // kLlama3
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  // kYarn
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  bool truncate = true;
  std::optional<double> attention_factor = {};  ///< else made of factor, mscale and mscale_all_dim
  std::optional<double> mscale = {}, mscale_all_dim = {};

  bool operator==(const RopeScaling&) const = default;
};

}  // namespace meshloom::nn
