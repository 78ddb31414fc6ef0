// SPDX-License-Identifier: Apache-2.0
// A LossBatch that was checked against a model, and its part that a rank computes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "daemon/nn/models/model_config.h"
#include "daemon/train/data/token_batch.h"
#include "daemon/train/loss/losses.h"
#include "v1/step.pb.h"

namespace meshloom::train {

struct TokenizedText;

/// A batch has to fit these limits.
struct LossBatchLimits {
  std::int64_t vocab_size = 0;
  std::int64_t positions = 0;         ///< of the model
  std::int64_t tokens = 0;            ///< of the longest datum
  std::int64_t micro_batch_size = 1;  ///< of batches that give none
};

/// Throws InvalidArgument with the field inside the batch ("data[3].targets[17]") for what does not
/// fit the loss, the model or itself. Of a reference, what needs no file is checked. Returns the
/// loss.
TokenLoss check_loss_batch(const v1::LossBatch& batch, const LossBatchLimits& limits);

/// Returns the number of targets that each token of a datum has.
inline std::int64_t targets_per_token(const v1::Datum& datum) {
  return datum.has_targets_per_token() ? datum.targets_per_token() : 1;
}

/// A rank has to know this of a batch of which it has a part of the data.
struct WholeBatch {
  std::int64_t samples = 0;
  std::int64_t counted_tokens = 0;  ///< as in losses.h, of all data
  bool several_targets = false;     ///< some datum has more than one target a token
  /// A batch that names text has its tokens here; null for other data.
  std::shared_ptr<const TokenizedText> text = nullptr;
};
/// Describes a batch that was checked and has all of its data.
WholeBatch whole_batch(const TokenLoss& loss, const v1::LossBatch& batch);

/// Returns the batch's own micro_batch_size, else the run's.
inline std::int64_t micro_batch_size_of(const v1::LossBatch& batch, std::int64_t of_run) {
  return batch.has_micro_batch_size() ? batch.micro_batch_size() : of_run;
}

struct BatchSplit {
  std::int64_t samples = 0;           ///< of the batch on all ranks
  std::int64_t micro_batch_size = 1;  ///< samples of a rank at once
  std::int64_t ranks = 1;             ///< that have other samples: dp x fsdp
  std::int64_t first_sample = 0;      ///< samples since the last optimizer step
  /// A model that sees both sides must not see padding, and a plan may balance documents.
  bool documents = false;
};

/// Returns rank `rank`'s micro batches, as many on every rank and possibly without rows (BatchPlan:
/// the samples and their order are the same on every mesh): data side by side, padded at the end to
/// the longest. Padding has ignored labels, weight 0, and where there are documents one of its own.
/// Weights are those of cross_entropy with one target a token. `batch` has the data of all ranks,
/// or those of this one (rank_part).
std::vector<TokenBatch> split_batch(const v1::LossBatch& batch, const BatchSplit& split,
                                    std::int64_t rank);

}  // namespace meshloom::train
