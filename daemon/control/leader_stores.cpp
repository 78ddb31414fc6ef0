// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/leader_stores.h"

#include <cstdlib>

#include "daemon/control/stores/state_contents.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

JobStore::Options store_options(const StateDir& state, const v1::DaemonConfig& config,
                                std::shared_ptr<const Uses> uses, EventLog& events) {
  return {.jobs_dir = state.jobs(),
          .data_dir = config.data_dir(),
          .follow_timeout = milliseconds(config.resolve_timeout_ms()),
          .uses = std::move(uses),
          .hold_unfinished = config.no_resume(),
          .most_stalled_attempts = config.max_stalled_attempts(),
          .events = &events,
          .limits = Limits(config.limits())};
}

ModelStore::Options model_options(const StateDir& state, const v1::DaemonConfig& config,
                                  std::shared_ptr<const Uses> uses) {
  return {.folder = state.root() / "models",
          .data_dir = config.data_dir(),
          .resolve_timeout = milliseconds(config.resolve_timeout_ms()),
          .uses = std::move(uses)};
}

void look_after(UploadStore& uploads) {
  try {
    uploads.upkeep();
  } catch (const std::exception& error) {
    spdlog::warn("uploads are not looked after: {}", error.what());
  }
}

void give_turn(JobStore& jobs) {
  try {
    jobs.give_turn();
  } catch (const std::exception& error) {
    spdlog::warn("no job gives others their turn: {}", error.what());
  }
}

JobStore::Keep kept_jobs(const v1::RetentionConfig& config) {
  return {.most_ended = config.max_ended_jobs(), .longest = seconds(config.max_age_seconds())};
}

}  // namespace

void LeaderStores::LockLoss::lock_taken(const std::string& who) {
  spdlog::critical(
      "state dir {}: another meshloomd ({}) has begun on it, since this one was stopped for so "
      "long: this one ends at once and writes nothing more",
      state_dir, who);
  std::_Exit(1);
}

LeaderStores::LeaderStores(const v1::DaemonConfig& config)
    : lock_loss(config.state_dir()),
      state(config.state_dir(), {.observer = &lock_loss}),
      uploads({state.root() / "blobs", config.uploads(), Limits(config.limits())}),
      uses(std::make_shared<const Uses>(Uses::Configs{
          .jobs = [this](const ConfigTest& test) { return jobs.user_by_config(test); },
          .runs = [this](const ConfigTest& test) { return runs.user_by_config(test); },
          .models = [this](const ConfigTest& test) { return models.user_by_config(test); }})),
      models(model_options(state, config, uses), uploads),
      plans(uses),
      events(state.events()),
      jobs(store_options(state, config, uses, events)),
      ledger(open_ledger(state.journal(), {&jobs, &uploads, &models, &runs, &plans, &drain})),
      upkeep(seconds(1),
             [this] {
               look_after(uploads);
               give_turn(jobs);
             }),
      audit(state.root() / "logs" / "audit.jsonl", config.audit().max_bytes()),
      retention(jobs, kept_jobs(config.retention())) {}

}  // namespace meshloom::control
