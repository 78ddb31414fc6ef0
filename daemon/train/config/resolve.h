// SPDX-License-Identifier: Apache-2.0
// The config of a job, with every default and check; and the parts of it that other configs share.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "daemon/nn/models/model_config.h"
#include "daemon/train/config/config_place.h"
#include "daemon/train/data/text_data.h"
#include "v1/config.pb.h"

namespace meshloom::train {

/// Fills in every default and checks everything that can be checked without other ranks: sizes,
/// files, dtype, mesh against world_size, plans that are not offered. Throws InvalidArgument (or
/// Unimplemented, NotFound) whose metadata has "field", the path of the wrong field
/// ("run.training.steps"). What is no error but may be a mistake, such as a pattern of
/// run.plan.styles that matches no module, is added to `warnings`.
v1::RunConfig resolve_run_config(const v1::RunConfig& given, const ConfigPlace& place,
                                 std::vector<std::string>* warnings = nullptr);

/// Resolves device, mesh, plan and dtype of a config for this model, and checks that the plan fits
/// the model; what may be a mistake is added to `warnings`, which may be null. Throws as
/// resolve_run_config.
void resolve_placement(v1::RunConfig& config, const nn::ModelConfig& model,
                       const ConfigPlace& place, std::vector<std::string>* warnings);
/// Throws if the ranks of cp are to share the work of documents that are not told apart.
void check_document_balance(const v1::RunConfig& config);

/// Fills in the defaults of an optimizer's config and checks it (fields "run.optimizer. ..").
void resolve_optimizer(v1::OptimizerConfig& optimizer);

/// Fills in seq_len and checks it and micro_batch_size, which may be 0.
void resolve_seq_len(v1::TrainingConfig& training, const nn::ModelConfig& model);
/// Checks how many tokens a resolved micro batch computes at once, and fills in and checks max_norm
/// and deterministic.
void resolve_step(v1::TrainingConfig& training, double default_max_norm);

/// Checks the settings of a job that was resolved and then changed (v1::JobSettings), and fills
/// them in; whether there are data to validate on, too. `model_folder`: as RunFolders::model.
void resolve_settings(v1::RunConfig& config, const std::filesystem::path& data_dir,
                      const std::filesystem::path& model_folder);

/// Calls fill_masked_tokens for BERT, before resolve_data checks that its tokens are there.
void fill_masked_lm(v1::RunConfig& config, const nn::ModelConfig& model,
                    const std::filesystem::path& tokenizer, text::TokenizerCache& opened);
/// Fills in the defaults of a section `data` and checks it; `field` is its path in messages.
void resolve_data(v1::DataConfig& data, const nn::ModelConfig& model,
                  const std::string& field = "run.data");

}  // namespace meshloom::train
