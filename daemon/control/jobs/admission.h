// SPDX-License-Identifier: Apache-2.0
// Admission: whether what clients ask for can be carried out here.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "daemon/control/host/hold.h"
#include "daemon/control/host/memory_units.h"
#include "daemon/control/jobs/memory_admission.h"
#include "daemon/train/config/refit.h"
#include "daemon/train/config/sampling_params.h"
#include "daemon/train/data/text_data.h"
#include "v1/config.pb.h"
#include "v1/job.pb.h"
#include "v1/job_service.pb.h"
#include "v1/plan.pb.h"
#include "v1/run.pb.h"
#include "v1/step.pb.h"

namespace meshloom::control {

/// A job or a run that can be taken.
struct Admitted {
  v1::RunConfig resolved;
  std::vector<std::string> warnings;                    ///< what may be a mistake
  std::optional<v1::DiskEstimate> disk = std::nullopt;  ///< of a job, where it is known
  /// Keeps what the config names from being removed; let go once the job can be seen in the store.
  Hold hold = {};
};

/// Compares requests with the ranks, the files and the memory that there are. Any thread may call
/// any method; each may take as long as a file system does.
class Admission {
 public:
  virtual ~Admission() = default;
  /// Fills in defaults and checks a job against ranks, data, memory and what this build offers.
  virtual Admitted admit(const v1::JobSpec& spec) = 0;
  /// The same for a run that a client drives.
  virtual Admitted admit_run(const v1::RunSpec& spec) = 0;
  /// Counts the memory of a run that has the ranks until the result is let go.
  virtual MemoryUnits hold_run(const v1::RunConfig& resolved) = 0;
  /// The config of a job for the ranks that there are if they are others than it was resolved for,
  /// or have other devices; nothing if it fits as it is. Throws train::NeedsOtherRanks and
  /// train::NeedsOtherDevices if it cannot be made to fit.
  virtual std::optional<v1::RunConfig> refit(const v1::Job& job) = 0;
  /// Whether the ranks have what run.device of a resolved config names (train::has_device).
  virtual bool has_device(const std::string& resolved) const = 0;
  /// A resolved config with other settings (train::resolve_settings), checked and filled in.
  virtual v1::RunConfig admit_settings(const v1::RunConfig& changed) = 0;
  /// What an evaluation of the weights in `folder`, which run.model.name stands for, makes of its
  /// config (train::resolve_evaluation_config), checked against the memory once the tokens of its
  /// text are made (`text`).
  virtual v1::RunConfig resolve_evaluation(const v1::RunConfig& given,
                                           const std::filesystem::path& folder,
                                           const train::TokenizedText& text) = 0;
  /// Counts its memory while it has the ranks, until the result is let go.
  virtual MemoryUnits hold_evaluation(const v1::RunConfig& resolved,
                                      const std::filesystem::path& folder) = 0;
  /// The path of a Hugging Face folder below the data dir.
  virtual std::filesystem::path find_hf_folder(const std::string& name) = 0;
  /// The absolute folder of the model that a resolved config names by run.model.name, looked at;
  /// empty if it names none. Throws NotFound, FailedPrecondition (DATA_CHANGED).
  virtual std::filesystem::path model_folder(const v1::RunConfig& resolved) = 0;
  /// The absolute folder whose tokenizer a resolved config means (train::tokenizer_folder), where
  /// run.model.name stands for the model in `model`.
  virtual std::filesystem::path tokenizer_folder(const v1::RunConfig& resolved,
                                                 const std::filesystem::path& model) = 0;
  /// Keeps the models of this daemon that a config names from being removed until the result is let
  /// go. Throws NotFound.
  virtual Hold hold_models(const v1::RunConfig& config) = 0;
  /// The tokens of the config's text by the tokenizer in `tokenizer`, made if they are not there
  /// (train::tokenize_text), for the model in `model` where run.model.name stands for one. Takes as
  /// long as there is text; what `progress` throws ends it.
  virtual train::TokenizedText tokenize(const v1::RunConfig& resolved,
                                        const std::filesystem::path& model,
                                        const std::filesystem::path& tokenizer,
                                        const train::TextProgress& progress) = 0;
  /// The same for the text that a batch of a run names, whose section `data` is then filled in as a
  /// job's would be; nothing for other data. Throws with fields below "reference.data".
  virtual train::TokenizedText tokenize_reference(const v1::RunConfig& resolved,
                                                  v1::DataReference* reference,
                                                  const train::TextProgress& progress) = 0;
  /// What a step of a resolved job takes; the memory alone, and why in `warnings`, where there is
  /// no more of an estimate.
  virtual v1::PlanEstimate estimate(const v1::RunConfig& resolved,
                                    std::vector<std::string>* warnings) = 0;
  /// What a rank could compute per second by what was measured for this daemon's ranks, in the
  /// dtype of a resolved config; 0 if it was not.
  virtual double measured_peak_flops(const v1::RunConfig& resolved) = 0;
  /// What the model of a resolved config can continue, with its tokenizer.
  virtual train::PromptLimits prompt_limits(const v1::RunConfig& resolved) = 0;
  /// Counts the memory of a copy of the weights of a run that has the ranks until the result is let
  /// go. Throws ResourceExhausted.
  virtual MemoryUnits hold_snapshot(const v1::RunConfig& resolved) = 0;
  /// The same for what a verb of a run takes from an upload of so many bytes.
  virtual MemoryUnits hold_upload(std::int64_t bytes) = 0;
  /// Counts the memory of caches until the result is let go. Throws ResourceExhausted.
  virtual MemoryUnits hold_cache(const CacheNeed& need) = 0;
};

}  // namespace meshloom::control
