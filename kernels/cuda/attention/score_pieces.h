// SPDX-License-Identifier: Apache-2.0
// How all scores of a call are cut into pieces that fit the workspace.
#pragma once

#include <vector>

#include "kernels/cuda/attention/score_piece.h"

namespace meshloom::kernels::cuda {

struct ScoreSizes {
  std::int64_t batch = 0, kv_heads = 0, group = 0, queries = 0, keys = 0;
};

/// Pieces of at most `most` scores, or of one query, in the order of batch rows, key heads, query
/// heads and queries. A piece of several batch rows has all key heads, one of several key heads
/// their whole groups, one of several query heads all queries.
std::vector<ScorePiece> score_pieces(const ScoreSizes& sizes, std::int64_t most);

}  // namespace meshloom::kernels::cuda
