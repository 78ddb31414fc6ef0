// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/activations.h"

#include <algorithm>

#include "kernels/base/loss_pieces.h"
#include "planner/estimate/tensor_lives.h"

namespace meshloom::planner {
namespace {

/// As tensor/ops/output_loss takes memory, in bfloat16 on a CPU that has its products: chunks of
/// logits, two of them if the vocabulary is sharded and there are several, and gradients; and
/// losses and sums of exponentials of the rows.
std::int64_t loss_bytes(const ModelPass& pass, DType dtype) {
  constexpr std::int64_t kFloat = 4;
  const std::int64_t row = pass.vocab * kFloat, sums = 2 * pass.loss_rows * kFloat;
  const auto chunks = [&](std::int64_t rows) {
    return (pass.vocab < pass.whole_vocab && rows < pass.loss_rows ? 2 : 1) * rows * row;
  };
  if (dtype != DType::kBFloat16)
    return sums + chunks(kernels::rows_per_piece(pass.loss_rows, row, kernels::kLogitsBytes));
  const std::int64_t block =
      kernels::rows_per_piece(pass.loss_rows, row / 2, kernels::kLogitGradientBytes);
  return sums + block * (row / 2) +
         chunks(kernels::rows_per_piece(block, row, kernels::kPassingLogitsBytes));
}

}  // namespace

ActivationEstimate estimate_activations(const ModelPass& pass, ActivationCheckpoint checkpointing,
                                        DType dtype) {
  const TensorLives lives(pass, checkpointing, static_cast<std::int64_t>(dtype_size(dtype)),
                          loss_bytes(pass, dtype));
  ActivationEstimate a{.behind_blocks = lives.behind_blocks(), .peak = lives.peak()};
  for (std::size_t r = 0; r < lives.runs().size(); ++r) {
    if (!pass.graph->runs[r].is_block) continue;
    a.block = std::max(a.block, lives.runs()[r].kept);
    a.boundary = std::max(a.boundary, lives.runs()[r].boundary);
  }
  return a;
}

}  // namespace meshloom::planner
