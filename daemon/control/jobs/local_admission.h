// SPDX-License-Identifier: Apache-2.0
// LocalAdmission: requests against the files, the memory and the ranks of this daemon.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "daemon/control/host/bounded_calls.h"
#include "daemon/control/host/hold.h"
#include "daemon/control/host/memory_units.h"
#include "daemon/control/jobs/admission.h"
#include "daemon/control/ranks/source_cache.h"
#include "daemon/control/stores/job_store.h"
#include "daemon/control/stores/model_store.h"
#include "daemon/control/stores/plan_store.h"
#include "daemon/control/stores/state_dir.h"

namespace meshloom::control {

/// What looks at files that a request names runs under a limit. Must not be destroyed while
/// hanging() is true.
class LocalAdmission final : public Admission {
 public:
  struct Options {
    int world_size = 1;
    int threads = 1;  ///< of a rank, and of a model that is loaded for generation
    std::filesystem::path data_dir;
    std::chrono::milliseconds resolve_timeout{10'000};
    std::vector<HostMemory> hosts;     ///< that of rank 0 first
    train::WorldDevices devices = {};  ///< the same hosts, or nothing
    ModelStore* models = nullptr;      ///< null: no job names one
    PlanStore* plans = nullptr;        ///< null: no job names one
    std::int64_t token_cache_bytes = std::int64_t{64} << 30;
  };
  LocalAdmission(const JobStore& store, const StateDir& state, Options options);

  Admitted admit(const v1::JobSpec& spec) override;
  Admitted admit_run(const v1::RunSpec& spec) override;
  MemoryUnits hold_run(const v1::RunConfig& resolved) override;
  std::optional<v1::RunConfig> refit(const v1::Job& job) override;
  bool has_device(const std::string& resolved) const override {
    return train::has_device(options_.devices, resolved);
  }
  v1::RunConfig admit_settings(const v1::RunConfig& changed) override;
  v1::RunConfig resolve_evaluation(const v1::RunConfig& given, const std::filesystem::path& folder,
                                   const train::TokenizedText& text) override;
  MemoryUnits hold_evaluation(const v1::RunConfig& resolved,
                              const std::filesystem::path& folder) override;
  std::filesystem::path find_hf_folder(const std::string& name) override;
  std::filesystem::path model_folder(const v1::RunConfig& resolved) override;
  std::filesystem::path tokenizer_folder(const v1::RunConfig& resolved,
                                         const std::filesystem::path& model) override;
  Hold hold_models(const v1::RunConfig& config) override;
  train::TokenizedText tokenize_reference(const v1::RunConfig& resolved,
                                          v1::DataReference* reference,
                                          const train::TextProgress& progress) override;
  train::TokenizedText tokenize(const v1::RunConfig& resolved, const std::filesystem::path& model,
                                const std::filesystem::path& tokenizer,
                                const train::TextProgress& progress) override;
  v1::PlanEstimate estimate(const v1::RunConfig& resolved,
                            std::vector<std::string>* warnings) override;
  double measured_peak_flops(const v1::RunConfig& resolved) override;
  /// The config of a model that a client names, its files looked at.
  nn::ModelConfig model_config(const v1::ModelSource& source);
  /// What a rank may use of its host, where that is least; 0: not known.
  std::int64_t memory_of_rank() const;
  int world_size() const { return options_.world_size; }
  train::PromptLimits prompt_limits(const v1::RunConfig& resolved) override;
  MemoryUnits hold_snapshot(const v1::RunConfig& resolved) override;
  MemoryUnits hold_upload(std::int64_t bytes) override;
  MemoryUnits hold_cache(const CacheNeed& need) override;
  /// A model for generation, with the memory that it is counted by. Under no limit of time: models
  /// are large.
  SourceCache::Loaded load_source(const std::filesystem::path& folder);

  /// All that wait for files are let go, and all that wait for models.
  void stop_calls() { calls_.stop(); }
  void stop_loads() { loads_.stop(); }
  /// Threads that nobody waits for any more still use this.
  bool hanging() const { return calls_.running() > 0 || loads_.running() > 0; }

 private:
  /// Fills in the resolved config, whose model lies in `folder` if it names one, and what comes
  /// with it.
  using Resolve = std::function<void(const std::filesystem::path& folder, Admitted* admitted)>;
  /// What is looked at once the config has its ranks' memory.
  using Look = std::function<void(const nn::ModelConfig& model, Admitted* admitted)>;
  Admitted admit_config(
      const v1::RunConfig& given, bool overcommit, const Resolve& resolve,
      const Look& look = [](const nn::ModelConfig&, Admitted*) {});
  /// Throws where a line of the text of a resolved job is none, or a token of its files is not in
  /// the vocabulary, as far as a part of the time that a call has reaches.
  void check_contents(const v1::RunConfig& resolved, std::int64_t vocab_size);
  /// Does what model_folder does, on the calling thread.
  std::filesystem::path find_model(const v1::ModelSource& source) const;
  /// Returns what a config is resolved against here, with these folders of its model and of the
  /// model that run.data.tokenizer names.
  train::ConfigPlace place_of(std::filesystem::path model_folder,
                              std::filesystem::path tokenizer) const;
  /// Returns the folder of the model that run.data.tokenizer names; empty if it names none.
  std::filesystem::path find_tokenizer(const v1::RunConfig& config) const;
  /// Does what tokenizer_folder does, on the calling thread.
  std::filesystem::path find_tokenizer_folder(const v1::RunConfig& resolved,
                                              const std::filesystem::path& model) const;
  MemoryUnits count_run(const RankBytes& bytes);
  /// Keeps the model of this name, "models/NAME" or "NAME".
  Hold hold_model(const std::string& name) const;
  /// Keeps the checkpoints and exports that the config reads by a path, but for the one that it
  /// goes on from.
  Hold hold_checkpoints(v1::RunConfig config) const;
  nn::ModelConfig load_config(const v1::ModelSource& source) const;
  /// Returns the config with mesh and plan of the plan that it names, if it names one, which is
  /// kept as long as `hold`.
  v1::RunConfig with_plan(v1::RunConfig given, Hold* hold) const;
  /// What a rank may use of the memory that holds the tensors of a resolved config, where that is
  /// least; 0: not known.
  std::int64_t tensor_memory_of_rank(const v1::RunConfig& resolved) const;
  /// The estimate of the memory on a rank of the job or run that has the ranks; zeros if there is
  /// none.
  RankBytes job_bytes() const;
  /// Returns the same estimate of a job or run that was taken; zeros with a warning if its model
  /// cannot be read any more.
  RankBytes bytes_of(const v1::RunConfig& resolved) const;

  const JobStore& store_;
  const StateDir& state_;
  const Options options_;
  MemoryAdmission memory_;
  text::TokenizerCache tokenizers_;
  train::SoundLines sound_lines_;
  MemoryCount run_bytes_;  ///< what the run that has the ranks takes of a rank
  BoundedCalls calls_;     ///< into the file systems that requests name
  BoundedCalls loads_;     ///< of models for generation
};

}  // namespace meshloom::control
