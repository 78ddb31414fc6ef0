// SPDX-License-Identifier: Apache-2.0
// From the log-probs that ranks computed to what a client gets.
#pragma once

#include <vector>

#include "daemon/train/loss/loss_batch.h"
#include "daemon/train/run/model_run.h"
#include "daemon/train/run/run_mesh.h"

namespace meshloom::train {

/// Returns the log-probs of a datum's targets, of row `row` of a micro batch.
std::vector<float> row_log_probs(const TokenBatch& batch, std::int64_t row, const v1::Datum& datum,
                                 std::span<const float> log_probs);

/// Returns on rank 0 those of every datum of a batch, in their order; nothing on the others. Every
/// rank of the world calls it with what it has of the batch (rank 0: everything), how it was split
/// and what its own micro batches gave. One gather, in which one of the ranks that share samples
/// speaks.
std::vector<std::vector<float>> gather_log_probs(const RunMesh& mesh, const v1::LossBatch& batch,
                                                 const BatchSplit& split,
                                                 const std::vector<TokenBatch>& mine,
                                                 const LogProbs& log_probs);

/// Makes the function of the loss's value and gradient of a micro batch. What is not finite stays
/// so (loss_output finds it). `batch` and `loss` outlive the function.
LossFunction loss_function(const TokenLoss& loss, const v1::LossBatch& batch);

/// Throws NumericError for the first datum that is not finite (check_finite).
v1::LossOutput loss_output(const TokenLoss& loss, const v1::LossBatch& batch,
                           const std::vector<std::vector<float>>& log_probs);

}  // namespace meshloom::train
