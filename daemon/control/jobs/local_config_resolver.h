// SPDX-License-Identifier: Apache-2.0
// LocalConfigResolver: configs against the files, the memory and the ranks of this daemon.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "daemon/control/host/bounded_calls.h"
#include "daemon/control/host/hold.h"
#include "daemon/control/jobs/config_resolver.h"
#include "daemon/control/jobs/local_model_folders.h"
#include "daemon/control/stores/job_store.h"
#include "daemon/control/stores/state_dir.h"
#include "daemon/train/config/config_place.h"

namespace meshloom::control {

/// Refers to what it is made of, which outlives it. It must not be destroyed while `calls` are
/// running.
class LocalConfigResolver final : public ConfigResolver {
 public:
  LocalConfigResolver(const JobStore& store, const StateDir& state, const LocalResources& resources,
                      LocalModelFolders& folders, MemoryAdmission& memory, BoundedCalls& calls)
      : store_(store),
        state_(state),
        resources_(resources),
        folders_(folders),
        memory_(memory),
        calls_(calls) {}

  Admitted admit(const v1::JobSpec& spec) override;
  Admitted admit_run(const v1::RunSpec& spec) override;
  std::optional<v1::RunConfig> refit(const v1::Job& job) override;
  bool has_device(const std::string& resolved) const override;
  v1::RunConfig admit_settings(const v1::RunConfig& changed) override;
  v1::RunConfig resolve_evaluation(const v1::RunConfig& given, const std::filesystem::path& folder,
                                   const train::TokenizedText& text) override;
  v1::PlanEstimate estimate(const v1::RunConfig& resolved,
                            std::vector<std::string>* warnings) override;
  double measured_peak_flops(const v1::RunConfig& resolved) override;

 private:
  /// `resolve` (folder, Admitted*) fills in the resolved config, whose model lies in `folder` if it
  /// names one, and what comes with it; `look` (nn::ModelConfig, Admitted*) is called once the
  /// config has its ranks' memory. Both may outlive the call.
  template <typename Resolve, typename Look>
  Admitted admit_config(const v1::RunConfig& given, bool overcommit, Resolve resolve, Look look);
  /// Throws where a line of the text of a resolved job is none, or a token of its files is not in
  /// the vocabulary, as far as a part of the time that a call has reaches.
  void check_contents(const v1::RunConfig& resolved, std::int64_t vocab_size);
  /// Returns what a config is resolved against here, with these folders of its model and of the
  /// model that run.data.tokenizer names.
  train::ConfigPlace place_of(std::filesystem::path model_folder,
                              std::filesystem::path tokenizer) const;
  /// Keeps the checkpoints and exports that the config reads by a path, but for the one that it
  /// goes on from.
  Hold hold_checkpoints(v1::RunConfig config) const;
  /// Returns the config with mesh and plan of the plan that it names, if it names one, which is
  /// kept as long as `hold`.
  v1::RunConfig with_plan(v1::RunConfig given, Hold* hold) const;

  const JobStore& store_;
  const StateDir& state_;
  const LocalResources& resources_;
  LocalModelFolders& folders_;
  MemoryAdmission& memory_;
  BoundedCalls& calls_;
  train::SoundLines sound_lines_;
};

}  // namespace meshloom::control
