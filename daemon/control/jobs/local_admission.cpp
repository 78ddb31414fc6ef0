// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/jobs/local_admission.h"

#include "daemon/control/jobs/resume_source.h"
#include "daemon/plan/job_memory.h"
#include "daemon/train/model_source.h"
#include "daemon/train/paths.h"
#include "daemon/train/run.h"
#include "daemon/train/run_mesh.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

constexpr int kMostCalls = 64;

}  // namespace

LocalAdmission::LocalAdmission(const JobStore& store, const StateDir& state, Options options)
    : store_(store),
      state_(state),
      options_(std::move(options)),
      memory_(options_.hosts),
      calls_(options_.resolve_timeout, kMostCalls),
      loads_(std::chrono::hours(24), 1) {}

Admitted LocalAdmission::admit(const v1::JobSpec& spec) {
  return calls_.run<Admitted>([this, spec] {
    state_.check_in_place();
    Admitted job;
    job.resolved = train::resolve_run_config(spec.run(), options_.world_size, options_.data_dir,
                                             &job.warnings);
    resolve_resume(spec.run(), &job.resolved, store_, state_, options_.data_dir);
    const nn::ModelConfig model = train::load_model_config(job.resolved.model(), options_.data_dir);
    if (auto note = memory_.check_job(job.resolved, model, spec.overcommit()))
      job.warnings.push_back(std::move(*note));
    return job;
  });
}

std::optional<v1::RunConfig> LocalAdmission::refit(const v1::Job& job) {
  if (train::mesh_layout(job.resolved().mesh()).size() == options_.world_size) return std::nullopt;
  return calls_.run<v1::RunConfig>([this, job] {
    return train::refit_run_config(job.spec().run(), job.resolved(), options_.world_size,
                                   options_.data_dir);
  });
}

std::filesystem::path LocalAdmission::find_hf_folder(const std::string& name) {
  return calls_.run<std::filesystem::path>(
      [this, name] { return train::resolve_path(name, options_.data_dir, "hf_folder"); });
}

train::PromptLimits LocalAdmission::prompt_limits(const v1::RunConfig& resolved) {
  return calls_.run<train::PromptLimits>([this, resolved] {
    return train::prompt_limits(train::load_model_config(resolved.model(), options_.data_dir),
                                resolved);
  });
}

std::shared_ptr<const void> LocalAdmission::hold_cache(const CacheNeed& need) {
  return memory_.hold_cache(need, calls_.run<std::int64_t>([this] { return job_bytes(); }));
}

SourceCache::Loaded LocalAdmission::load_source(const std::filesystem::path& folder) {
  SourceCache::Loaded loaded{memory_.hold_source(train::Sampler::weight_bytes(folder), job_bytes()),
                             nullptr};
  // A stop does not wait for a large model, nor for a file system that hangs.
  loaded.sampler =
      loads_.run<std::unique_ptr<train::Sampler>>([folder, threads = options_.threads] {
        ExecutionContext::Options context;
        context.threads = Threads{threads};
        return train::Sampler::load(context, folder);
      });
  return loaded;
}

std::int64_t LocalAdmission::job_bytes() const {
  const auto job = store_.active_job();
  if (!job) return 0;
  try {
    const nn::ModelConfig running =
        train::load_model_config(job->resolved().model(), options_.data_dir);
    return plan::estimate_job_memory(job->resolved(), running).total();
  } catch (const Error& error) {
    spdlog::warn("the memory of {} is not counted beside a generation: {}", job->name(),
                 error.what());
    return 0;
  }
}

}  // namespace meshloom::control
