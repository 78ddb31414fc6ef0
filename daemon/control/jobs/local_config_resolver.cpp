// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/jobs/local_config_resolver.h"

#include <algorithm>
#include <chrono>

#include "daemon/base/field_error.h"
#include "daemon/base/peak_flops.h"
#include "daemon/control/host/background_thread.h"
#include "daemon/control/jobs/disk_admission.h"
#include "daemon/control/jobs/resume_source.h"
#include "daemon/control/jobs/step_estimate.h"
#include "daemon/control/stores/checkpoint_files.h"
#include "daemon/control/stores/names.h"
#include "daemon/train/config/micro_batch.h"
#include "daemon/train/config/resolve.h"
#include "daemon/train/config/resolve_evaluation.h"
#include "daemon/train/config/resolve_stepped.h"
#include "daemon/train/data/chat_data.h"
#include "daemon/train/data/token_ids.h"
#include "daemon/train/files/model_source.h"
#include "daemon/train/run/run_mesh.h"
#include "kernels/backend_table.h"

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;

/// Lines of JSON are read for one part in so many of the time that a call may take. A line behind
/// those is refused when the job begins.
constexpr int kLinesShare = 3;

/// The result keeps the plan beside what it has kept already.
Admitted with_hold(Admitted admitted, Hold plan) {
  admitted.hold = Hold::join(std::move(plan), std::move(admitted.hold));
  return admitted;
}

}  // namespace

Hold LocalConfigResolver::hold_checkpoints(v1::RunConfig config) const {
  config.mutable_checkpoint()->clear_resume_from();  // resolve_resume holds that checkpoint
  Hold all;
  for (const std::string& name : checkpoints_read(state_.jobs(), resources_.data_dir, config))
    all =
        Hold::join(std::move(all), store_.pin_checkpoint(parse_checkpoint_name(name), kBeingMade));
  return all;
}

train::ConfigPlace LocalConfigResolver::place_of(fs::path model_folder, fs::path tokenizer) const {
  // The host with the fewest ranks has so many.
  int fewest = resources_.world_size;
  for (const auto& host : resources_.hosts) fewest = std::min(fewest, host.ranks);
  return {.world_size = resources_.world_size,
          .data_dir = resources_.data_dir,
          .model_folder = std::move(model_folder),
          .named_tokenizer = std::move(tokenizer),
          .ranks_per_host = std::max(1, fewest),
          .devices = resources_.devices};
}

v1::RunConfig LocalConfigResolver::with_plan(v1::RunConfig given, Hold* hold) const {
  const std::string name = given.plan().name();
  if (name.empty()) return given;
  constexpr const char* kField = "run.plan.name";
  given.mutable_plan()->clear_name();
  if (given.plan().ByteSizeLong() > 0 || given.mesh().ByteSizeLong() > 0)
    base::refuse_field(
        kField, "mesh and plan are those of plan \"{}\", nothing else of them may be given", name);
  if (!resources_.plans) base::field_not_offered(kField, "this daemon keeps no plans");
  const v1::StoredPlan plan = base::with_field(
      kField, [&] { return resources_.plans->get_held(parse_plan_name(name), kBeingMade, hold); });
  *given.mutable_mesh() = plan.mesh();
  *given.mutable_plan() = plan.plan();
  given.mutable_plan()->set_name(plan.id());
  return given;
}

void LocalConfigResolver::check_contents(const v1::RunConfig& resolved, std::int64_t vocab_size) {
  const auto until = std::chrono::steady_clock::now() + resources_.resolve_timeout / kLinesShare;
  run_in_background([&] {
    train::check_lines(resolved, resources_.data_dir, until, sound_lines_);
    if (resolved.data().has_chat())
      train::check_chat_lines(
          resolved, folders_.find_tokenizer_folder(resolved, folders_.find_model(resolved.model())),
          resources_.data_dir, until, sound_lines_);
    train::check_files_of_tokens(resolved, vocab_size, resources_.data_dir, until, sound_lines_);
  });
}

template <typename Resolve, typename Look>
Admitted LocalConfigResolver::admit_config(const v1::RunConfig& given, bool overcommit,
                                           Resolve resolve, Look look) {
  Hold models = folders_.hold_models(given);
  const bool open_micro_batch = !given.training().has_micro_batch_size() && !overcommit;
  return calls_.run<Admitted>([this, given, overcommit, open_micro_batch, resolve, look,
                               models = std::move(models)]() mutable {
    const v1::ModelSource& source = given.model();
    state_.check_in_place();
    Admitted admitted;
    admitted.hold = Hold::join(std::move(models), hold_checkpoints(given));
    const fs::path folder =
        base::with_field("run.model.name", [&] { return folders_.find_model(source); });
    resolve(folder, &admitted);
    if (!folder.empty())
      admitted.resolved.mutable_model()->set_name(parse_model_name(source.name()));
    const nn::ModelConfig model = folders_.load_config(admitted.resolved.model(), folder);
    for (std::string& note :
         train::check_config_keys(admitted.resolved.model(), model, resources_.data_dir, folder))
      admitted.warnings.push_back(std::move(note));
    // A micro batch that a checkpoint was trained with is kept; a run may have no batches of its
    // own.
    if (open_micro_batch &&
        admitted.resolved.training().micro_batch_size() == train::rank_share(admitted.resolved))
      if (auto note = choose_micro_batch(&admitted.resolved, model,
                                         tensor_memory_of_rank(resources_, admitted.resolved)))
        admitted.warnings.push_back(std::move(*note));
    if (auto note = memory_.check_job(admitted.resolved, model, overcommit))
      admitted.warnings.push_back(std::move(*note));
    look(model, &admitted);
    return admitted;
  });
}

Admitted LocalConfigResolver::admit(const v1::JobSpec& spec) {
  Hold hold;
  const v1::RunConfig given = with_plan(spec.run(), &hold);
  Admitted admitted = admit_config(
      given, spec.overcommit(),
      [this, given](const fs::path& folder, Admitted* job) {
        const train::ConfigPlace place = place_of(folder, folders_.find_tokenizer(given));
        job->resolved = train::resolve_run_config(given, place, &job->warnings);
        if (given.checkpoint().resume_from().empty())
          train::check_source_weights(given.model(), resources_.data_dir, folder);
        job->hold = Hold::join(std::move(job->hold), resolve_resume(given, &job->resolved, store_,
                                                                    state_, place.tokenizers()));
      },
      [this, spec](const nn::ModelConfig& model, Admitted* job) {
        check_contents(job->resolved, model.vocab_size);
        job->disk = check_disk(spec, job->resolved, model, state_.root(), &job->warnings);
      });
  return with_hold(std::move(admitted), std::move(hold));
}

double LocalConfigResolver::measured_peak_flops(const v1::RunConfig& resolved) {
  const Device device = train::device_of_rank_zero(resolved.device(), resources_.devices);
  const auto peak = base::read_peak_flops(
      state_.root(), kernels::backend_for(device).describe().compute_class, resources_.threads);
  return peak ? peak->of(resolved.plan().dtype()) : 0.0;
}

Admitted LocalConfigResolver::admit_run(const v1::RunSpec& spec) {
  Hold hold;
  const v1::RunConfig given = with_plan(spec.config(), &hold);
  Admitted admitted = admit_config(
      given, spec.overcommit(),
      [this, given, reads_weights = spec.state().empty()](const fs::path& folder, Admitted* run) {
        run->resolved = train::resolve_stepped_config(given, place_of(folder, {}), &run->warnings);
        if (reads_weights) train::check_source_weights(given.model(), resources_.data_dir, folder);
      },
      [](const nn::ModelConfig&, Admitted*) {});
  return with_hold(std::move(admitted), std::move(hold));
}

std::optional<v1::RunConfig> LocalConfigResolver::refit(const v1::Job& job) {
  if (train::mesh_layout(job.resolved().mesh()).size() == resources_.world_size &&
      has_device(job.resolved().device()))
    return std::nullopt;
  return calls_.run<v1::RunConfig>([this, job] {
    v1::RunConfig given = job.spec().run();
    if (!given.plan().name().empty()) {
      // A plan has one mesh, which other ranks do not fit.
      *given.mutable_mesh() = job.resolved().mesh();
      *given.mutable_plan() = job.resolved().plan();
    }
    fs::path model = folders_.find_model(job.resolved().model());
    return train::refit_run_config(
        given, job.resolved(), place_of(std::move(model), folders_.find_tokenizer(job.resolved())));
  });
}

v1::RunConfig LocalConfigResolver::admit_settings(const v1::RunConfig& changed) {
  return calls_.run<v1::RunConfig>([this, config = changed]() mutable {
    train::resolve_settings(config, resources_.data_dir, folders_.find_model(config.model()));
    return config;
  });
}

v1::RunConfig LocalConfigResolver::resolve_evaluation(const v1::RunConfig& given,
                                                      const fs::path& folder,
                                                      const train::TokenizedText& text) {
  return calls_.run<v1::RunConfig>([this, given, folder, text] {
    v1::RunConfig resolved = train::resolve_evaluation_config(
        given, place_of(folder, folders_.find_tokenizer(given)), text);
    train::check_source_weights(given.model(), resources_.data_dir, folder);
    // Nobody knows how many samples a batch has at most until text is tokenized.
    if (resolved.data().identity().tokens() > 0)
      memory_.check_job(resolved, folders_.load_config(resolved.model(), folder),
                        /*overcommit=*/false);
    return resolved;
  });
}

bool LocalConfigResolver::has_device(const std::string& resolved) const {
  return train::has_device(resources_.devices, resolved);
}

v1::PlanEstimate LocalConfigResolver::estimate(const v1::RunConfig& resolved,
                                               std::vector<std::string>* warnings) {
  return estimate_step(
      resolved, folders_.model_config(resolved.model()),
      {tensor_memory_of_rank(resources_, resolved), host_memory_of_rank(resources_.hosts)},
      warnings);
}

}  // namespace meshloom::control
