// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/config/resolve_evaluation.h"

#include <algorithm>

#include "daemon/base/field_checks.h"
#include "daemon/train/config/config_place.h"
#include "daemon/train/config/micro_batch.h"
#include "daemon/train/config/resolve.h"
#include "daemon/train/config/resolve_plan.h"
#include "daemon/train/data/chat_data.h"
#include "daemon/train/data/run_data.h"
#include "daemon/train/files/model_source.h"
#include "planner/limits.h"

namespace meshloom::train {
namespace {

/// Opens the data, once they are made, and cuts a batch that may be cut.
void fit_batch(v1::RunConfig& config, const RunData& data) {
  if (data.validation && data.validation->size() == 0 && config.data().validation_path().empty())
    base::refuse_field("run.data.path",
                       "is needed: the {} tokens that the job validates on hold nothing to predict",
                       data.validation->tokens());
  check_enough(config, data);
  v1::TrainingConfig& training = *config.mutable_training();
  if (!training.has_micro_batch_size() && data.validation)
    training.set_global_batch_size(std::min(training.global_batch_size(), data.validation->size()));
  // One of a job that had fewer ranks.
  const std::int64_t share = rank_share(config);
  if (!training.has_micro_batch_size() || training.micro_batch_size() > share)
    training.set_micro_batch_size(share);
}

}  // namespace

v1::RunConfig resolve_evaluation_config(const v1::RunConfig& given, const ConfigPlace& place,
                                        const TokenizedText& text) {
  v1::RunConfig config = given;
  const nn::ModelConfig model =
      load_model_config(config.model(), place.data_dir, place.model_folder);
  const RunFiles files = find_run_files(config, place.data_dir, "run.data");
  resolve_chat(*config.mutable_data(), files, "run.data");
  check_document_balance(config);
  resolve_placement(config, model, place, nullptr);
  v1::TrainingConfig& training = *config.mutable_training();
  training.set_steps(0);
  constexpr const char* kBatch = "run.training.global_batch_size";
  base::check_count(kBatch, training.global_batch_size(), 1);
  base::check_at_most(kBatch, training.global_batch_size(), planner::kMostBatch);
  resolve_seq_len(training, model);
  resolve_optimizer(*config.mutable_optimizer());
  const std::filesystem::path tokenizer = tokenizer_folder(config, place.tokenizers());
  text::TokenizerCache opened;
  // A job's own is whole, whatever version has resolved it.
  if (!config.data().masked_lm().has_mask_token()) fill_masked_lm(config, model, tokenizer, opened);
  resolve_data(*config.mutable_data(), model);
  config.mutable_validation()->set_interval(1);
  TokenizedText known = text;
  known.tokenizer =
      resolve_text(*config.mutable_data(), model.vocab_size, tokenizer, opened, files, "run.data");
  const RunData data = open_run_data(config, model, files, "run.data", known);
  *config.mutable_data()->mutable_identity() = data.identity;
  fit_batch(config, data);
  resolve_step(training, 0.0);
  resolve_context_parallel(config, model, place.ranks_of_host());
  return config;
}

}  // namespace meshloom::train
