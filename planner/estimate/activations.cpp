// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/activations.h"

#include <algorithm>

#include "kernels/base/loss_pieces.h"
#include "planner/estimate/tensor_lives.h"

namespace meshloom::planner {
namespace {

/// Counts what tensor/ops/output_loss takes, in bfloat16 on a CPU that has its products or on a
/// device: chunks of logits, two of them if the vocabulary is sharded and there are several, and
/// gradients; and losses and sums of exponentials of the rows.
std::int64_t loss_bytes(const ModelPass& pass, DType dtype, DeviceKind device) {
  constexpr std::int64_t kFloat = 4;
  if (pass.loss_rows == 0) return 0;
  const std::int64_t row = pass.vocab * kFloat;
  const bool halves = dtype == DType::kBFloat16;
  const kernels::LossPieces pieces = device == DeviceKind::kCpu
                                         ? kernels::host_loss_pieces(pass.loss_rows, row, halves)
                                         : kernels::device_loss_pieces(pass.loss_rows, row);
  const bool two = pass.vocab < pass.whole_vocab && pieces.chunk < pass.loss_rows;
  return 2 * pass.loss_rows * kFloat + (two ? 2 : 1) * pieces.chunk * row +
         (halves ? pieces.block * (row / 2) : 0);
}

}  // namespace

ActivationEstimate estimate_activations(const ModelPass& pass, ActivationCheckpoint checkpointing,
                                        DType dtype, DeviceKind device) {
  const TensorLives lives(pass, checkpointing, static_cast<std::int64_t>(dtype_size(dtype)),
                          loss_bytes(pass, dtype, device));
  ActivationEstimate a{.behind_blocks = lives.behind_blocks(), .peak = lives.peak()};
  for (std::size_t r = 0; r < lives.runs().size(); ++r) {
    if (!pass.graph->runs[r].is_block) continue;
    a.block = std::max(a.block, lives.runs()[r].kept);
    a.boundary = std::max(a.boundary, lives.runs()[r].boundary);
  }
  return a;
}

}  // namespace meshloom::planner
