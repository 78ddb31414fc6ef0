// SPDX-License-Identifier: Apache-2.0
// A part of a call's scores, as plain data.
#pragma once

#include <cstdint>

namespace meshloom::kernels::cuda {

/// A part of all scores: some batch rows, key heads, query heads of each key head and queries, by
/// all keys, dense in that order.
struct ScorePiece {
  std::int64_t batch = 0, kv_head = 0, in_group = 0, query = 0;      ///< the first ones
  std::int64_t batches = 0, kv_heads = 0, grouped = 0, queries = 0;  ///< and how many
  std::int64_t group = 1;                                            ///< query heads of a key head
  std::int64_t keys = 0;

  std::int64_t rows() const { return batches * kv_heads * grouped * queries; }
};

}  // namespace meshloom::kernels::cuda
