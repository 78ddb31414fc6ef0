// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention/score_pieces.h"

#include <algorithm>

namespace meshloom::kernels::cuda {

std::vector<ScorePiece> score_pieces(const ScoreSizes& sizes, std::int64_t most) {
  // What one step of each dim takes, and how many steps fit together.
  const auto fit = [most](std::int64_t count, std::int64_t each) {
    return std::clamp<std::int64_t>(most / std::max<std::int64_t>(each, 1), 1,
                                    std::max<std::int64_t>(count, 1));
  };
  const std::int64_t head = sizes.queries * sizes.keys, unit = sizes.group * head;
  const std::int64_t queries = fit(sizes.queries, sizes.keys);
  const std::int64_t grouped = queries == sizes.queries ? fit(sizes.group, head) : 1;
  const std::int64_t kv_heads = grouped == sizes.group ? fit(sizes.kv_heads, unit) : 1;
  const std::int64_t batches =
      kv_heads == sizes.kv_heads ? fit(sizes.batch, sizes.kv_heads * unit) : 1;
  std::vector<ScorePiece> pieces;
  for (std::int64_t b = 0; b < sizes.batch; b += batches)
    for (std::int64_t h = 0; h < sizes.kv_heads; h += kv_heads)
      for (std::int64_t g = 0; g < sizes.group; g += grouped)
        for (std::int64_t q = 0; q < sizes.queries; q += queries) {
          ScorePiece piece;
          piece.batch = b;
          piece.kv_head = h;
          piece.in_group = g;
          piece.query = q;
          piece.batches = std::min(batches, sizes.batch - b);
          piece.kv_heads = std::min(kv_heads, sizes.kv_heads - h);
          piece.grouped = std::min(grouped, sizes.group - g);
          piece.queries = std::min(queries, sizes.queries - q);
          piece.group = sizes.group;
          piece.keys = sizes.keys;
          pieces.push_back(piece);
        }
  return pieces;
}

}  // namespace meshloom::kernels::cuda
