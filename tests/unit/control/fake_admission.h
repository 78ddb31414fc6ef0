// SPDX-License-Identifier: Apache-2.0
// A stand-in for the checks of a daemon: takes every job that has steps.
#pragma once

#include <functional>
#include <utility>

#include "daemon/control/jobs/config_resolver.h"
#include "daemon/control/jobs/memory_budget.h"
#include "daemon/control/jobs/model_folders.h"
#include "daemon/control/jobs/tokenization.h"
#include "kernels/base/error.h"
#include "tests/unit/control/fake_run.h"

namespace meshloom::control {

class FakeAdmission final : public ConfigResolver,
                            public ModelFolders,
                            public Tokenization,
                            public MemoryBudget {
 public:
  /// `on_admit` is called in the handler of SubmitJob.
  FakeAdmission(FakePlan& plan, std::filesystem::path folder, std::function<void()> on_admit = {})
      : plan_(plan), folder_(std::move(folder)), on_admit_(std::move(on_admit)) {}

  Admitted admit(const v1::JobSpec& spec) override {
    if (on_admit_) on_admit_();
    if (spec.run().training().steps() < 1)
      throw InvalidArgument("run.training.steps: 0, expected 1 or more", "INVALID_ARGUMENT",
                            {{"field", "run.training.steps"}});
    return {spec.run(), {}};
  }
  Admitted admit_run(const v1::RunSpec& spec) override {
    Admitted admitted{spec.config(), {}};
    v1::Mesh& mesh = *admitted.resolved.mutable_mesh();
    mesh.set_dp(plan_.ranks);
    mesh.set_fsdp(1);
    mesh.set_cp(1);
    mesh.set_tp(1);
    return admitted;
  }
  MemoryUnits hold_run(const v1::RunConfig&) override { return {}; }
  std::optional<v1::RunConfig> refit(const v1::Job& job) override { return plan_.on_refit(job); }
  bool has_device(const std::string&) const override { return true; }
  v1::RunConfig admit_settings(const v1::RunConfig& changed) override {
    if (changed.training().steps() < 1)
      throw InvalidArgument("run.training.steps: 0, expected 1 or more", "INVALID_ARGUMENT",
                            {{"field", "run.training.steps"}});
    return changed;
  }
  std::filesystem::path find_hf_folder(const std::string& name) override { return folder_ / name; }
  std::filesystem::path model_folder(const v1::RunConfig&) override { return {}; }
  v1::RunConfig resolve_evaluation(const v1::RunConfig& given, const std::filesystem::path&,
                                   const train::TokenizedText&) override {
    return given;
  }
  MemoryUnits hold_evaluation(const v1::RunConfig&, const std::filesystem::path&) override {
    return {};
  }
  std::filesystem::path tokenizer_folder(const v1::RunConfig&,
                                         const std::filesystem::path&) override {
    return {};
  }
  Hold hold_models(const v1::RunConfig&) override { return {}; }
  train::TokenizedText tokenize(const v1::RunConfig&, const std::filesystem::path&,
                                const std::filesystem::path&, const train::TextProgress&) override {
    return {};
  }
  train::TokenizedText tokenize_reference(const v1::RunConfig&, v1::DataReference*,
                                          const train::TextProgress&) override {
    return {};
  }
  v1::PlanEstimate estimate(const v1::RunConfig& resolved, std::vector<std::string>*) override {
    v1::PlanEstimate estimate;
    estimate.set_ranks(resolved.mesh().dp());
    return estimate;
  }
  double measured_peak_flops(const v1::RunConfig&) override { return plan_.measured_peak_flops; }
  train::PromptLimits prompt_limits(const v1::RunConfig&) override { return plan_.limits(); }
  MemoryUnits hold_snapshot(const v1::RunConfig&) override {
    plan_.on_hold_snapshot();
    ++plan_.snapshots;
    return MemoryUnits(Hold([&plan = plan_] { --plan.snapshots; }));
  }
  MemoryUnits hold_upload(std::int64_t bytes) override {
    if (bytes > plan_.upload_room)
      throw ResourceExhausted(fmt::format("{} bytes of an upload", bytes), kMemoryEstimate);
    plan_.upload_bytes += bytes;
    plan_.most_upload_bytes = std::max(plan_.most_upload_bytes.load(), plan_.upload_bytes.load());
    return MemoryUnits(Hold([&plan = plan_, bytes] { plan.upload_bytes -= bytes; }));
  }
  /// Takes of FakePlan::cache_room until the result is let go.
  MemoryUnits hold_cache(const CacheNeed& need) override {
    if (plan_.cache_room < need.bytes)
      throw ResourceExhausted(fmt::format("{} bytes of {} sequences", need.bytes, need.sequences),
                              kMemoryEstimate);
    plan_.cache_room -= need.bytes;
    return MemoryUnits(Hold([&plan = plan_, bytes = need.bytes] { plan.cache_room += bytes; }));
  }

 private:
  FakePlan& plan_;
  std::filesystem::path folder_;
  std::function<void()> on_admit_;
};

}  // namespace meshloom::control
