// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/jobs/local_admission.h"

#include <algorithm>

#include "daemon/base/field_error.h"
#include "daemon/control/jobs/resume_source.h"
#include "daemon/control/stores/names.h"
#include "daemon/plan/job_memory.h"
#include "daemon/train/dtype_choice.h"
#include "daemon/train/model_source.h"
#include "daemon/train/paths.h"
#include "daemon/train/run.h"
#include "daemon/train/run_mesh.h"
#include "daemon/train/stepped_run.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;

constexpr int kMostCalls = 64;

/// Of the host with the fewest.
int ranks_per_host(const LocalAdmission::Options& options) {
  int fewest = options.world_size;
  for (const HostMemory& host : options.hosts) fewest = std::min(fewest, host.ranks);
  return std::max(1, fewest);
}

}  // namespace

LocalAdmission::LocalAdmission(const JobStore& store, const StateDir& state, Options options)
    : store_(store),
      state_(state),
      options_(std::move(options)),
      memory_(options_.hosts),
      calls_(options_.resolve_timeout, kMostCalls),
      loads_(std::chrono::hours(24), 1) {}

fs::path LocalAdmission::find_model(const v1::ModelSource& source) const {
  if (source.name().empty() || !options_.models) return {};
  return options_.models->folder(parse_model_name(source.name()));
}

std::shared_ptr<const void> LocalAdmission::hold_model(const v1::ModelSource& source) const {
  if (source.name().empty() || !options_.models) return nullptr;
  const std::string id = parse_model_name(source.name());
  constexpr const char* kUser = "a job or run that is being made";
  options_.models->pin(id, kUser);
  return {nullptr, [models = options_.models, id](const void*) { models->unpin(id, kUser); }};
}

nn::ModelConfig LocalAdmission::load_config(const v1::ModelSource& source) const {
  return train::load_model_config(source, options_.data_dir, find_model(source));
}

fs::path LocalAdmission::model_folder(const v1::RunConfig& resolved) {
  return calls_.run<fs::path>([this, source = resolved.model()] { return find_model(source); });
}

Admitted LocalAdmission::admit(const v1::JobSpec& spec) {
  return admit_config(
      spec.run(), spec.overcommit(),
      [this, spec](const fs::path& folder, std::vector<std::string>* warnings) {
        v1::RunConfig resolved =
            train::resolve_run_config(spec.run(), options_.world_size, options_.data_dir, warnings,
                                      folder, ranks_per_host(options_));
        resolve_resume(spec.run(), &resolved, store_, state_, options_.data_dir, folder);
        return resolved;
      });
}

Admitted LocalAdmission::admit_run(const v1::RunSpec& spec) {
  return admit_config(spec.config(), spec.overcommit(),
                      [this, spec](const fs::path& folder, std::vector<std::string>* warnings) {
                        return train::resolve_stepped_config(spec.config(), options_.world_size,
                                                             options_.data_dir, folder, warnings,
                                                             ranks_per_host(options_));
                      });
}

Admitted LocalAdmission::admit_config(const v1::RunConfig& given, bool overcommit,
                                      const Resolve& resolve) {
  const auto hold = base::with_field("run.model.name", [&] { return hold_model(given.model()); });
  return calls_.run<Admitted>([this, source = given.model(), overcommit, resolve, hold] {
    state_.check_in_place();
    Admitted admitted;
    admitted.hold = hold;
    const fs::path folder = base::with_field("run.model.name", [&] { return find_model(source); });
    admitted.resolved = resolve(folder, &admitted.warnings);
    if (!folder.empty())
      admitted.resolved.mutable_model()->set_name(parse_model_name(source.name()));
    const nn::ModelConfig model =
        train::load_model_config(admitted.resolved.model(), options_.data_dir, folder);
    if (auto note = memory_.check_job(admitted.resolved, model, overcommit))
      admitted.warnings.push_back(std::move(*note));
    return admitted;
  });
}

std::shared_ptr<const void> LocalAdmission::hold_run(const v1::RunConfig& resolved) {
  *run_bytes_ = calls_.run<std::int64_t>([this, resolved] { return bytes_of(resolved); });
  return {nullptr, [bytes = run_bytes_](const void*) { *bytes = 0; }};
}

std::optional<v1::RunConfig> LocalAdmission::refit(const v1::Job& job) {
  if (train::mesh_layout(job.resolved().mesh()).size() == options_.world_size) return std::nullopt;
  return calls_.run<v1::RunConfig>([this, job] {
    return train::refit_run_config(job.spec().run(), job.resolved(), options_.world_size,
                                   options_.data_dir, find_model(job.resolved().model()),
                                   ranks_per_host(options_));
  });
}

std::filesystem::path LocalAdmission::find_hf_folder(const std::string& name) {
  return calls_.run<std::filesystem::path>(
      [this, name] { return train::resolve_path(name, options_.data_dir, "hf_folder"); });
}

train::PromptLimits LocalAdmission::prompt_limits(const v1::RunConfig& resolved) {
  return calls_.run<train::PromptLimits>(
      [this, resolved] { return train::prompt_limits(load_config(resolved.model()), resolved); });
}

std::shared_ptr<const void> LocalAdmission::hold_snapshot(const v1::RunConfig& resolved) {
  return calls_.run<std::shared_ptr<const void>>([this, resolved] {
    const std::int64_t model =
        nn::parameter_count(load_config(resolved.model())) *
        static_cast<std::int64_t>(dtype_size(train::dtype_of(resolved.plan())));
    const v1::Mesh& mesh = resolved.mesh();
    const std::int64_t shards = std::max(1, mesh.fsdp()) * std::max(1, mesh.tp());
    const int ranks = options_.hosts.front().ranks;
    return memory_.hold_source((model * ranks + shards - 1) / shards, job_bytes());
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
  return job ? bytes_of(job->resolved()) : run_bytes_->load();
}

std::int64_t LocalAdmission::bytes_of(const v1::RunConfig& resolved) const {
  try {
    return plan::estimate_job_memory(resolved, load_config(resolved.model())).total();
  } catch (const Error& error) {
    spdlog::warn("the memory of what has the ranks is not counted beside a generation: {}",
                 error.what());
    return 0;
  }
}

}  // namespace meshloom::control
