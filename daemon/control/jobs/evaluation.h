// SPDX-License-Identifier: Apache-2.0
// Evaluation: the loss of a model on data, by the ranks, outside of any job.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "daemon/control/ranks/run_client.h"
#include "daemon/train/data/text_data.h"
#include "v1/evaluate_service.pb.h"

namespace meshloom::control {

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
  /// Told after every part; false ends the evaluation with Cancelled.
  using Progress = std::function<bool(const v1::EvaluateProgress&)>;

  /// `name` is one that no run of the ranks has.
  Evaluation(Executor& executor, const std::string& name) : run_(executor, name) {}

  /// Loss, perplexity, tokens, batches, seconds and rate. Throws what a verb threw, and
  /// InvalidArgument if no label counts.
  v1::Evaluation carry_out(const Work& work, const Progress& progress);

 private:
  v1::Evaluation evaluate(std::int64_t batches, const Progress& progress);

  RunClient run_;
};

}  // namespace meshloom::control
