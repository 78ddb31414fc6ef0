// SPDX-License-Identifier: Apache-2.0
// One row of scores on the device: which keys its query sees, what is added, what dropout keeps.
#pragma once

#include "kernels/cuda/attention/masked_softmax_launch.h"
#include "kernels/cuda/device.h"

namespace meshloom::kernels::cuda {

/// Where a row of a piece belongs.
struct RowPlace {
  std::int64_t batch, head, query;

  __device__ RowPlace(const ScorePiece& piece, std::int64_t row) {
    const std::int64_t by_head = row / piece.queries, by_kv = by_head / piece.grouped;
    query = piece.query + row - by_head * piece.queries;
    batch = piece.batch + by_kv / piece.kv_heads;
    head = (piece.kv_head + by_kv % piece.kv_heads) * piece.group + piece.in_group +
           by_head % piece.grouped;
  }

  __device__ std::int64_t offset(const QueryStrides& strides) const {
    return batch * strides.batch + head * strides.head + query * strides.query;
  }
};

/// C: float or double.
template <class C>
class ScoreRow {
 public:
  __device__ ScoreRow(const ScoreRules& rules, const RowPlace& place)
      : rules_(rules), batch_(place.batch) {
    position_ = rules.query_positions != nullptr
                    ? rules.query_positions[place.query * rules.query_position_stride]
                    : place.query;
    if (rules.bias != nullptr) bias_ = rules.bias + place.offset(rules.bias_strides);
    if (rules.slopes != nullptr) slope_ = rules.slopes[place.head * rules.slope_stride];
    if (rules.query_documents != nullptr)
      document_ = rules.query_documents[place.batch * rules.query_document_batch +
                                        place.query * rules.query_document_stride];
    const std::int64_t head = rules.first_head + place.batch * rules.total_heads + place.head;
    drawn_ =
        static_cast<std::uint64_t>((head * rules.total_queries + position_) * rules.total_keys);
    kept_ = C(1) / (C(1) - C(rules.dropout_p));
  }

  /// The score of a key whose scaled product is `product`; -inf where the query does not see it.
  __device__ C score(C product, std::int64_t key) const {
    const std::int64_t distance = key_position(key) - position_ - rules_.query_offset;
    bool seen = distance >= rules_.least && distance <= rules_.most;
    if (rules_.query_documents != nullptr)
      seen = seen && document_ == rules_.key_documents[batch_ * rules_.key_document_batch +
                                                       key * rules_.key_document_stride];
    if (!seen) return -std::numeric_limits<C>::infinity();
    if (bias_ != nullptr) product += static_cast<C>(bias_[key * rules_.bias_strides.last]);
    if (rules_.slopes != nullptr)
      product -= static_cast<C>(slope_) * static_cast<C>(distance < 0 ? -distance : distance);
    return product;
  }

  /// What dropout multiplies the key's probability by.
  __device__ C keep(std::int64_t key) {
    if (!(rules_.dropout_p > 0.0f)) return C(1);
    const std::uint64_t index = drawn_ + static_cast<std::uint64_t>(key_position(key));
    if (!any_block_ || index / 4 != block_) {
      block_ = index / 4;
      any_block_ = true;
      values_ = rules_.random.block(block_);
    }
    const unsigned word = static_cast<unsigned>(index % 4);
    const std::uint32_t low = word == 0 ? values_[0] : values_[1];
    const std::uint32_t high = word == 2 ? values_[2] : values_[3];
    return philox_uniform(word < 2 ? low : high) >= rules_.dropout_p ? kept_ : C(0);
  }

 private:
  __device__ std::int64_t key_position(std::int64_t key) const {
    return rules_.key_positions != nullptr ? rules_.key_positions[key * rules_.key_position_stride]
                                           : rules_.key_offset + key;
  }

  const ScoreRules& rules_;
  std::int64_t batch_, position_, document_ = 0;
  const float* bias_ = nullptr;
  float slope_ = 0.0f;
  std::uint64_t drawn_;
  C kept_;
  bool any_block_ = false;
  std::uint64_t block_ = 0;
  PhiloxBlock values_{};  // drawn for four keys in a row
};

}  // namespace meshloom::kernels::cuda
