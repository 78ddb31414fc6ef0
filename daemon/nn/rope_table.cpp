// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace meshloom::nn {
namespace {

/// Slow frequencies are divided by `factor`, fast ones kept, those between blended.
double scaled(double frequency, const Llama3RopeScaling& s) {
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  const auto original = static_cast<double>(s.original_max_position_embeddings);
  const double turns = original / wavelength;
  if (turns < s.low_freq_factor) return frequency / s.factor;
  if (turns > s.high_freq_factor) return frequency;
  const double smooth = (turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  return (1.0 - smooth) * frequency / s.factor + smooth * frequency;
}

}  // namespace

std::vector<double> rope_frequencies(const ModelConfig& config) {
  std::vector<double> out;
  for (std::int64_t i = 0; i < config.head_dim / 2; ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(config.head_dim);
    const double frequency = std::pow(config.rope_theta, -exponent);
    out.push_back(config.rope_scaling ? scaled(frequency, *config.rope_scaling) : frequency);
  }
  return out;
}

void RopeTable::reserve(std::int64_t length) {
  if (length <= length_) return;
  length_ = std::max(length, 2 * length_);
  const auto pairs = frequencies_.size();
  std::vector<float> cosines, sines;
  cosines.reserve(static_cast<std::size_t>(length_) * pairs);
  sines.reserve(cosines.capacity());
  for (std::int64_t position = 0; position < length_; ++position) {
    for (double frequency : frequencies_) {
      const double angle = static_cast<double>(position) * frequency;
      cosines.push_back(static_cast<float>(std::cos(angle)));
      sines.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  const Shape shape{length_, static_cast<std::int64_t>(pairs)};
  cos_ = from_values(context_, shape, cosines);
  sin_ = from_values(context_, shape, sines);
}

}  // namespace meshloom::nn
