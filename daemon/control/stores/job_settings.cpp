// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/job_settings.h"

#include <fmt/ranges.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <vector>

#include "daemon/base/field_error.h"
#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

/// A field that may change.
struct Editable {
  const char* path;
  void (*copy)(const v1::JobSpec& from, v1::JobSpec* to);
};

using Spec = v1::JobSpec;

/// Steps, and the learning rate over them.
std::vector<Editable> schedule_fields() {
  return {
      {"run.training.steps",
       [](const Spec& from, Spec* to) {
         to->mutable_run()->mutable_training()->set_steps(from.run().training().steps());
       }},
      {"run.lr_scheduler",
       [](const Spec& from, Spec* to) {
         *to->mutable_run()->mutable_lr_scheduler() = from.run().lr_scheduler();
       }},
      {"run.lr_scheduler.warmup_steps",
       [](const Spec& from, Spec* to) {
         to->mutable_run()->mutable_lr_scheduler()->set_warmup_steps(
             from.run().lr_scheduler().warmup_steps());
       }},
      {"run.lr_scheduler.decay_type",
       [](const Spec& from, Spec* to) {
         to->mutable_run()->mutable_lr_scheduler()->set_decay_type(
             from.run().lr_scheduler().decay_type());
       }},
      {"run.lr_scheduler.decay_ratio",
       [](const Spec& from, Spec* to) {
         to->mutable_run()->mutable_lr_scheduler()->set_decay_ratio(
             from.run().lr_scheduler().decay_ratio());
       }},
      {"run.lr_scheduler.min_lr_factor",
       [](const Spec& from, Spec* to) {
         to->mutable_run()->mutable_lr_scheduler()->set_min_lr_factor(
             from.run().lr_scheduler().min_lr_factor());
       }},
  };
}

/// What is done now and then between steps, and what ends a job before its last one.
std::vector<Editable> interval_and_limit_fields() {
  return {
      {"run.validation.interval",
       [](const Spec& from, Spec* to) {
         to->mutable_run()->mutable_validation()->set_interval(from.run().validation().interval());
       }},
      {"run.validation.steps",
       [](const Spec& from, Spec* to) {
         to->mutable_run()->mutable_validation()->set_steps(from.run().validation().steps());
       }},
      {"run.checkpoint.interval",
       [](const Spec& from, Spec* to) {
         to->mutable_run()->mutable_checkpoint()->set_interval(from.run().checkpoint().interval());
       }},
      {"run.checkpoint.keep_latest_k",
       [](const Spec& from, Spec* to) {
         to->mutable_run()->mutable_checkpoint()->set_keep_latest_k(
             from.run().checkpoint().keep_latest_k());
       }},
      {"step_limit", [](const Spec& from, Spec* to) { to->set_step_limit(from.step_limit()); }},
      {"time_limit_seconds",
       [](const Spec& from, Spec* to) { to->set_time_limit_seconds(from.time_limit_seconds()); }},
  };
}

const std::vector<Editable>& editable_fields() {
  static const std::vector<Editable> fields = [] {
    std::vector<Editable> all = schedule_fields();
    const std::vector<Editable> others = interval_and_limit_fields();
    all.insert(all.end(), others.begin(), others.end());
    return all;
  }();
  return fields;
}

const Editable* find_editable(const std::string& path) {
  const auto& fields = editable_fields();
  const auto found = std::find_if(fields.begin(), fields.end(),
                                  [&](const Editable& field) { return path == field.path; });
  return found == fields.end() ? nullptr : &*found;
}

/// "run.training.steps" is a field of a job.
bool is_field(const std::string& path) {
  const google::protobuf::Descriptor* type = v1::JobSpec::descriptor();
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    const auto* field = type ? type->FindFieldByName(path.substr(begin, end - begin)) : nullptr;
    if (!field) return false;
    type = field->message_type();
    begin = end + 1;
  }
  return true;
}

std::vector<const Editable*> find_all(const std::set<std::string>& fields) {
  if (fields.empty())
    base::refuse_field("fields", "is empty: it names what is to change, such as \"{}\"",
                       editable_fields().front().path);
  std::vector<const Editable*> found;
  std::vector<std::string> fixed;
  for (const std::string& path : fields) {
    if (!is_field(path)) base::refuse_field("fields", "\"{}\" is no field of a job", path);
    if (const Editable* field = find_editable(path))
      found.push_back(field);
    else
      fixed.push_back(path);
  }
  if (fixed.empty()) return found;
  std::vector<std::string> paths;
  for (const Editable& field : editable_fields()) paths.emplace_back(field.path);
  throw InvalidArgument(
      fmt::format("{} cannot change once a job is submitted; what can: {}", fmt::join(fixed, ", "),
                  fmt::join(paths, ", ")),
      "FIELD_FIXED",
      {{"field", fixed.front()}, {"fields", fmt::format("{}", fmt::join(fixed, ","))}});
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
  return settings;
}

void apply_settings(const v1::JobSettings& settings, v1::RunConfig* config) {
  config->mutable_training()->set_steps(settings.steps());
  *config->mutable_lr_scheduler() = settings.lr_scheduler();
  config->mutable_validation()->set_interval(settings.validation_interval());
  config->mutable_validation()->set_steps(settings.validation_steps());
  config->mutable_checkpoint()->set_interval(settings.checkpoint_interval());
  config->mutable_checkpoint()->set_keep_latest_k(settings.keep_latest_k());
}

v1::JobSettings settings_for(const v1::RunConfig& resolved, const JobEdits& edits,
                             std::int64_t step) {
  for (auto edit = edits.rbegin(); edit != edits.rend(); ++edit)
    if (edit->after_step() < step) return edit->after();
  return edits.empty() ? settings_of(resolved) : edits.Get(0).before();
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
  v1::JobSpec named;
  for (const Editable* field : find_all(fields)) {
    field->copy(spec, &named);
    field->copy(spec, &job);
  }
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
