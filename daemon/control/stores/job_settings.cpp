// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/job_settings.h"

#include <fmt/ranges.h>
#include <google/protobuf/util/field_mask_util.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <vector>

#include "daemon/base/field_error.h"
#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

using google::protobuf::util::FieldMaskUtil;

constexpr const char* kEarlyStopping = "run.training.early_stopping";
constexpr const char* kLr = "run.optimizer.lr";

/// The fields that may change.
constexpr const char* kEditable[] = {
    "run.training.steps",
    kEarlyStopping,
    "run.training.early_stopping.patience",
    "run.training.early_stopping.min_delta",
    "run.training.early_stopping.validation_set",
    kLr,
    "run.lr_scheduler",
    "run.lr_scheduler.warmup_steps",
    "run.lr_scheduler.decay_type",
    "run.lr_scheduler.decay_ratio",
    "run.lr_scheduler.min_lr_factor",
    "run.validation.interval",
    "run.validation.steps",
    "run.checkpoint.interval",
    "run.checkpoint.keep_latest_k",
    "run.checkpoint.keep_best",
    "run.checkpoint.validation_set",
    "run.sample.interval",
    "step_limit",
    "time_limit_seconds",
};

google::protobuf::FieldMask editable_mask(const std::set<std::string>& fields) {
  if (fields.empty())
    base::refuse_field("fields", "is empty: it names what is to change, such as \"{}\"",
                       kEditable[0]);
  google::protobuf::FieldMask mask;
  std::vector<std::string> fixed;
  for (const std::string& path : fields) {
    if (!FieldMaskUtil::IsValidPath<v1::JobSpec>(path))
      base::refuse_field("fields", "\"{}\" is no field of a job", path);
    mask.add_paths(path);
    if (std::find(std::begin(kEditable), std::end(kEditable), path) == std::end(kEditable))
      fixed.push_back(path);
  }
  if (fixed.empty()) return mask;
  throw InvalidArgument(
      fmt::format("{} cannot change once a job is submitted; what can: {}. For others cancel the "
                  "job, then `meshloom job resume JOB --set FIELD=VALUE` goes on from its newest "
                  "checkpoint",
                  fmt::join(fixed, ", "), fmt::join(kEditable, ", ")),
      "FIELD_FIXED",
      {{"field", fixed.front()}, {"fields", fmt::format("{}", fmt::join(fixed, ","))}});
}

/// The ranks know the learning rate of a group as a share of the optimizer's.
void check_groups_follow(const v1::OptimizerConfig& optimizer) {
  for (const v1::ParameterGroup& group : optimizer.groups())
    if (group.has_lr())
      throw InvalidArgument(
          fmt::format("{}: the group \"{}\" has a learning rate of its own, {:g}, which would move "
                      "with it: cancel the job, then `job resume` it with --set optimizer.lr",
                      kLr, group.pattern(), group.lr()),
          "FIELD_FIXED", {{"field", kLr}});
}

[[noreturn]] void passed(const char* field, const std::string& why, std::int64_t begun) {
  throw FailedPrecondition(fmt::format("{}: {}; step {} has begun", field, why, begun),
                           "STEP_PASSED", {{"field", field}, {"step", std::to_string(begun)}});
}

}  // namespace

v1::JobSettings settings_of(const v1::RunConfig& config) {
  v1::JobSettings settings;
  settings.set_steps(config.training().steps());
  *settings.mutable_lr_scheduler() = config.lr_scheduler();
  settings.set_validation_interval(config.validation().interval());
  settings.set_validation_steps(config.validation().steps());
  settings.set_checkpoint_interval(config.checkpoint().interval());
  settings.set_keep_latest_k(config.checkpoint().keep_latest_k());
  settings.set_sample_interval(config.sample().interval());
  settings.set_keep_best(config.checkpoint().keep_best());
  settings.set_best_validation_set(config.checkpoint().validation_set());
  *settings.mutable_early_stopping() = config.training().early_stopping();
  settings.set_lr(config.optimizer().lr());
  return settings;
}

void apply_settings(const v1::JobSettings& settings, v1::RunConfig* config) {
  config->mutable_training()->set_steps(settings.steps());
  *config->mutable_lr_scheduler() = settings.lr_scheduler();
  config->mutable_validation()->set_interval(settings.validation_interval());
  config->mutable_validation()->set_steps(settings.validation_steps());
  config->mutable_checkpoint()->set_interval(settings.checkpoint_interval());
  config->mutable_checkpoint()->set_keep_latest_k(settings.keep_latest_k());
  if (settings.has_sample_interval() && settings.sample_interval() != config->sample().interval())
    config->mutable_sample()->set_interval(settings.sample_interval());
  if (settings.has_keep_best()) config->mutable_checkpoint()->set_keep_best(settings.keep_best());
  if (settings.has_lr()) config->mutable_optimizer()->set_lr(settings.lr());
  if (settings.has_best_validation_set())
    config->mutable_checkpoint()->set_validation_set(settings.best_validation_set());
  if (!settings.has_early_stopping()) return;
  if (settings.early_stopping().patience() > 0)
    *config->mutable_training()->mutable_early_stopping() = settings.early_stopping();
  else
    config->mutable_training()->clear_early_stopping();
}

v1::JobSettings settings_for(const v1::RunConfig& resolved, const JobEdits& edits,
                             std::int64_t step) {
  if (edits.empty()) return settings_of(resolved);
  const auto edit = std::find_if(edits.rbegin(), edits.rend(),
                                 [&](const v1::JobEdit& one) { return one.after_step() < step; });
  // What an edit of a version that knew fewer settings does not tell is as the next edit found it.
  v1::RunConfig config = resolved;
  for (auto later = edits.rbegin(); later != edit; ++later)
    apply_settings(later->before(), &config);
  if (edit != edits.rend()) apply_settings(edit->after(), &config);
  return settings_of(config);
}

void add_edit(const v1::RunConfig& resolved, v1::JobEdit edit, JobEdits* edits) {
  *edit.mutable_before() = settings_for(resolved, *edits, edit.after_step());
  while (!edits->empty() && edits->rbegin()->after_step() >= edit.after_step()) edits->RemoveLast();
  *edits->Add() = std::move(edit);
}

std::int64_t end_step(const v1::JobSettings& settings, std::int64_t step_limit) {
  return step_limit > 0 ? std::min(settings.steps(), step_limit) : settings.steps();
}

v1::JobSpec edited_spec(v1::JobSpec job, const v1::JobSpec& spec,
                        const std::set<std::string>& fields) {
  const google::protobuf::FieldMask mask = editable_mask(fields);
  FieldMaskUtil::MergeOptions options;
  options.set_replace_message_fields(true);
  v1::JobSpec named;
  FieldMaskUtil::MergeMessageTo(spec, mask, options, &named);
  FieldMaskUtil::MergeMessageTo(spec, mask, options, &job);
  if (fields.contains(kLr)) check_groups_follow(job.run().optimizer());
  v1::TrainingConfig& training = *job.mutable_run()->mutable_training();
  if (fields.contains(kEarlyStopping) && training.early_stopping().ByteSizeLong() == 0)
    training.clear_early_stopping();
  if (!google::protobuf::util::MessageDifferencer::Equivalent(named, spec))
    base::refuse_field("fields", "spec has values that it does not name");
  for (const auto& [field, limit] : {std::pair{"step_limit", job.step_limit()},
                                     std::pair{"time_limit_seconds", job.time_limit_seconds()}})
    if (limit < 0) base::refuse_field(field, "{} is negative", limit);
  return job;
}

void check_ahead(const v1::JobSpec& before, const v1::JobSpec& after, std::int64_t begun,
                 double ran_seconds) {
  const v1::JobSettings old = settings_of(before.run()), now = settings_of(after.run());
  if (now.steps() != old.steps() && now.steps() <= begun)
    passed("run.training.steps", fmt::format("{} is not ahead", now.steps()), begun);
  if (after.step_limit() != before.step_limit() && after.step_limit() > 0 &&
      after.step_limit() <= begun)
    passed("step_limit", fmt::format("{} is not ahead", after.step_limit()), begun);
  const std::int64_t old_warmup = old.lr_scheduler().warmup_steps();
  if (now.lr_scheduler().warmup_steps() != old_warmup && begun >= old_warmup && begun > 0)
    passed("run.lr_scheduler.warmup_steps",
           fmt::format("the warm-up of {} steps is over", old_warmup), begun);
  if (begun >= end_step(old, before.step_limit()))
    passed("run.training.steps", "the last step has begun, nothing is ahead", begun);
  const auto limit = static_cast<double>(after.time_limit_seconds());
  if (after.time_limit_seconds() != before.time_limit_seconds() && limit > 0 &&
      limit <= ran_seconds)
    throw FailedPrecondition(
        fmt::format("time_limit_seconds: the job has had the ranks for {:.0f} s already",
                    ran_seconds),
        "TIME_PASSED", {{"field", "time_limit_seconds"}});
}

}  // namespace meshloom::control
