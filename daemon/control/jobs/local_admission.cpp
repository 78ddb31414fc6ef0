// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/jobs/local_admission.h"

#include <algorithm>

#include "daemon/base/field_error.h"
#include "daemon/base/peak_flops.h"
#include "daemon/control/host/background_thread.h"
#include "daemon/control/jobs/disk_admission.h"
#include "daemon/control/jobs/memory_admission.h"
#include "daemon/control/jobs/resume_source.h"
#include "daemon/control/stores/checkpoint_files.h"
#include "daemon/control/stores/names.h"
#include "daemon/plan/job_memory.h"
#include "daemon/plan/plan_messages.h"
#include "daemon/plan/plan_query.h"
#include "daemon/train/config/chat_prompt.h"
#include "daemon/train/config/config_place.h"
#include "daemon/train/config/dtype_choice.h"
#include "daemon/train/config/micro_batch.h"
#include "daemon/train/config/refit.h"
#include "daemon/train/config/resolve.h"
#include "daemon/train/config/resolve_evaluation.h"
#include "daemon/train/config/resolve_stepped.h"
#include "daemon/train/data/chat_data.h"
#include "daemon/train/data/token_ids.h"
#include "daemon/train/files/model_source.h"
#include "daemon/train/files/paths.h"
#include "daemon/train/run/reference_text.h"
#include "daemon/train/run/run.h"
#include "daemon/train/run/run_mesh.h"
#include "daemon/train/run/sampler.h"
#include "kernels/backend_table.h"
#include "kernels/base/integer_math.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;

constexpr int kMostCalls = 64;
/// Lines of JSON are read for one part in so many of the time that a call may take. A line behind
/// those is refused when the job begins.
constexpr int kLinesShare = 3;
/// Whoever is refused a removal is told that this holds the model, the checkpoint or the plan.
constexpr const char* kBeingMade = "a job or run that is being made";

/// What a resolved config takes of the fullest rank.
RankBytes rank_bytes(const v1::RunConfig& resolved, const nn::ModelConfig& model) {
  const planner::MemoryEstimate estimate = plan::estimate_job_memory(resolved, model);
  if (!train::has_device_memory(resolved.device())) return {estimate.total()};
  return {plan::beside_device(estimate).total(), plan::on_device(estimate).total()};
}

/// What a rank may use of its device and of its host; 0: not known.
struct MemoryShares {
  std::int64_t device = 0, host = 0;
};

/// Puts what lies on the device in place of the memory of a rank on a CPU. It fits if what lies on
/// the host does so, too.
void move_memory(const planner::MemoryEstimate& rank, const MemoryShares& shares,
                 v1::PlanEstimate* estimate) {
  const auto fits = [](const planner::MemoryEstimate& part, std::int64_t share) {
    return share == 0 || part.total() <= share;
  };
  const planner::MemoryEstimate tensors = plan::on_device(rank);
  *estimate->mutable_memory() = plan::to_message(tensors);
  estimate->clear_memory_limit_bytes();
  if (shares.device > 0) estimate->set_memory_limit_bytes(shares.device);
  estimate->set_fits(fits(tensors, shares.device) && fits(plan::beside_device(rank), shares.host));
}

void set_memory(const planner::MemoryEstimate& rank, bool device, const MemoryShares& shares,
                v1::PlanEstimate* estimate) {
  if (device)
    move_memory(rank, shares, estimate);
  else
    *estimate->mutable_memory() = plan::to_message(rank);
}

/// Takes out what holds for the machine that plans are estimated for, which computes on its CPU.
void leave_machine(const v1::RunConfig& resolved, v1::PlanEstimate* estimate,
                   std::vector<std::string>* warnings) {
  warnings->push_back(
      fmt::format("run.device: there is no estimate of a step's time on {}", resolved.device()));
  estimate->clear_seconds();
  estimate->clear_cluster();
}

/// The result keeps the plan beside what it has kept already.
Admitted with_hold(Admitted admitted, Hold plan) {
  admitted.hold = Hold::join(std::move(plan), std::move(admitted.hold));
  return admitted;
}

}  // namespace

LocalAdmission::LocalAdmission(const JobStore& store, const StateDir& state, Options options)
    : store_(store),
      state_(state),
      options_(std::move(options)),
      memory_(
          options_.hosts, [] { return base::memory_limit(); }, options_.devices),
      calls_(options_.resolve_timeout, kMostCalls),
      loads_(std::chrono::hours(24), 1) {}

fs::path LocalAdmission::find_model(const v1::ModelSource& source) const {
  if (source.name().empty() || !options_.models) return {};
  return options_.models->folder(parse_model_name(source.name()));
}

fs::path LocalAdmission::find_tokenizer(const v1::RunConfig& config) const {
  const std::string& name = config.data().tokenizer();
  if (!name.starts_with("models/") || !options_.models) return {};
  return base::with_field("run.data.tokenizer",
                          [&] { return options_.models->folder(parse_model_name(name)); });
}

fs::path LocalAdmission::find_tokenizer_folder(const v1::RunConfig& resolved,
                                               const fs::path& model) const {
  return train::tokenizer_folder(resolved, {options_.data_dir, model, find_tokenizer(resolved)});
}

fs::path LocalAdmission::tokenizer_folder(const v1::RunConfig& resolved, const fs::path& model) {
  return calls_.run<fs::path>(
      [this, resolved, model] { return find_tokenizer_folder(resolved, model); });
}

train::TokenizedText LocalAdmission::tokenize(const v1::RunConfig& resolved, const fs::path& model,
                                              const fs::path& tokenizer,
                                              const train::TextProgress& progress) {
  train::TokenCache cache(state_.tokens(), static_cast<std::uint64_t>(options_.token_cache_bytes));
  // The ranks of the job wait meanwhile: the threads of all of them on this host are free.
  const int threads = options_.threads * std::max(1, options_.hosts.front().ranks);
  const nn::ModelConfig config =
      train::load_declared_config(resolved.model(), options_.data_dir, model).model;
  return train::tokenize_text(resolved, config.vocab_size, tokenizer, options_.data_dir, cache,
                              threads, progress);
}

train::TokenizedText LocalAdmission::tokenize_reference(const v1::RunConfig& resolved,
                                                        v1::DataReference* reference,
                                                        const train::TextProgress& progress) {
  v1::RunConfig config;
  *config.mutable_model() = resolved.model();
  *config.mutable_data() = reference->data();
  config.mutable_data()->clear_identity();  // the ranks compare it
  try {
    const auto hold = hold_models(config);
    const fs::path model = model_folder(config);
    const fs::path tokenizer = tokenizer_folder(config, model);
    const auto resolve = [this, data = config.data(), source = config.model(), model, tokenizer] {
      std::optional<v1::DataConfig> filled = data;
      const nn::ModelConfig shape =
          train::load_declared_config(source, options_.data_dir, model).model;
      if (!train::resolve_reference_text(*filled, shape, tokenizer, options_.data_dir))
        filled.reset();
      return filled;
    };
    const auto filled = calls_.run<std::optional<v1::DataConfig>>(resolve);
    if (!filled) return {};
    *config.mutable_data() = *filled;
    train::TokenizedText text = tokenize(config, model, tokenizer, progress);
    const v1::DataIdentity identity = reference->data().identity();
    const bool has_identity = reference->data().has_identity();
    *reference->mutable_data() = *filled;
    if (has_identity) *reference->mutable_data()->mutable_identity() = identity;
    return text;
  } catch (const Error& error) {
    throw train::in_reference_terms(error);
  }
}

Hold LocalAdmission::hold_model(const std::string& name) const {
  if (name.empty() || !options_.models) return {};
  return options_.models->hold(parse_model_name(name), kBeingMade);
}

Hold LocalAdmission::hold_models(const v1::RunConfig& config) {
  auto model =
      base::with_field("run.model.name", [&] { return hold_model(config.model().name()); });
  const std::string& tokenizer = config.data().tokenizer();
  if (!tokenizer.starts_with("models/")) return model;
  return Hold::join(std::move(model),
                    base::with_field("run.data.tokenizer", [&] { return hold_model(tokenizer); }));
}

Hold LocalAdmission::hold_checkpoints(v1::RunConfig config) const {
  config.mutable_checkpoint()->clear_resume_from();  // resolve_resume holds that checkpoint
  Hold all;
  for (const std::string& name : checkpoints_read(state_.jobs(), options_.data_dir, config))
    all =
        Hold::join(std::move(all), store_.pin_checkpoint(parse_checkpoint_name(name), kBeingMade));
  return all;
}

nn::ModelConfig LocalAdmission::load_config(const v1::ModelSource& source) const {
  return train::load_model_config(source, options_.data_dir, find_model(source));
}

train::ConfigPlace LocalAdmission::place_of(fs::path model_folder, fs::path tokenizer) const {
  // The host with the fewest ranks has so many.
  int fewest = options_.world_size;
  for (const auto& host : options_.hosts) fewest = std::min(fewest, host.ranks);
  return {.world_size = options_.world_size,
          .data_dir = options_.data_dir,
          .model_folder = std::move(model_folder),
          .named_tokenizer = std::move(tokenizer),
          .ranks_per_host = std::max(1, fewest),
          .devices = options_.devices};
}

fs::path LocalAdmission::model_folder(const v1::RunConfig& resolved) {
  return calls_.run<fs::path>([this, source = resolved.model()] { return find_model(source); });
}

v1::RunConfig LocalAdmission::with_plan(v1::RunConfig given, Hold* hold) const {
  const std::string name = given.plan().name();
  if (name.empty()) return given;
  constexpr const char* kField = "run.plan.name";
  given.mutable_plan()->clear_name();
  if (given.plan().ByteSizeLong() > 0 || given.mesh().ByteSizeLong() > 0)
    base::refuse_field(
        kField, "mesh and plan are those of plan \"{}\", nothing else of them may be given", name);
  if (!options_.plans) base::field_not_offered(kField, "this daemon keeps no plans");
  const v1::StoredPlan plan = base::with_field(
      kField, [&] { return options_.plans->get_held(parse_plan_name(name), kBeingMade, hold); });
  *given.mutable_mesh() = plan.mesh();
  *given.mutable_plan() = plan.plan();
  given.mutable_plan()->set_name(plan.id());
  return given;
}

void LocalAdmission::check_contents(const v1::RunConfig& resolved, std::int64_t vocab_size) {
  const auto until = std::chrono::steady_clock::now() + options_.resolve_timeout / kLinesShare;
  run_in_background([&] {
    train::check_lines(resolved, options_.data_dir, until, sound_lines_);
    if (resolved.data().has_chat())
      train::check_chat_lines(resolved,
                              find_tokenizer_folder(resolved, find_model(resolved.model())),
                              options_.data_dir, until, sound_lines_);
    train::check_files_of_tokens(resolved, vocab_size, options_.data_dir, until, sound_lines_);
  });
}

Admitted LocalAdmission::admit(const v1::JobSpec& spec) {
  Hold hold;
  const v1::RunConfig given = with_plan(spec.run(), &hold);
  Admitted admitted = admit_config(
      given, spec.overcommit(),
      [this, given](const fs::path& folder, Admitted* job) {
        const train::ConfigPlace place = place_of(folder, find_tokenizer(given));
        job->resolved = train::resolve_run_config(given, place, &job->warnings);
        if (given.checkpoint().resume_from().empty())
          train::check_source_weights(given.model(), options_.data_dir, folder);
        job->hold = Hold::join(std::move(job->hold), resolve_resume(given, &job->resolved, store_,
                                                                    state_, place.tokenizers()));
      },
      [this, spec](const nn::ModelConfig& model, Admitted* job) {
        check_contents(job->resolved, model.vocab_size);
        job->disk = check_disk(spec, job->resolved, model, state_.root(), &job->warnings);
      });
  return with_hold(std::move(admitted), std::move(hold));
}

double LocalAdmission::measured_peak_flops(const v1::RunConfig& resolved) {
  const Device device = train::device_of_rank_zero(resolved.device(), options_.devices);
  const auto peak = base::read_peak_flops(
      state_.root(), kernels::backend_for(device).describe().compute_class, options_.threads);
  return peak ? peak->of(resolved.plan().dtype()) : 0.0;
}

Admitted LocalAdmission::admit_run(const v1::RunSpec& spec) {
  Hold hold;
  const v1::RunConfig given = with_plan(spec.config(), &hold);
  Admitted admitted = admit_config(
      given, spec.overcommit(),
      [this, given, reads_weights = spec.state().empty()](const fs::path& folder, Admitted* run) {
        run->resolved = train::resolve_stepped_config(given, place_of(folder, {}), &run->warnings);
        if (reads_weights) train::check_source_weights(given.model(), options_.data_dir, folder);
      });
  return with_hold(std::move(admitted), std::move(hold));
}

Admitted LocalAdmission::admit_config(const v1::RunConfig& given, bool overcommit,
                                      const Resolve& resolve, const Look& look) {
  Hold models = hold_models(given);
  const bool open_micro_batch = !given.training().has_micro_batch_size() && !overcommit;
  return calls_.run<Admitted>([this, given, overcommit, open_micro_batch, resolve, look,
                               models = std::move(models)]() mutable {
    const v1::ModelSource& source = given.model();
    state_.check_in_place();
    Admitted admitted;
    admitted.hold = Hold::join(std::move(models), hold_checkpoints(given));
    const fs::path folder = base::with_field("run.model.name", [&] { return find_model(source); });
    resolve(folder, &admitted);
    if (!folder.empty())
      admitted.resolved.mutable_model()->set_name(parse_model_name(source.name()));
    const nn::ModelConfig model =
        train::load_model_config(admitted.resolved.model(), options_.data_dir, folder);
    for (std::string& note :
         train::check_config_keys(admitted.resolved.model(), model, options_.data_dir, folder))
      admitted.warnings.push_back(std::move(note));
    // A micro batch that a checkpoint was trained with is kept; a run may have no batches of its
    // own.
    if (open_micro_batch &&
        admitted.resolved.training().micro_batch_size() == train::rank_share(admitted.resolved))
      if (auto note = choose_micro_batch(&admitted.resolved, model,
                                         tensor_memory_of_rank(admitted.resolved)))
        admitted.warnings.push_back(std::move(*note));
    if (auto note = memory_.check_job(admitted.resolved, model, overcommit))
      admitted.warnings.push_back(std::move(*note));
    look(model, &admitted);
    return admitted;
  });
}

MemoryUnits LocalAdmission::hold_run(const v1::RunConfig& resolved) {
  return count_run(calls_.run<RankBytes>([this, resolved] { return bytes_of(resolved); }));
}

std::optional<v1::RunConfig> LocalAdmission::refit(const v1::Job& job) {
  if (train::mesh_layout(job.resolved().mesh()).size() == options_.world_size &&
      has_device(job.resolved().device()))
    return std::nullopt;
  return calls_.run<v1::RunConfig>([this, job] {
    v1::RunConfig given = job.spec().run();
    if (!given.plan().name().empty()) {
      // A plan has one mesh, which other ranks do not fit.
      *given.mutable_mesh() = job.resolved().mesh();
      *given.mutable_plan() = job.resolved().plan();
    }
    fs::path model = find_model(job.resolved().model());
    return train::refit_run_config(given, job.resolved(),
                                   place_of(std::move(model), find_tokenizer(job.resolved())));
  });
}

v1::RunConfig LocalAdmission::admit_settings(const v1::RunConfig& changed) {
  return calls_.run<v1::RunConfig>([this, config = changed]() mutable {
    train::resolve_settings(config, options_.data_dir, find_model(config.model()));
    return config;
  });
}

v1::RunConfig LocalAdmission::resolve_evaluation(const v1::RunConfig& given, const fs::path& folder,
                                                 const train::TokenizedText& text) {
  return calls_.run<v1::RunConfig>([this, given, folder, text] {
    v1::RunConfig resolved =
        train::resolve_evaluation_config(given, place_of(folder, find_tokenizer(given)), text);
    train::check_source_weights(given.model(), options_.data_dir, folder);
    // Nobody knows how many samples a batch has at most until text is tokenized.
    if (resolved.data().identity().tokens() > 0)
      memory_.check_job(resolved,
                        train::load_model_config(resolved.model(), options_.data_dir, folder),
                        /*overcommit=*/false);
    return resolved;
  });
}

MemoryUnits LocalAdmission::hold_evaluation(const v1::RunConfig& resolved, const fs::path& folder) {
  return count_run(calls_.run<RankBytes>([this, resolved, folder] {
    return rank_bytes(resolved,
                      train::load_model_config(resolved.model(), options_.data_dir, folder));
  }));
}

v1::PlanEstimate LocalAdmission::estimate(const v1::RunConfig& resolved,
                                          std::vector<std::string>* warnings) {
  const nn::ModelConfig config = model_config(resolved.model());
  const v1::TrainingConfig& training = resolved.training();
  v1::PlanQuery query;
  *query.mutable_mesh() = resolved.mesh();
  *query.mutable_plan() = resolved.plan();
  query.mutable_plan()->clear_name();
  query.set_seq_len(training.seq_len());
  query.set_micro_batch_size(training.micro_batch_size());
  query.set_global_batch_size(training.global_batch_size());
  const v1::OptimizerConfig& optimizer = resolved.optimizer();
  if (optimizer.type() == v1::OPTIMIZER_TYPE_SGD)
    query.set_optimizer(optimizer.momentum() > 0 ? "sgd_momentum" : "sgd");
  const bool device = train::has_device_memory(resolved.device());
  const MemoryShares shares{tensor_memory_of_rank(resolved), memory_of_rank()};
  if (shares.host > 0) query.set_memory_limit_bytes(shares.host);
  try {
    v1::PlanEstimate estimate = plan::estimate_plan(config, query);
    // A query knows nothing of frozen parameters.
    if (device || !training.frozen().empty())
      set_memory(plan::estimate_job_memory(resolved, config), device, shares, &estimate);
    if (device) leave_machine(resolved, &estimate, warnings);
    return estimate;
  } catch (const Unimplemented& error) {
    warnings->push_back(
        fmt::format("run.plan: the memory is an upper bound, and there is no "
                    "estimate of time and bytes: {}",
                    error.what()));
    v1::PlanEstimate memory;
    set_memory(plan::estimate_job_memory(resolved, config), device, shares, &memory);
    return memory;
  }
}

std::int64_t LocalAdmission::memory_of_rank() const {
  std::int64_t least = 0;
  for (const HostMemory& host : options_.hosts) {
    if (host.limit.bytes <= 0 || host.ranks <= 0) continue;
    const std::int64_t share = host.limit.bytes / host.ranks;
    if (least == 0 || share < least) least = share;
  }
  return least;
}

std::int64_t LocalAdmission::tensor_memory_of_rank(const v1::RunConfig& resolved) const {
  if (!train::has_device_memory(resolved.device())) return memory_of_rank();
  std::int64_t least = 0;
  for (const train::HostDevices& host : options_.devices)
    for (const auto& [used, ranks] : train::used_devices(resolved.device(), host)) {
      const std::int64_t share = used.memory_bytes / ranks;
      if (share > 0 && (least == 0 || share < least)) least = share;
    }
  return least;
}

nn::ModelConfig LocalAdmission::model_config(const v1::ModelSource& source) {
  return calls_.run<nn::ModelConfig>([this, source] {
    nn::ModelConfig config = load_config(source);
    train::check_config_keys(source, config, options_.data_dir, find_model(source));
    return config;
  });
}

std::filesystem::path LocalAdmission::find_hf_folder(const std::string& name) {
  return calls_.run<std::filesystem::path>(
      [this, name] { return train::resolve_path(name, options_.data_dir, "hf_folder"); });
}

train::PromptLimits LocalAdmission::prompt_limits(const v1::RunConfig& resolved) {
  return calls_.run<train::PromptLimits>([this, resolved](const BoundedCalls::Alive& alive) {
    const fs::path model = find_model(resolved.model());
    train::PromptLimits limits = train::prompt_limits(
        train::load_declared_config(resolved.model(), options_.data_dir, model).model, resolved);
    const fs::path tokenizer = find_tokenizer_folder(resolved, model);
    train::add_tokenizer(limits, tokenizer, tokenizers_, alive);
    train::add_chat_of_job(limits, resolved.data(), tokenizer, options_.data_dir);
    limits.generation = train::find_generation_config(resolved.model(), options_.data_dir, model,
                                                      limits.vocab_size);
    return limits;
  });
}

MemoryUnits LocalAdmission::hold_snapshot(const v1::RunConfig& resolved) {
  return calls_.run<MemoryUnits>([this, resolved] {
    const std::int64_t model =
        nn::parameter_count(load_config(resolved.model())) *
        static_cast<std::int64_t>(dtype_size(train::dtype_of(resolved.plan())));
    const v1::Mesh& mesh = resolved.mesh();
    const std::int64_t shards = std::max(1, mesh.fsdp()) * std::max(1, mesh.tp());
    return memory_.hold_weights(divide_up(model, shards), resolved.device(), job_bytes());
  });
}

MemoryUnits LocalAdmission::hold_upload(std::int64_t bytes) {
  // The drive thread of a run asks, which a file system that hangs must not stop.
  return memory_.hold_upload(bytes, calls_.run<RankBytes>([this] { return job_bytes(); }).host);
}

MemoryUnits LocalAdmission::hold_cache(const CacheNeed& need) {
  return memory_.hold_cache(need, calls_.run<RankBytes>([this] { return job_bytes(); }));
}

SourceCache::Loaded LocalAdmission::load_source(const std::filesystem::path& folder) {
  SourceCache::Loaded loaded{
      memory_.hold_source(train::Sampler::weight_bytes(folder), job_bytes().host), nullptr};
  // A stop does not wait for a large model, nor for a file system that hangs.
  loaded.sampler = loads_.run<std::unique_ptr<train::Sampler>>(
      [folder, jobs = state_.jobs(), threads = options_.threads] {
        std::unique_ptr<train::Sampler> sampler;
        const auto load = [&] {
          ExecutionContext::Options context;
          context.threads = Threads{threads};
          sampler = train::Sampler::load(context, folder);
        };
        if (const auto name = checkpoint_at(jobs, folder))
          read_checkpoint(checkpoint_resource(name->job, name->folder), folder, load);
        else
          load();
        return sampler;
      });
  return loaded;
}

MemoryUnits LocalAdmission::count_run(const RankBytes& bytes) {
  return run_bytes_.take({{kHostAccount, bytes.host}, {kDeviceAccount, bytes.device}});
}

RankBytes LocalAdmission::job_bytes() const {
  const auto job = store_.active_job();
  if (job) return bytes_of(job->resolved());
  return {run_bytes_.taken(kHostAccount), run_bytes_.taken(kDeviceAccount)};
}

RankBytes LocalAdmission::bytes_of(const v1::RunConfig& resolved) const {
  try {
    return rank_bytes(resolved, load_config(resolved.model()));
  } catch (const Error& error) {
    spdlog::warn("the memory of what has the ranks is not counted beside a generation: {}",
                 error.what());
    return {};
  }
}

}  // namespace meshloom::control
