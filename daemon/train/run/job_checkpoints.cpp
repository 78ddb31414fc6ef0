// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/run/job_checkpoints.h"

#include <fmt/format.h>

#include <limits>
#include <optional>
#include <utility>

#include "daemon/comm/agreement/status_agreement.h"
#include "daemon/train/config/resume_check.h"
#include "daemon/train/config/validation_progress.h"
#include "daemon/train/data/data_identity.h"
#include "daemon/train/files/message_json.h"
#include "daemon/train/optim/lr_schedule.h"
#include "daemon/train/run/checkpoint_reader.h"
#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

std::string mesh_text(const ComputeClass& compute) {
  return compute.mesh.empty() ? fmt::format("dp={}", compute.world_size) : compute.mesh;
}

std::string hosts_text(const ComputeClass& compute) {
  return compute.hosts.empty() ? "one host, or one each" : "hosts " + compute.hosts;
}

/// What a resolved config computes on: "CPU" or "cuda".
std::string device_kind_text(const v1::RunConfig& resolved) {
  const std::string& device = resolved.device();
  return device.empty() || device == to_string(kCpuDevice) ? "CPU"
                                                           : device.substr(0, device.find(':'));
}

/// Two values that differ, with three digits or as many as show it.
std::pair<std::string, std::string> told_apart(double a, double b) {
  std::pair<std::string, std::string> texts;
  for (int digits = 3; digits <= std::numeric_limits<double>::max_digits10; ++digits) {
    texts = {fmt::format("{:.{}g}", a, digits), fmt::format("{:.{}g}", b, digits)};
    if (texts.first != texts.second) break;
  }
  return texts;
}

/// Where a job's checkpoints are written and looked for.
CheckpointLocation checkpoint_location(const RankResources& resources, const RunOptions& options,
                                       int keep_latest_k) {
  return {options.folders.checkpoints, keep_latest_k,    {},
          options.file_system,         resources.shards, resources.disk};
}

/// What a job's run begins with: its newest checkpoint, another one, or the model's own values.
/// Used once, when the run is made. Everything that it is made with outlives it.
class JobBeginning {
 public:
  JobBeginning(const RankResources& resources, const v1::RunConfig& config,
               const RunOptions& options, ModelRun& model, const v1::DataIdentity& identity,
               std::vector<std::string>& notes)
      : world_(*resources.world),
        resources_(resources),
        config_(config),
        options_(options),
        model_(model),
        identity_(identity),
        notes_(notes) {}

  struct Begun {
    JobProgress progress;
    /// The step whose checkpoint lies in its checkpoints; -1: it did not begin with one of those.
    std::int64_t saved_step = -1;
    bool validates_all = true;
  };
  /// Fills in the model. Every rank of the world calls it; what one throws all throw.
  Begun begin();

 private:
  /// The checkpoint to go on from, if there is one; `own`: it is one of the job's.
  std::optional<FoundCheckpoint> find(bool* own) const;
  void note_other_class(const Manifest& manifest);
  /// Another schedule than the checkpoint's, which a job may get with other steps too, changes the
  /// learning rate from a step on.
  void note_other_schedule(const Manifest& manifest);
  /// Compares the data with those of the checkpoint (null: of the submission).
  void check_data(const FoundCheckpoint* found);
  /// Of another job's checkpoint what holds for this one too.
  v1::ValidationProgress taken_over(const Manifest& manifest);

  comm::ProcessGroup& world_;
  const RankResources& resources_;
  const v1::RunConfig& config_;
  const RunOptions& options_;
  ModelRun& model_;
  const v1::DataIdentity& identity_;
  std::vector<std::string>& notes_;
};

std::optional<FoundCheckpoint> JobBeginning::find(bool* own) const {
  std::optional<FoundCheckpoint> found;
  if (!options_.folders.checkpoints.empty()) {
    const CheckpointLocation location =
        checkpoint_location(resources_, options_, config_.checkpoint().keep_latest_k());
    run_agreed(world_, [&] {
      if (world_.rank() == 0) remove_leftovers(location.files(), location.directory);
    });
    found = find_checkpoint(world_, location,
                            options_.allow_fallback || config_.checkpoint().fallback());
  }
  *own = found.has_value();
  if (found || options_.folders.resume_from.empty()) return found;
  base::Disk& disk = resources_.files();
  found = options_.folders.resume_older
              ? open_checkpoint_or_older(world_, options_.folders.resume_from, disk)
              : open_checkpoint(world_, options_.folders.resume_from, disk);
  if (found->folder == options_.folders.resume_from)
    found->notes.push_back(fmt::format("begins with {}", config_.checkpoint().resume_from()));
  return found;
}

JobBeginning::Begun JobBeginning::begin() {
  bool own = false;
  const std::optional<FoundCheckpoint> found = find(&own);
  Begun begun;
  run_agreed(world_, [&] {
    check_data(found ? &*found : nullptr);
    if (!found) {
      model_.initialize(options_.folders.data_dir, options_.folders.model, resources_.files(),
                        &notes_);
      return;
    }
    const Manifest& manifest = found->manifest;
    check_resumable(manifest, config_, model_.model_config(), found->folder.string());
    model_.load_state(CheckpointReader(found->folder, manifest, resources_.files()));
    notes_.insert(notes_.end(), found->notes.begin(), found->notes.end());
    if (manifest.seed != config_.training().seed())
      notes_.push_back(fmt::format("the checkpoint was trained with seed {}, going on with seed {}",
                                   manifest.seed, config_.training().seed()));
    note_other_class(manifest);
    begun.progress = {manifest.data_position, manifest.tokens, {}, {}};
    if (own) {
      begun.saved_step = model_.step();
      begun.validates_all = manifest.validates_all;
      begun.progress.validation = validation_progress_from_json(manifest.validation_progress);
    } else {
      note_other_schedule(manifest);
      begun.progress.validation = taken_over(manifest);
    }
  });
  return begun;
}

void JobBeginning::note_other_schedule(const Manifest& manifest) {
  v1::RunConfig before;
  if (!run_config_from_json(manifest.run_config, &before)) return;
  const auto rate_of = [](const v1::RunConfig& config) {
    return LearningRate{config.optimizer().lr(),
                        make_lr_schedule(config.lr_scheduler(), config.training().steps())};
  };
  const LearningRate old = rate_of(before), now = rate_of(config_);
  const std::int64_t steps = config_.training().steps();
  const auto step = first_difference(old, now, manifest.step, steps);
  if (!step) return;
  const auto [lr_before, lr] = told_apart(old.at(*step), now.at(*step));
  notes_.push_back(
      fmt::format("the learning rate does not follow the checkpoint's schedule: that has {} steps "
                  "and would give step {} {}, this job has {} steps and gives it {}",
                  before.training().steps(), *step + 1, lr_before, steps, lr));
}

v1::ValidationProgress JobBeginning::taken_over(const Manifest& manifest) {
  v1::RunConfig before;
  if (!config_.training().has_early_stopping() || manifest.validation_progress.empty() ||
      !run_config_from_json(manifest.run_config, &before))
    return {};
  if (!counts_alike(before, config_) || !manifest.validates_all) {
    notes_.push_back("early stopping begins anew: the checkpoint's job counted by other data");
    return {};
  }
  v1::ValidationProgress progress = validation_progress_from_json(manifest.validation_progress);
  progress.clear_best();  // these lie with the other job
  if (!early_stop_reason(config_, progress).empty()) progress.set_not_better(0);
  return progress;
}

void JobBeginning::check_data(const FoundCheckpoint* found) {
  v1::DataIdentity before = config_.data().identity();
  std::string whose = "the job's submission";
  if (found && !found->manifest.data_identity.empty()) {
    before = data_identity_from_json(found->manifest.data_identity);
    whose = fmt::format("checkpoint {}", found->folder.filename().string());
  } else if (found) {
    notes_.push_back(
        fmt::format("checkpoint {} does not say which data it was trained on: that they are the "
                    "same was not checked",
                    found->folder.filename().string()));
  }
  if (before.digest().empty()) return;
  const std::string note =
      check_same_data(before, identity_, config_.data().allow_changed(), whose);
  if (!note.empty()) notes_.push_back(note);
}

void JobBeginning::note_other_class(const Manifest& manifest) {
  ComputeClass before = manifest.compute;
  const ComputeClass now = model_.compute_class();
  v1::RunConfig before_config;
  run_config_from_json(manifest.run_config, &before_config);
  const std::string kind_before = device_kind_text(before_config), kind = device_kind_text(config_);
  if (before.hosts != now.hosts)
    notes_.push_back(fmt::format(
        "the checkpoint was written by ranks on {}, this run has them on {}: sums between hosts "
        "have another order",
        hosts_text(before), hosts_text(now)));
  before.hosts = now.hosts;  // told
  if (before == now && kind_before == kind) return;
  notes_.push_back(fmt::format(
      "the checkpoint was written by {} ranks ({}) with {} threads on {} class {} (matmul table "
      "{}), this run has {} ranks ({}) with {} threads on {}{} (table {}): results will agree "
      "within rounding, not bit for bit",
      before.world_size, mesh_text(before), before.threads, kind_before, before.cpu_class,
      before.matmul_table, now.world_size, mesh_text(now), now.threads,
      kind == kind_before ? "" : kind + " class ", now.cpu_class, now.matmul_table));
}

}  // namespace

void JobCheckpoints::begin(ModelRun& model, std::vector<std::string>& notes) {
  JobBeginning beginning(resources_, config_, options_, model, data_, notes);
  const JobBeginning::Begun begun = beginning.begin();
  progress_ = begun.progress;
  saved_step_ = begun.saved_step;
  validates_all_ = begun.validates_all;
  saved_validation_ = validation_progress_to_json(progress_.validation);
}

void JobCheckpoints::save(ModelRun& model, const JobProgress& progress, int keep_latest_k,
                          const std::vector<CarriedFile>& carried) {
  CheckpointLocation location = checkpoint_location(resources_, options_, keep_latest_k);
  for (const v1::BestCheckpoint& best : progress.validation.best())
    location.keep_steps.insert(best.step());
  std::string validation = validation_progress_to_json(progress.validation);
  if (saved_step_ == model.step()) {
    if (validation != saved_validation_)
      rewrite_progress(*resources_.world, location, saved_step_, validation);
  } else {
    Manifest manifest;
    manifest.validation_progress = validation;
    manifest.validates_all = validates_all_;
    manifest.data_position = progress.data_position;
    manifest.tokens = progress.tokens;
    manifest.data_identity = to_json_text(data_);
    if (progress.edited_config) manifest.run_config = to_json_text(*progress.edited_config);
    model.save_state(location, std::move(manifest), carried);
  }
  saved_step_ = model.step();
  saved_validation_ = std::move(validation);
}

}  // namespace meshloom::train
