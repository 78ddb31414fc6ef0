// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/train_run.h"

#include <sys/resource.h>

#include <array>

#include "daemon/text/tokenizer_folder.h"
#include "daemon/train/all_reduce_values.h"
#include "daemon/train/checkpoint/checkpoint_writer.h"
#include "daemon/train/data/data_identity.h"
#include "daemon/train/dtype_choice.h"
#include "daemon/train/model_source.h"
#include "daemon/train/paths.h"
#include "daemon/train/replica_check.h"
#include "daemon/train/resolve.h"
#include "daemon/train/resume_check.h"
#include "daemon/train/status_agreement.h"
#include "daemon/train/validation_progress.h"
#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::int64_t peak_resident_bytes() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

std::string mesh_text(const ComputeClass& compute) {
  return compute.mesh.empty() ? fmt::format("dp={}", compute.world_size) : compute.mesh;
}

std::string hosts_text(const ComputeClass& compute) {
  return compute.hosts.empty() ? "one host, or one each" : "hosts " + compute.hosts;
}

}  // namespace

TrainRun::TrainRun(const RankResources& resources, const v1::RunConfig& config,
                   const RunOptions& options)
    : world_(*resources.world),
      resources_(resources),
      config_(config),
      options_(options),
      schedule_(make_lr_schedule(config.lr_scheduler(), config.training().steps())) {
  check_same_text(world_, "the resolved config", to_json_text(config_));
  auto mesh = std::make_unique<RunMesh>(world_, mesh_layout(config_.mesh()));
  run_agreed(world_, [&] {
    base::Disk& disk = resources_.files();
    const nn::ModelConfig model =
        load_model_config(config_.model(), options_.data_dir, options_.model_folder, disk);
    if (world_.rank() == 0) {
      const fs::path source =
          source_folder(config_.model(), options_.data_dir, options_.model_folder);
      carried_ = read_carried_files(text::carried_files(source, options_.tokenizer_folder), notes_);
    }
    const RunData data =
        open_run_data(config_, model, options_.data_dir, "run.data", options_.text, disk);
    check_internal(data.training != nullptr, "the run's text is not tokenized");
    check_enough(config_, data);
    feed_ = std::make_unique<DataFeed>(config_, data, mesh->data());
    model_ = std::make_unique<ModelRun>(resources, config_, model, std::move(mesh));
  });
  restore_or_initialize();
  for (const std::string& warning : model_->warnings())
    notes_.push_back(fmt::format("run.plan.styles: {}", warning));
  counted_ = model_->mesh().counters();
}

TrainRun::~TrainRun() = default;

CheckpointLocation TrainRun::checkpoint_location() const {
  return {options_.checkpoint_dir,
          config_.checkpoint().keep_latest_k(),
          {},
          options_.file_system,
          resources_.shards,
          resources_.disk};
}

void TrainRun::restore_or_initialize() {
  base::Disk& disk = resources_.files();
  std::optional<FoundCheckpoint> found;
  if (!options_.checkpoint_dir.empty()) {
    run_agreed(world_, [&] {
      if (world_.rank() == 0) remove_leftovers(checkpoint_location());
    });
    found = find_checkpoint(world_, checkpoint_location(),
                            options_.allow_fallback || config_.checkpoint().fallback());
  }
  const bool own = found.has_value();
  if (!own && !options_.resume_from.empty()) {
    found = options_.resume_older ? open_checkpoint_or_older(world_, options_.resume_from, disk)
                                  : open_checkpoint(world_, options_.resume_from, disk);
    if (found->folder == options_.resume_from)
      found->notes.push_back(fmt::format("begins with {}", config_.checkpoint().resume_from()));
  }
  run_agreed(world_, [&] {
    check_data(found ? &*found : nullptr);
    if (found) {
      resume(*found);
      if (own) {
        saved_step_ = model_->step();
        progress_ = validation_progress_from_json(found->manifest.validation_progress);
      } else {
        note_other_schedule(found->manifest);
        take_over_progress(found->manifest);
      }
    } else {
      model_->initialize(options_.data_dir, options_.model_folder, disk, &notes_);
    }
  });
}

void TrainRun::resume(const FoundCheckpoint& found) {
  const Manifest& manifest = found.manifest;
  check_resumable(manifest, config_, model_->model_config(), found.folder.string());
  model_->load_state(CheckpointReader(found.folder, found.manifest, resources_.files()));
  feed_->go_on_from({manifest.data_position, manifest.tokens});
  notes_.insert(notes_.end(), found.notes.begin(), found.notes.end());
  if (manifest.seed != config_.training().seed())
    notes_.push_back(fmt::format("the checkpoint was trained with seed {}, going on with seed {}",
                                 manifest.seed, config_.training().seed()));
  note_other_class(manifest.compute);
}

void TrainRun::note_other_schedule(const Manifest& manifest) {
  v1::RunConfig before;
  if (!run_config_from_json(manifest.run_config, &before)) return;
  const LrSchedule old = make_lr_schedule(before.lr_scheduler(), before.training().steps());
  const std::int64_t step = manifest.step;
  const double lr_before = before.optimizer().lr() * old.factor(step);
  const double lr = config_.optimizer().lr() * schedule_.factor(step);
  const bool same =
      before.training().steps() == config_.training().steps() && lr == lr_before &&
      before.lr_scheduler().SerializeAsString() == config_.lr_scheduler().SerializeAsString();
  if (same) return;
  notes_.push_back(fmt::format(
      "the learning rate does not follow the checkpoint's schedule: that has {} steps and would "
      "give step {} {:.3g}, this job has {} steps and gives it {:.3g}",
      before.training().steps(), step + 1, lr_before, config_.training().steps(), lr));
}

void TrainRun::take_over_progress(const Manifest& manifest) {
  v1::RunConfig before;
  if (!config_.training().has_early_stopping() || manifest.validation_progress.empty() ||
      !run_config_from_json(manifest.run_config, &before))
    return;
  if (!counts_alike(before, config_)) {
    notes_.push_back("early stopping begins anew: the checkpoint's job counted by other data");
    return;
  }
  progress_ = validation_progress_from_json(manifest.validation_progress);
  progress_.clear_best();  // these lie with the other job
  if (!early_stop_reason(config_, progress_).empty()) progress_.set_not_better(0);
}

void TrainRun::check_data(const FoundCheckpoint* found) {
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
      check_same_data(before, feed_->identity(), config_.data().allow_changed(), whose);
  if (!note.empty()) notes_.push_back(note);
}

void TrainRun::note_other_class(const ComputeClass& before) {
  const ComputeClass now = model_->compute_class();
  if (before.hosts != now.hosts)
    notes_.push_back(fmt::format(
        "the checkpoint was written by ranks on {}, this run has them on {}: sums between hosts "
        "have another order",
        hosts_text(before), hosts_text(now)));
  if (before == now) return;
  notes_.push_back(fmt::format(
      "the checkpoint was written by {} ranks ({}) with {} threads on CPU class {} (matmul table "
      "{}), this run has {} ranks ({}) with {} threads on {} (table {}): results will agree within "
      "rounding, not bit for bit",
      before.world_size, mesh_text(before), before.threads, before.cpu_class, before.matmul_table,
      now.world_size, mesh_text(now), now.threads, now.cpu_class, now.matmul_table));
}

void TrainRun::forward_backward() {
  if (model_->has_gradients())
    throw FailedPrecondition(
        "forward_backward: the gradients of the step before were not used yet; call optim_step");
  Phases& phases = model_->phases();
  phases.clear();
  LastStep last;
  last.start = Clock::now();
  StepBatch step;
  {
    const PhaseTimer timer(phases, "data");
    FedBatch fed = feed_->next(world_, model_->mesh().leads_samples());
    step.micro_batches = std::move(fed.micro_batches);
    step.labels = fed.labels;
    last.tokens = fed.tokens;
  }
  step.seq_len = config_.training().seq_len();
  step.last = true;
  model_->forward_backward(step);
  last_ = last;
}

v1::StepMetrics TrainRun::optim_step() {
  v1::StepMetrics metrics;
  const double lr = config_.optimizer().lr() * schedule_.factor(model_->step());
  const StepResult result = model_->optim_step(lr, config_.training().max_norm());
  metrics.set_grad_norm(result.norm);
  metrics.set_lr(lr);
  feed_->advance(last_.tokens);
  metrics.set_step(model_->step());
  metrics.set_loss(result.loss);
  metrics.set_tokens(feed_->progress().tokens);
  std::array<double, 2> most = {seconds_since(last_.start),
                                static_cast<double>(peak_resident_bytes())};
  all_reduce(world_, most, comm::ReduceOp::kMax);
  metrics.set_tokens_per_second(static_cast<double>(last_.tokens) / most[0]);
  metrics.set_memory_bytes(static_cast<std::int64_t>(most[1]));
  if (const double peak = config_.training().peak_flops() * world_.size(); peak > 0.0) {
    const v1::TrainingConfig& t = config_.training();
    const auto positions = static_cast<double>(t.global_batch_size() * t.seq_len());
    const double flops = nn::flops_per_token(model_->model_config(), t.seq_len());
    metrics.set_mfu(positions * flops / (most[0] * peak));
  }
  add_collectives(metrics);
  return metrics;
}

void TrainRun::edit(const v1::JobSettings& settings) {
  config_.mutable_training()->set_steps(settings.steps());
  *config_.mutable_lr_scheduler() = settings.lr_scheduler();
  config_.mutable_checkpoint()->set_keep_latest_k(settings.keep_latest_k());
  schedule_ = make_lr_schedule(config_.lr_scheduler(), config_.training().steps());
}

void TrainRun::add_collectives(v1::StepMetrics& metrics) {
  GroupCounters now = model_->mesh().counters();
  for (const auto& [key, counter] : now) {
    const comm::CommCounter before = counted_[key];
    if (counter.calls == before.calls) continue;
    v1::CollectiveMetrics& item = *metrics.add_collectives();
    item.set_group(key.first);
    item.set_collective(key.second);
    item.set_calls(static_cast<std::int64_t>(counter.calls - before.calls));
    item.set_bytes_sent(static_cast<std::int64_t>(counter.bytes_sent - before.bytes_sent));
  }
  counted_ = std::move(now);
}

std::vector<LossSum> TrainRun::evaluate(std::int64_t first, std::int64_t batches,
                                        const std::string& set) {
  std::vector<LossSum> sums(
      static_cast<std::size_t>(feed_->validation_batches(set, first, batches)));
  for (std::size_t i = 0; i < sums.size(); ++i) {
    std::vector<HostBatch> parts;
    run_agreed(world_,
               [&] { parts = feed_->validation_batch(set, first + static_cast<std::int64_t>(i)); });
    for (const HostBatch& part : parts) {
      const LossSum share = model_->forward(part, config_.training().seq_len());
      sums[i].loss += share.loss;
      sums[i].labels += share.labels;
    }
  }
  if (sums.empty()) return sums;  // the data have ended, on all ranks alike
  static_assert(sizeof(LossSum) == 2 * sizeof(double));
  all_reduce(world_, std::span(&sums.data()->loss, 2 * sums.size()), comm::ReduceOp::kSum);
  return sums;
}

fs::path TrainRun::save_state(const v1::ValidationProgress& progress) {
  if (options_.checkpoint_dir.empty())
    throw FailedPrecondition("save_state: this run has no checkpoint folder");
  const PhaseTimer timer(model_->phases(), "checkpoint");
  CheckpointLocation location = checkpoint_location();
  for (const v1::BestCheckpoint& best : progress.best()) location.keep_steps.insert(best.step());
  const std::string progress_text = validation_progress_to_json(progress);
  if (saved_step_ == model_->step()) {
    if (progress_text != validation_progress_to_json(progress_))
      rewrite_progress(world_, location, saved_step_, progress_text);
    progress_ = progress;
    return options_.checkpoint_dir / checkpoint_folder_name(saved_step_);
  }
  Manifest manifest;
  manifest.validation_progress = progress_text;
  manifest.data_position = feed_->progress().position;
  manifest.tokens = feed_->progress().tokens;
  manifest.data_identity = to_json_text(feed_->identity());
  const fs::path folder = model_->save_state(location, std::move(manifest), carried_);
  saved_step_ = model_->step();
  progress_ = progress;
  return folder;
}

void TrainRun::export_hf(const fs::path& folder, const std::string& dtype) {
  model_->export_hf(folder, export_dtype(dtype), carried_);
}

std::unique_ptr<Sample> TrainRun::begin_sample(const std::vector<SampleStart>& sequences) {
  return model_->begin_sample(sequences);
}

}  // namespace meshloom::train
