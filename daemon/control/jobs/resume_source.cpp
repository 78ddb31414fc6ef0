// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/jobs/resume_source.h"

#include <fmt/ranges.h>

#include "daemon/base/field_error.h"
#include "daemon/base/states.h"
#include "daemon/control/stores/checkpoint_files.h"
#include "daemon/control/stores/names.h"
#include "daemon/train/config/resume_check.h"
#include "daemon/train/files/manifest.h"
#include "daemon/train/files/paths.h"
#include "daemon/train/run/run.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;

constexpr const char* kField = "run.checkpoint.resume_from";
constexpr std::string_view kPrefix = "checkpoints/";

/// The newest step whose manifest is sound; what the files hold is for the ranks to verify.
std::int64_t newest_readable(const fs::path& checkpoints, const std::vector<std::int64_t>& steps,
                             bool fallback) {
  for (auto step = steps.rbegin(); fallback && step != steps.rend(); ++step) {
    try {
      train::read_manifest(checkpoints / train::checkpoint_folder_name(*step));
      return *step;
    } catch (const DataLoss& error) {
      spdlog::warn("{}", error.what());
    }
  }
  return steps.back();
}

/// "checkpoints/JOB" or "checkpoints/JOB/step-N" -> the latter, which exists.
std::string existing_checkpoint(const std::string& name, bool fallback, const JobStore& store,
                                const StateDir& state) {
  const std::string rest = name.substr(kPrefix.size());
  const auto slash = rest.find('/');
  const std::string id = parse_job_name(rest.substr(0, slash));
  const v1::Job job = store.get(id);
  if (!base::is_final(job.state()))
    throw FailedPrecondition(
        fmt::format("job \"{}\" has not ended, its checkpoints come and go; wait for it or cancel "
                    "it first",
                    id),
        "JOB_NOT_FINISHED");
  const auto steps = checkpoint_steps(state, id);
  if (steps.empty())
    throw NotFound(fmt::format("job \"{}\" has no checkpoint", id), train::kCheckpointNotFound);
  if (slash == std::string::npos)
    return checkpoint_resource(
        id, train::checkpoint_folder_name(newest_readable(state.checkpoints(id), steps, fallback)));
  for (const std::int64_t step : steps)
    if (rest.substr(slash + 1) == train::checkpoint_folder_name(step)) return name;
  throw NotFound(fmt::format("{} does not exist, job \"{}\" has step-{}", name, id,
                             fmt::join(steps, ", step-")),
                 train::kCheckpointNotFound);
}

}  // namespace

fs::path resume_folder(const v1::RunConfig& resolved, const StateDir& state,
                       const fs::path& data_dir) {
  const std::string& name = resolved.checkpoint().resume_from();
  if (name.empty()) return {};
  if (!names_a_job(name)) return train::below_data_folders(name, data_dir);
  const CheckpointName parts = parse_checkpoint_name(name);
  return state.checkpoints(parts.job) / parts.folder;
}

bool may_resume_older(const v1::Job& job) {
  const std::string& given = job.spec().run().checkpoint().resume_from();
  return job.resolved().checkpoint().fallback() && names_a_job(given) &&
         given.find('/', kPrefix.size()) == std::string::npos;
}

Hold resolve_resume(const v1::RunConfig& given, v1::RunConfig* config, const JobStore& store,
                    const StateDir& state, const train::TokenizerSource& folders) {
  const bool fallback = config->checkpoint().fallback();
  std::string& name = *config->mutable_checkpoint()->mutable_resume_from();
  if (name.empty()) return {};
  if (names_a_job(name)) {
    name =
        base::with_field(kField, [&] { return existing_checkpoint(name, fallback, store, state); });
  } else if (!train::is_checkpoint(train::resolve_path(name, folders.data_dir, kField))) {
    base::refuse_field(kField, "\"{}\" is no checkpoint: it has no {}", name, train::kManifestName);
  }
  const fs::path folder = resume_folder(*config, state, folders.data_dir);
  Hold pin;
  if (const auto source = checkpoint_at(state.jobs(), folder)) {
    pin = store.pin_checkpoint(*source, "a job that is being submitted");
    // It may have gone before that.
    if (!train::is_checkpoint(folder))
      throw NotFound(fmt::format("{} was deleted", name), train::kCheckpointNotFound,
                     {{"field", kField}});
  }
  train::resolve_resume_from(given, config, folder, folders);
  return pin;
}

}  // namespace meshloom::control
