// SPDX-License-Identifier: Apache-2.0
// LocalJob: a rank's part of a job without a control plane: the run and what drives it.
#pragma once

#include <sys/resource.h>

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/train/config/sample_start.h"
#include "daemon/train/files/manifest.h"
#include "daemon/train/job/job_course.h"
#include "daemon/train/run/in_step.h"
#include "daemon/train/run/run.h"

namespace meshloom::test {

/// Every rank has one and calls the same verbs, each of which ends alike on all of them, as a
/// rank's worker runs them.
class LocalJob {
 public:
  /// `resolved` and `options` as Run::create takes them, but that the run has data of its own.
  LocalJob(const train::RankResources& resources, const v1::RunConfig& resolved,
           train::RunOptions options)
      : world_(*resources.world), config_(resolved), checkpoints_(options.folders.checkpoints) {
    options.with_data = true;
    train::run_in_step(world_, [&] { run_ = train::Run::create(resources, resolved, options); });
    course_.emplace(resolved,
                    train::JobCourse::Begin{run_->step(), run_->job_progress(), run_->flops(),
                                            resolved.training().peak_flops()});
  }

  const v1::RunConfig& config() const { return config_; }
  std::int64_t step() const { return run_->step(); }
  const std::vector<std::string>& notes() const { return run_->notes(); }
  train::DataSize data_size() const { return run_->data_size(); }
  std::string plan_text() const { return run_->plan_text(); }
  v1::ValidationProgress validation_progress() const { return run_->job_progress().validation; }
  /// Returns the seconds of each phase of the last step.
  const std::map<std::string, double>& phase_seconds() const { return output_.phase_seconds; }

  /// Computes gradients of the next global batch; of the same one again if its step has failed.
  void forward_backward() {
    if (!next_) next_ = course_->next();
    train::run_in_step(world_, [&] { work_ = run_->forward_backward(next_->batch); });
  }
  v1::StepMetrics optim_step() {
    const v1::OptimStepParams params = next_ ? next_->update : v1::OptimStepParams();
    train::run_in_step(world_, [&] { output_ = run_->optim_step(params); });
    next_.reset();
    v1::StepMetrics metrics = course_->done(work_, output_);
    struct rusage usage {};
    ::getrusage(RUSAGE_SELF, &usage);
    metrics.set_memory_bytes(static_cast<std::int64_t>(usage.ru_maxrss) * 1024);
    return metrics;
  }
  void edit(const v1::JobSettings& settings) { course_->edit(settings); }
  std::vector<train::LossSum> evaluate(std::int64_t first, std::int64_t count,
                                       const std::string& set = {}) {
    std::vector<train::LossSum> losses;
    train::run_in_step(world_, [&] { losses = run_->forward({set, first, count}); });
    return losses;
  }
  /// Returns the checkpoint's folder.
  std::filesystem::path save_state(const v1::ValidationProgress& validation = {}) {
    train::run_in_step(world_, [&] {
      run_->save_checkpoint(course_->progress(validation), config_.checkpoint().keep_latest_k());
    });
    return checkpoints_ / train::checkpoint_folder_name(run_->step());
  }
  void export_hf(const std::filesystem::path& folder, const std::string& dtype) {
    train::run_in_step(world_, [&] { run_->export_hf(folder, dtype); });
  }

  /// Its advance() ends alike on all ranks, too.
  std::unique_ptr<train::Sample> begin_sample(const std::vector<train::SampleStart>& sequences) {
    std::unique_ptr<train::Sample> sample;
    train::run_in_step(world_, [&] { sample = run_->begin_sample(sequences, ""); });
    return std::make_unique<InStepSample>(world_, std::move(sample));
  }

 private:
  class InStepSample final : public train::Sample {
   public:
    InStepSample(comm::ProcessGroup& world, std::unique_ptr<train::Sample> sample)
        : world_(world), sample_(std::move(sample)) {}
    std::vector<train::SampledToken> advance(std::chrono::milliseconds budget) override {
      std::vector<train::SampledToken> tokens;
      train::run_in_step(world_, [&] { tokens = sample_->advance(budget); });
      return tokens;
    }
    void end_sequences(const std::vector<std::size_t>& sequences) override {
      sample_->end_sequences(sequences);
    }
    bool done() const override { return sample_->done(); }

   private:
    comm::ProcessGroup& world_;
    std::unique_ptr<train::Sample> sample_;
  };

  comm::ProcessGroup& world_;
  v1::RunConfig config_;
  std::filesystem::path checkpoints_;
  std::unique_ptr<train::Run> run_;
  std::optional<train::JobCourse> course_;
  std::optional<train::JobCourse::Step> next_;  ///< under way
  train::BatchWork work_;                       ///< of the last forward_backward
  train::StepOutput output_;                    ///< of the last optim_step
};

}  // namespace meshloom::test
