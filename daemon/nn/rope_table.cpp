// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/rope_table.h"

#include <algorithm>
#include <cmath>

namespace meshloom::nn {
namespace {

/// Takes positions one after the other.
class RowValues {
 public:
  void add(std::int64_t position, const RopeFrequencies& frequencies) {
    const auto scale = static_cast<float>(frequencies.scale);
    for (const double frequency : frequencies.angles) {
      double angle = static_cast<double>(position) * frequency;
      if (frequencies.single_precision) angle = static_cast<double>(static_cast<float>(angle));
      cosines_.push_back(static_cast<float>(std::cos(angle)) * scale);
      sines_.push_back(static_cast<float>(std::sin(angle)) * scale);
    }
  }

  RopeRows rows(ExecutionContext& context, std::int64_t count) const {
    const Shape shape{count, static_cast<std::int64_t>(cosines_.size()) / count};
    return {from_values(context, shape, cosines_), from_values(context, shape, sines_)};
  }

 private:
  std::vector<float> cosines_, sines_;
};

}  // namespace

RopeRows RopeTable::rows(std::int64_t positions, std::int64_t length) {
  if (context_.defer_parameters()) {
    const Shape shape{positions, config_.head_dim / 2};
    return {deferred(context_, shape, DType::kFloat32), deferred(context_, shape, DType::kFloat32)};
  }
  // Up to the length that the model was trained on all are alike.
  if (!depends_on_length() || length <= config_.max_position_embeddings) length = 0;
  if (length != length_) count_ = 0;
  length_ = length;
  if (positions <= count_) return rows_;
  count_ = std::max(positions, 2 * count_);
  const RopeFrequencies frequencies = rope_frequencies(config_, length);
  RowValues values;
  for (std::int64_t position = 0; position < count_; ++position) values.add(position, frequencies);
  rows_ = values.rows(context_, count_);
  return rows_;
}

RopeRows RopeTable::rows(std::span<const RopePosition> positions) const {
  RowValues values;
  for (const RopePosition& at : positions)
    values.add(at.position, rope_frequencies(config_, at.length));
  return values.rows(context_, static_cast<std::int64_t>(positions.size()));
}

}  // namespace meshloom::nn
