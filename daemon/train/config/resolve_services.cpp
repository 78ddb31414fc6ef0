// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/config/resolve_services.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "daemon/base/field_checks.h"
#include "daemon/base/given_number.h"
#include "daemon/base/nearest_name.h"
#include "daemon/train/config/chat_prompt.h"
#include "daemon/train/config/dtype_choice.h"
#include "daemon/train/config/sampling_params.h"
#include "daemon/train/data/chat_data.h"
#include "planner/limits.h"

namespace meshloom::train {
namespace {

namespace fs = std::filesystem;

constexpr int kMostValidationSets = 16;
constexpr int kMostPrompts = 16;
constexpr int kMostWatched = 16;

bool is_set_name(const std::string& name) {
  const auto is_plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  return !name.empty() && name.size() <= 63 && is_plain(name[0]) &&
         std::all_of(name.begin(), name.end(),
                     [&](char c) { return is_plain(c) || c == '_' || c == '-'; });
}

void resolve_validation(v1::ValidationConfig& validation) {
  base::check_count("run.validation.interval", validation.interval(), 0);
  base::check_given_positive("run.validation.steps", validation.has_steps(), validation.steps(),
                             "10, or say interval: 0 to validate never");
  base::check_at_most("run.validation.steps", validation.steps(), planner::kMostValidationSteps);
  if (!validation.has_steps()) validation.set_steps(10);
  if (validation.sets().empty()) return;
  constexpr const char* kSets = "run.validation.sets";
  if (validation.interval() == 0)
    base::refuse_field(kSets,
                       "are given, but run.validation.interval is 0: they would never be "
                       "evaluated");
  if (validation.sets_size() > kMostValidationSets)
    base::refuse_field(kSets, "has {} entries, at most {} are allowed", validation.sets_size(),
                       kMostValidationSets);
  std::set<std::string> names;
  for (int i = 0; i < validation.sets_size(); ++i) {
    const v1::ValidationSet& set = validation.sets(i);
    const std::string field = fmt::format("{}[{}].", kSets, i);
    if (!is_set_name(set.name()))
      base::refuse_field(field + "name", "\"{}\" is not valid, expected [a-z0-9][a-z0-9_-]{{0,62}}",
                         set.name());
    if (!names.insert(set.name()).second)
      base::refuse_field(field + "name", "\"{}\" is the name of two sets", set.name());
  }
}

/// What `field` asks for needs validations; `set`, that of `section`, is one of them.
void check_validated(const v1::ValidationConfig& validation, const std::string& field,
                     const std::string& section, const std::string& set) {
  if (validation.interval() == 0)
    base::refuse_field(field, "needs validations, but run.validation.interval is 0");
  if (set.empty()) return;
  std::vector<std::string> names;
  for (const v1::ValidationSet& known : validation.sets()) names.push_back(known.name());
  if (std::find(names.begin(), names.end(), set) != names.end()) return;
  const std::string near = base::nearest_name(set, names);
  base::refuse_field(section + ".validation_set", "\"{}\" is none of run.validation.sets{}", set,
                     !near.empty()   ? fmt::format(", did you mean \"{}\"?", near)
                     : names.empty() ? ", of which there are none"
                                     : fmt::format(": {}", fmt::join(names, ", ")));
}

void resolve_metrics(v1::MetricsConfig& metrics) {
  base::check_given_positive("run.metrics.interval", metrics.has_interval(), metrics.interval(),
                             "1, or say tensorboard: false for no event files");
  if (!metrics.has_tensorboard()) metrics.set_tensorboard(true);
  if (!metrics.has_interval()) metrics.set_interval(1);
}

void check_watch(const v1::TrainingConfig& training) {
  constexpr const char* kWatch = "run.training.watch";
  if (training.watch_size() > kMostWatched)
    base::refuse_field(kWatch, "has {} entries, at most {} are allowed", training.watch_size(),
                       kMostWatched);
  for (int i = 0; i < training.watch_size(); ++i) {
    const v1::WatchCondition& watch = training.watch(i);
    const std::string field = fmt::format("{}[{}]", kWatch, i);
    const int limits = static_cast<int>(watch.has_loss_above()) +
                       static_cast<int>(watch.has_grad_norm_above()) +
                       static_cast<int>(watch.has_tokens_per_second_below());
    if (limits != 1)
      base::refuse_field(field,
                         "has {} limits, expected one of loss_above, grad_norm_above and "
                         "tokens_per_second_below",
                         limits);
    if (watch.has_loss_above())
      base::check_range(field + ".loss_above", watch.loss_above(), 0.0, 1e30);
    if (watch.has_grad_norm_above())
      base::check_range(field + ".grad_norm_above", watch.grad_norm_above(), 0.0, 1e30);
    if (watch.has_tokens_per_second_below()) {
      const double share = watch.tokens_per_second_below();
      if (!(share > 0.0 && share < 1.0))
        base::refuse_field(field + ".tokens_per_second_below",
                           "must be above 0 and below 1, a share of the median, got {}", share);
    }
  }
}

void resolve_checkpoint(v1::RunConfig& config, std::vector<std::string>* warnings) {
  v1::CheckpointConfig& checkpoint = *config.mutable_checkpoint();
  base::check_count("run.checkpoint.interval", checkpoint.interval(), 0);
  base::check_count("run.checkpoint.keep_latest_k", checkpoint.keep_latest_k(), 0);
  if (!checkpoint.has_keep_latest_k()) checkpoint.set_keep_latest_k(2);
  if (!checkpoint.has_fallback()) checkpoint.set_fallback(true);
  base::check_count("run.checkpoint.keep_best", checkpoint.keep_best(), 0);
  if (checkpoint.keep_best() > 0)
    check_validated(config.validation(), "run.checkpoint.keep_best", "run.checkpoint",
                    checkpoint.validation_set());
  else if (!checkpoint.validation_set().empty())
    base::refuse_field("run.checkpoint.validation_set",
                       "says whose losses are the best, but run.checkpoint.keep_best is 0");
  const bool keeps = saves_last(checkpoint) || checkpoint.interval() > 0 ||
                     checkpoint.keep_best() > 0 || !config.export_().hf_folder().empty();
  if (!keeps && warnings)
    warnings->emplace_back(
        "run.checkpoint.last is false, and nothing else keeps weights (interval, keep_best or "
        "run.export.hf_folder): those of the whole training are lost when the job ends");
}

}  // namespace

void resolve_services(v1::RunConfig& config, std::vector<std::string>* warnings) {
  resolve_validation(*config.mutable_validation());
  if (config.training().has_early_stopping()) {
    const std::string field = "run.training.early_stopping";
    const v1::EarlyStoppingConfig& stopping = config.training().early_stopping();
    base::check_count(field + ".patience", stopping.patience(), 1);
    base::check_range(field + ".min_delta", stopping.min_delta(), 0.0, 1e30);
    check_validated(config.validation(), field, field, stopping.validation_set());
  }
  check_watch(config.training());
  resolve_metrics(*config.mutable_metrics());
  v1::ExportConfig& exported = *config.mutable_export_();
  if (exported.dtype().empty()) exported.set_dtype("float32");
  if (const auto& offered = offered_export_dtypes();
      std::find(offered.begin(), offered.end(), exported.dtype()) == offered.end())
    base::refuse_field("run.export.dtype", "must be one of {}, got \"{}\"",
                       fmt::join(offered, ", "), exported.dtype());
  const fs::path folder(exported.hf_folder());
  if (!folder.empty() &&
      (folder.is_absolute() || std::find(folder.begin(), folder.end(), "..") != folder.end()))
    base::refuse_field("run.export.hf_folder", "\"{}\" must be a name below the job's folder",
                       exported.hf_folder());
  resolve_checkpoint(config, warnings);
}

void check_sample_interval(const v1::SampleConfig& sample) {
  base::check_count("run.sample.interval", sample.interval(), 0);
  const bool is_drawn =
      !sample.prompt().empty() || !sample.prompts().empty() || !sample.token_ids().empty();
  if (sample.interval() > 0 && !is_drawn)
    base::refuse_field("run.sample.prompts",
                       "are needed to draw samples every {} steps: there is no prompt, and there "
                       "are no token_ids",
                       sample.interval());
}

namespace {

/// Whose prompts are what users say.
void resolve_chat_sample(v1::RunConfig& config, PromptLimits& limits, const fs::path& tokenizer,
                         const fs::path& data_dir) {
  v1::SampleConfig& sample = *config.mutable_sample();
  if (!sample.token_ids().empty())
    base::refuse_field("run.sample.token_ids", "are no conversation, and run.sample.chat is true");
  set_chat_of_job(limits, config.data(), tokenizer, data_dir);
  for (const auto& [prompt, field] : user_prompts(sample)) user_prompt(prompt, limits, field);
  resolve_sampling_params(*sample.mutable_params(), "run.sample.params");
}

}  // namespace

void resolve_sample(v1::RunConfig& config, const nn::ModelConfig& model, const fs::path& tokenizer,
                    const fs::path& data_dir, text::TokenizerCache& opened) {
  v1::SampleConfig& sample = *config.mutable_sample();
  if (!model.is_causal())
    base::refuse_field("run.sample", "is for causal models; BERT does not generate");
  const bool has_text = !sample.prompt().empty() || !sample.prompts().empty();
  check_sample_interval(sample);
  base::check_at_most("run.sample.prompts", sample.prompts_size(), kMostPrompts - 1);
  PromptLimits limits = prompt_limits(model);
  if (has_text) add_tokenizer(limits, tokenizer, opened);
  if (!sample.has_chat() && has_text && sample.token_ids().empty() &&
      renders_chat(config.data(), tokenizer, data_dir))
    sample.set_chat(true);
  if (sample.chat()) return resolve_chat_sample(config, limits, tokenizer, data_dir);
  if (!sample.prompt().empty() || !sample.token_ids().empty())
    prompt_tokens(sample.prompt(), sample.token_ids(), limits, "run.sample.");
  for (int i = 0; i < sample.prompts_size(); ++i)
    text_prompt_tokens(sample.prompts(i), limits, fmt::format("run.sample.prompts[{}]", i));
  resolve_sampling_params(*sample.mutable_params(), "run.sample.params");
}

}  // namespace meshloom::train
