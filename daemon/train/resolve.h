// SPDX-License-Identifier: Apache-2.0
// What a resolved config stands for: the parts of a run that need no ranks.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "daemon/nn/models/model_config.h"
#include "daemon/train/data/dataset.h"
#include "daemon/train/data/text_data.h"
#include "v1/config.pb.h"

namespace meshloom::train {

/// Opened training and validation data.
struct RunData {
  /// Both null, and no sets, if there is text that is not tokenized yet.
  std::shared_ptr<const Dataset> training;
  std::shared_ptr<const Dataset> validation;                    ///< may have no samples
  std::vector<std::shared_ptr<const Dataset>> validation_sets;  ///< config.validation().sets()
  v1::DataIdentity identity;                                    ///< of data.path
};

/// Fills in the defaults of an optimizer's config and checks it (fields "run.optimizer. ..").
void resolve_optimizer(v1::OptimizerConfig& optimizer);

/// Fills in seq_len and checks it and micro_batch_size, which may be 0.
void resolve_seq_len(v1::TrainingConfig& training, const nn::ModelConfig& model);
/// Checks how many tokens a resolved micro batch computes at once, and fills in and checks max_norm
/// and deterministic.
void resolve_step(v1::TrainingConfig& training, double default_max_norm);

/// Checks the settings of a job that was resolved and then changed (v1::JobSettings), and fills
/// them in; whether there are data to validate on, too. `model_folder`: as in RunOptions.
void resolve_settings(v1::RunConfig& config, const std::filesystem::path& data_dir,
                      const std::filesystem::path& model_folder);

/// Of BERT: fill_masked_tokens, before resolve_data checks that they are there.
void fill_masked_lm(v1::RunConfig& config, const nn::ModelConfig& model,
                    const std::filesystem::path& tokenizer, text::TokenizerCache& opened);
/// Fills in the defaults of a section `data` and checks it; `field` is its path in messages.
void resolve_data(v1::DataConfig& data, const nn::ModelConfig& model,
                  const std::string& field = "run.data");
/// Opens and splits what config.data, resolved, names. seq_len is filled in. Throws with the field
/// in the metadata. `text` says where the tokens of text are that is tokenized; without them there
/// is no more than the identity. The files are looked for in `data_dir`, unless they are given.
RunData open_run_data(const v1::RunConfig& config, const nn::ModelConfig& model,
                      const std::filesystem::path& data_dir, const std::string& field = "run.data",
                      const TokenizedText& text = {}, base::Disk& disk = base::own_disk());
RunData open_run_data(const v1::RunConfig& config, const nn::ModelConfig& model,
                      const RunFiles& files, const std::string& field, const TokenizedText& text,
                      base::Disk& disk = base::own_disk());
/// Throws with the field if the data hold fewer samples than a step of a config that has any, or
/// nothing to predict where it validates. Data whose tokens are not made yet may.
void check_enough(const v1::RunConfig& config, const RunData& data);

}  // namespace meshloom::train
