// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/activations.h"

#include "kernels/base/loss_pieces.h"
#include "planner/estimate/tensor_lives.h"

namespace meshloom::planner {
namespace {

/// As tensor/ops/output_loss takes memory, in bfloat16 on a CPU that has its products: chunks of
/// logits, two of them if the vocabulary is sharded and there are several, and gradients; and
/// losses and sums of exponentials of the rows.
std::int64_t loss_bytes(const LocalModel& local) {
  constexpr std::int64_t kFloat = 4;
  const ModelPass& pass = local.pass;
  const std::int64_t row = pass.vocab * kFloat, sums = 2 * pass.loss_rows * kFloat;
  const auto chunks = [&](std::int64_t rows) {
    return (pass.vocab < pass.whole_vocab && rows < pass.loss_rows ? 2 : 1) * rows * row;
  };
  if (local.plan.dtype != DType::kBFloat16)
    return sums + chunks(kernels::rows_per_piece(pass.loss_rows, row, kernels::kLogitsBytes));
  const std::int64_t block =
      kernels::rows_per_piece(pass.loss_rows, row / 2, kernels::kLogitGradientBytes);
  return sums + block * (row / 2) +
         chunks(kernels::rows_per_piece(block, row, kernels::kPassingLogitsBytes));
}

}  // namespace

ActivationEstimate estimate_activations(const LocalModel& local) {
  const std::vector<GraphRun>& runs = local.pass.graph->runs;
  const ActivationCheckpoint mode = local.plan.checkpointing;
  const std::int64_t loss = loss_bytes(local);
  const auto lives = [&] { return TensorLives(local.pass, mode, local.element_bytes, loss); };
  // Once to see what each block keeps, and once with what all the others like it keep.
  TensorLives one = lives();
  one.walk(std::vector<std::int64_t>(runs.size(), 0));
  ActivationEstimate a;
  std::vector<std::int64_t> beside;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const RunLives& kept = one.runs()[r];
    const bool checkpointed = runs[r].is_block && mode != ActivationCheckpoint::kNone;
    beside.push_back((runs[r].times - 1) * (checkpointed ? kept.boundary : kept.kept));
    if (!runs[r].is_block) continue;
    a.block = std::max(a.block, kept.kept);
    a.boundary = std::max(a.boundary, kept.boundary);
  }
  TensorLives all = lives();
  all.walk(beside);
  a.behind_blocks = all.behind_blocks();
  a.peak = all.peak();
  return a;
}

}  // namespace meshloom::planner
