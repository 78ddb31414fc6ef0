// SPDX-License-Identifier: Apache-2.0
// ConfigResolver: configs of jobs, runs and evaluations, filled in and checked.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "daemon/control/host/hold.h"
#include "daemon/train/config/refit.h"
#include "daemon/train/data/text_data.h"
#include "v1/config.pb.h"
#include "v1/job.pb.h"
#include "v1/job_service.pb.h"
#include "v1/plan.pb.h"
#include "v1/run.pb.h"

namespace meshloom::control {

/// A job or a run that can be taken.
struct Admitted {
  v1::RunConfig resolved;
  std::vector<std::string> warnings;                    ///< what may be a mistake
  std::optional<v1::DiskEstimate> disk = std::nullopt;  ///< of a job, where it is known
  /// Keeps what the config names from being removed; let go once the job can be seen in the store.
  Hold hold = {};
};

/// Compares what clients ask for with the ranks, the files and the memory that there are. Any
/// thread may call any method; each may take as long as a file system does.
class ConfigResolver {
 public:
  virtual ~ConfigResolver() = default;
  /// Fills in defaults and checks a job against ranks, data, memory and what this build offers.
  virtual Admitted admit(const v1::JobSpec& spec) = 0;
  /// The same for a run that a client drives.
  virtual Admitted admit_run(const v1::RunSpec& spec) = 0;
  /// The config of a job for the ranks that there are if they are others than it was resolved for,
  /// or have other devices; nothing if it fits as it is. Throws train::NeedsOtherRanks and
  /// train::NeedsOtherDevices if it cannot be made to fit.
  virtual std::optional<v1::RunConfig> refit(const v1::Job& job) = 0;
  /// Whether the ranks have what run.device of a resolved config names (train::has_device).
  virtual bool has_device(const std::string& resolved) const = 0;
  /// A resolved config with other settings (train::resolve_settings), checked and filled in.
  virtual v1::RunConfig admit_settings(const v1::RunConfig& changed) = 0;
  /// Resolves the config of an evaluation of the weights in `folder`, which run.model.name stands
  /// for (train::resolve_evaluation_config), checked against the memory once the tokens of its text
  /// are made (`text`).
  virtual v1::RunConfig resolve_evaluation(const v1::RunConfig& given,
                                           const std::filesystem::path& folder,
                                           const train::TokenizedText& text) = 0;
  /// Estimates what a step of a resolved job takes; the memory alone, and why in `warnings`, where
  /// there is no more of an estimate.
  virtual v1::PlanEstimate estimate(const v1::RunConfig& resolved,
                                    std::vector<std::string>* warnings) = 0;
  /// Returns the flops that a rank could compute per second by what was measured for this daemon's
  /// ranks, in the dtype of a resolved config; 0 if it was not.
  virtual double measured_peak_flops(const v1::RunConfig& resolved) = 0;
};

}  // namespace meshloom::control
