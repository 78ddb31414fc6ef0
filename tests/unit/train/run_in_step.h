// SPDX-License-Identifier: Apache-2.0
// A run whose verbs end alike on all ranks, as a rank's worker runs them.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "daemon/train/in_step.h"
#include "daemon/train/run.h"

namespace meshloom::train {

template <typename Verb>
auto in_step(comm::ProcessGroup& world, Verb&& verb) -> decltype(verb()) {
  decltype(verb()) result{};
  run_in_step(world, [&] { result = verb(); });
  return result;
}

class InStepSample final : public Sample {
 public:
  InStepSample(comm::ProcessGroup& world, std::unique_ptr<Sample> sample)
      : world_(world), sample_(std::move(sample)) {}
  std::vector<SampledToken> advance(std::chrono::milliseconds budget) override {
    return in_step(world_, [&] { return sample_->advance(budget); });
  }
  void end_sequences(const std::vector<std::size_t>& sequences) override {
    sample_->end_sequences(sequences);
  }
  bool done() const override { return sample_->done(); }

 private:
  comm::ProcessGroup& world_;
  std::unique_ptr<Sample> sample_;
};

class InStepRun final : public Run {
 public:
  InStepRun(comm::ProcessGroup& world, std::unique_ptr<Run> run)
      : world_(world), run_(std::move(run)) {}

  const v1::RunConfig& config() const override { return run_->config(); }
  std::int64_t step() const override { return run_->step(); }
  const std::vector<std::string>& notes() const override { return run_->notes(); }
  std::string plan_text() const override { return run_->plan_text(); }
  PromptLimits prompt_limits() const override { return run_->prompt_limits(); }
  std::map<std::string, double> phase_seconds() const override { return run_->phase_seconds(); }

  void forward_backward() override {
    run_in_step(world_, [&] { run_->forward_backward(); });
  }
  v1::StepMetrics optim_step() override {
    return in_step(world_, [&] { return run_->optim_step(); });
  }
  void edit(const v1::JobSettings& settings) override {
    run_in_step(world_, [&] { run_->edit(settings); });
  }
  std::vector<LossSum> evaluate(std::int64_t first, std::int64_t batches,
                                const std::string& set) override {
    return in_step(world_, [&] { return run_->evaluate(first, batches, set); });
  }
  std::filesystem::path save_state(const v1::ValidationProgress& progress) override {
    return in_step(world_, [&] { return run_->save_state(progress); });
  }
  v1::ValidationProgress validation_progress() const override {
    return run_->validation_progress();
  }
  void export_hf(const std::filesystem::path& folder, const std::string& dtype) override {
    run_in_step(world_, [&] { run_->export_hf(folder, dtype); });
  }
  std::unique_ptr<Sample> begin_sample(const std::vector<SampleStart>& sequences) override {
    return std::make_unique<InStepSample>(
        world_, in_step(world_, [&] { return run_->begin_sample(sequences); }));
  }

 private:
  comm::ProcessGroup& world_;
  std::unique_ptr<Run> run_;
};

/// Run::create and then its verbs, each in step.
inline std::unique_ptr<Run> create_in_step(const RankResources& resources,
                                           const v1::RunConfig& resolved,
                                           const RunOptions& options) {
  std::unique_ptr<Run> run;
  run_in_step(*resources.world, [&] { run = Run::create(resources, resolved, options); });
  return std::make_unique<InStepRun>(*resources.world, std::move(run));
}

}  // namespace meshloom::train
