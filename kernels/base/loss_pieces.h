// SPDX-License-Identifier: Apache-2.0
// How many rows of logits the output loss holds at a time: what kernels do and estimates count.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/base/integer_math.h"

namespace meshloom::kernels {

/// Room for one chunk of logits in float32 and float64: 256 rows of GPT-2's 50257 columns. Larger
/// chunks read and write the gradient of the weight fewer times (once per chunk).
inline constexpr std::int64_t kLogitsBytes = 52 << 20;
/// If the products run in bfloat16, the gradient of the weight is written once per block of the
/// logits' gradients, half as large as logits, and a chunk of logits is but a way to them: it stays
/// in the last-level cache.
inline constexpr std::int64_t kLogitGradientBytes = 40 << 20;
inline constexpr std::int64_t kPassingLogitsBytes = 24 << 20;
/// Columns of those gradients that go through the products at a time, so that both products find
/// them in the cache.
inline constexpr std::int64_t kLogitPanelColumns = 8192;
/// Room for one chunk of logits on a CUDA device, in float32 and float64; a chunk is a block there,
/// and gradients in bfloat16 lie beside it, half as large.
inline constexpr std::int64_t kDeviceLogitsBytes = 512 << 20;

/// Returns the number of rows of one piece of at most so many bytes, in as few pieces of nearly
/// equal size as fit.
inline std::int64_t rows_per_piece(std::int64_t rows, std::int64_t row_bytes,
                                   std::int64_t piece_bytes) {
  const std::int64_t most =
      std::clamp<std::int64_t>(piece_bytes / std::max<std::int64_t>(1, row_bytes), 1, rows);
  const std::int64_t pieces = divide_up(rows, most);
  return divide_up(rows, pieces);
}

/// So many rows of the output loss are there at a time: rows of logits, and of gradients that go
/// through the products together (OutputLossPlan::chunk and block).
struct LossPieces {
  std::int64_t block = 0;
  std::int64_t chunk = 0;
};

/// Computes the pieces on the host, for at least 1 row of `row_bytes` of logits. `halves`:
/// gradients of the logits are half as large as these, and have memory of their own.
inline LossPieces host_loss_pieces(std::int64_t rows, std::int64_t row_bytes, bool halves) {
  if (!halves) {
    const std::int64_t chunk = rows_per_piece(rows, row_bytes, kLogitsBytes);
    return {chunk, chunk};
  }
  const std::int64_t block = rows_per_piece(rows, row_bytes / 2, kLogitGradientBytes);
  return {block, rows_per_piece(block, row_bytes, kPassingLogitsBytes)};
}

/// Does the same on a CUDA device, whatever the dtype of the gradients.
inline LossPieces device_loss_pieces(std::int64_t rows, std::int64_t row_bytes) {
  const std::int64_t chunk = rows_per_piece(rows, row_bytes, kDeviceLogitsBytes);
  return {chunk, chunk};
}

}  // namespace meshloom::kernels
