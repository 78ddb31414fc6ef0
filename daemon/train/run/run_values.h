// SPDX-License-Identifier: Apache-2.0
// What the verbs of a run take and give beside messages: batches by their place, losses, a step's
// output, a job's progress.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/train/data/chat_samples.h"
#include "daemon/train/run/core_times.h"
#include "v1/config.pb.h"
#include "v1/job.pb.h"
#include "v1/step.pb.h"

namespace meshloom::train {

/// LossSum is the loss of a batch.
struct LossSum {
  double loss = 0.0;    ///< summed over its labels
  double labels = 0.0;  ///< that count
  double bytes = 0.0;   ///< of text that these stand for; 0: not known
  double tokens = 0.0;  ///< that were computed: all but padding
};

/// Throws InvalidArgument if no label counts.
double mean_loss(std::span<const LossSum> batches);
/// Returns the loss in bits by byte of text; nothing where the bytes are not known.
std::optional<double> bits_per_byte(std::span<const LossSum> batches);

/// TrainingBatch is the global batch of a run's own data that begins at a place of the training
/// (BatchLoader), with all gradients of an optimizer step: the mean over its labels.
struct TrainingBatch {
  std::int64_t first_sample = 0;
};

/// ValidationBatches names global batches of one of config.validation.sets, or (empty) of the
/// validation data of config.data: always the same ones.
struct ValidationBatches {
  std::string set = {};
  std::int64_t first = 0, count = 1;
};

/// The output says what an optimizer step did and cost on this rank.
struct StepOutput {
  v1::OptimStepOutput values;
  double step_seconds = 0.0;  ///< since the first forward_backward of the step began
  /// These are the times of this rank's threads in step_seconds; of most short steps they are not
  /// known.
  std::optional<CoreTimes> core_times = std::nullopt;
  std::map<std::string, double> phase_seconds;  ///< data, forward, backward, reduce, optimizer, ...
  std::vector<v1::CollectiveMetrics> collectives;  ///< since the step before
};

struct DataSize {
  std::int64_t tokens = 0, samples = 0;
  std::optional<ChatCuts> chat = std::nullopt;  ///< of the samples, where they are conversations
};

/// A job has this in its checkpoints beside weights and optimizer.
struct JobProgress {
  std::int64_t data_position = 0;  ///< samples drawn
  std::int64_t tokens = 0;         ///< trained on
  v1::ValidationProgress validation = {};
  std::optional<v1::RunConfig> edited_config = {};  ///< of a job that was edited
};

}  // namespace meshloom::train
