// SPDX-License-Identifier: Apache-2.0
// Evaluation: the loss of a model on data, by the ranks, outside of any job.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "daemon/control/ranks/run_client.h"
#include "daemon/train/data/text_data.h"
#include "v1/evaluate_service.pb.h"

namespace meshloom::control {

/// The first batches that a run validates on, part by part: samples and a stop wait for no more
/// than about 100 ms.
class EvaluationParts {
 public:
  /// `run` outlives it. At most so many batches, of a validation set (train::ValidationBatches).
  EvaluationParts(const RunClient& run, std::int64_t most, std::string set = {})
      : run_(run), most_(most), set_(std::move(set)) {}

  /// There were fewer.
  bool data_ended() const { return data_ended_; }
  bool done() const { return data_ended_ || batches_ >= most_; }
  /// The losses of the next part. Waits for the ranks; throws what the verb throws.
  v1::DataLoss next();

 private:
  const RunClient& run_;
  const std::int64_t most_;
  const std::string set_;
  std::int64_t batches_ = 0;
  std::int64_t at_once_ = 1;
  bool data_ended_ = false;
};

/// Makes a run for it on the ranks, which the caller has (RanksTurn), and deletes it again. Used by
/// one thread.
class Evaluation {
 public:
  struct Work {
    v1::RunConfig config;                ///< resolved; what it validates on is evaluated
    std::filesystem::path model_folder;  ///< that config.model.name stands for
    std::filesystem::path data_dir;
    std::filesystem::path tokenizer_folder;  ///< that config.data.tokenizer means; may be empty
    train::TokenizedText text;               ///< tokens of the config's text
    std::int64_t batches = 0;                ///< at most; 0: all
  };
  /// Told after every part; what it throws ends the evaluation.
  using Progress = std::function<void(const v1::EvaluateProgress&)>;

  /// `name` is one that no run of the ranks has.
  Evaluation(Executor& executor, const std::string& name) : run_(executor, name) {}

  /// Loss, perplexity, tokens, batches, seconds and rate. Throws what a verb or
  /// `progress` threw, and InvalidArgument if no label counts.
  v1::Evaluation carry_out(const Work& work, const Progress& progress);

 private:
  v1::Evaluation evaluate(std::int64_t batches, const Progress& progress);

  RunClient run_;
};

}  // namespace meshloom::control
