// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/config/resolve_stepped.h"

#include <algorithm>

#include "daemon/base/field_error.h"
#include "daemon/train/config/config_place.h"
#include "daemon/train/config/generation_config.h"
#include "daemon/train/config/resolve.h"
#include "daemon/train/config/resolve_plan.h"
#include "daemon/train/files/model_source.h"
#include "daemon/train/optim/parameter_groups.h"

namespace meshloom::train {

v1::RunConfig resolve_stepped_config(const v1::RunConfig& given, const ConfigPlace& place,
                                     std::vector<std::string>* warnings) {
  const auto refuse = [](bool is_given, const char* field) {
    if (is_given)
      base::refuse_field(field, "is for jobs: a run that is driven step by step has no use for it");
  };
  refuse(given.has_data(), "run.data");
  refuse(given.has_lr_scheduler(), "run.lr_scheduler");
  refuse(given.has_validation(), "run.validation");
  refuse(given.has_checkpoint(), "run.checkpoint");
  refuse(given.has_export_(), "run.export");
  refuse(given.has_sample(), "run.sample");
  refuse(given.training().steps() != 0, "run.training.steps");
  refuse(given.training().global_batch_size() != 0, "run.training.global_batch_size");
  refuse(given.training().has_peak_flops(), "run.training.peak_flops");
  refuse(given.training().has_early_stopping(), "run.training.early_stopping");
  refuse(!given.training().watch().empty(), "run.training.watch");
  refuse(given.has_metrics(), "run.metrics");
  v1::RunConfig config = given;
  const nn::ModelConfig model = load_model_config(config.model(), place.data_dir,
                                                  place.model_folder, base::own_disk(), warnings);
  resolve_placement(config, model, place, warnings);
  v1::TrainingConfig& training = *config.mutable_training();
  resolve_seq_len(training, model);
  if (!training.has_micro_batch_size())
    training.set_micro_batch_size(
        std::max<std::int64_t>(1, kMicroBatchTokens / training.seq_len()));
  resolve_step(training, 0.0);
  resolve_context_parallel(config, model, place.ranks_of_host());
  resolve_optimizer(*config.mutable_optimizer());
  check_parameter_patterns(config, model);
  if (model.is_causal())
    note_end_tokens(config.model(), place.data_dir, place.model_folder, model.vocab_size, warnings);
  return config;
}

}  // namespace meshloom::train
