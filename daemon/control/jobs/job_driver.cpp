// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/jobs/job_driver.h"

#include <fmt/ranges.h>

#include "daemon/base/enum_names.h"
#include "daemon/control/jobs/job_attempt.h"
#include "daemon/control/jobs/resume_source.h"
#include "daemon/control/net/status.h"
#include "daemon/control/stores/checkpoint_files.h"
#include "daemon/control/stores/found_damage.h"
#include "daemon/control/stores/names.h"
#include "daemon/train/config/device_choice.h"
#include "daemon/train/config/refit.h"
#include "daemon/train/files/manifest.h"
#include "daemon/train/run/run.h"
#include "daemon/train/run/run_mesh.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

/// Waits for the ranks: the job that is next may be cancelled, or another one may come before it
/// meanwhile.
class NextJob final : public RanksTurn::Waiter {
 public:
  NextJob(JobStore& store, const std::atomic<bool>& stop, const std::string& id)
      : store_(store), stop_(stop), id_(id) {}
  bool gives_up() override { return stop_ || store_.next_job() != id_; }
  RanksTurn::Place place() override {
    return store_.comes_first(id_) ? RanksTurn::Place::kFirst : RanksTurn::Place::kLast;
  }

 private:
  JobStore& store_;
  const std::atomic<bool>& stop_;
  const std::string& id_;
};

/// What a job is told whose config was fitted to other ranks.
std::vector<std::string> refit_notes(const v1::RunConfig& before, const v1::RunConfig& now) {
  std::vector<std::string> notes;
  if (before.mesh().SerializeAsString() != now.mesh().SerializeAsString()) {
    const auto mesh_before = train::mesh_layout(before.mesh());
    const auto mesh = train::mesh_layout(now.mesh());
    notes.push_back(fmt::format("{} ranks have become {}: its mesh is {} now, it was {}",
                                mesh_before.size(), mesh.size(), to_string(mesh),
                                to_string(mesh_before)));
  }
  if (train::has_device_memory(before.device()) != train::has_device_memory(now.device()))
    notes.push_back(fmt::format("the ranks of this daemon do not all have {}: its device is {} now",
                                before.device(), now.device()));
  return notes;
}

/// Why a job is held whose device the ranks do not have, and what can be done.
std::string device_hold_reason(const std::string& id, const Error& error) {
  return fmt::format(
      "{}; start a daemon whose ranks have such devices, or cancel it and submit it "
      "again with device: auto; from a checkpoint of its own: `meshloom job resume "
      "{} --set device=auto`",
      error.what(), id);
}

}  // namespace

JobDriver::JobDriver(JobStore& store, Executor& executor, RanksTurn& turn, const StateDir& state,
                     std::filesystem::path data_dir, ConfigResolver& resolver,
                     ModelFolders& folders, Tokenization& tokenization, train::WorldDevices devices)
    : store_(store),
      executor_(executor),
      turn_(turn),
      state_(state),
      data_dir_(std::move(data_dir)),
      resolver_(resolver),
      folders_(folders),
      tokenization_(tokenization),
      devices_(std::move(devices)) {}

JobDriver::~JobDriver() {
  request_stop();
  stop();
}

void JobDriver::start() {
  const std::lock_guard lock(thread_mutex_);
  if (stop_) return;
  thread_ = std::thread([this] { run(); });
}

void JobDriver::request_stop() {
  stop_ = true;
  store_.close();
}

void JobDriver::stop() {
  const std::lock_guard lock(thread_mutex_);
  if (thread_.joinable()) thread_.join();
}

void JobDriver::note(const std::string& text) {
  std::string id;
  {
    const std::lock_guard lock(driven_mutex_);
    id = driven_;
  }
  if (!id.empty()) note_at(id, text);
}

void JobDriver::note_at(const std::string& id, const std::string& text) {
  try {
    store_.add_note(id, text);
  } catch (const Error& error) {
    spdlog::warn("job {}: a note is lost: {}", id, error.what());
  }
}

bool JobDriver::busy() const {
  const std::lock_guard lock(driven_mutex_);
  return !driven_.empty();
}

void JobDriver::drive(const std::string& id) {
  const std::lock_guard lock(driven_mutex_);
  driven_ = id;
}

void JobDriver::run() {
  while (!stop_ && !executor_.fatal()) {
    const auto id = store_.wait_for_job();
    if (!id || stop_) return;
    const Hold turn = take_turn(*id);
    if (!turn) continue;
    drive(*id);
    try {
      run_job(*id);
    } catch (const std::exception& error) {
      spdlog::error("job {}: {}", *id, error.what());
    }
    drive("");
  }
}

Hold JobDriver::take_turn(const std::string& id) {
  const std::string name = job_resource(id);
  NextJob next(store_, stop_, id);
  const auto ahead = turn_.ahead_of(name, next.place());
  if (!ahead.empty())
    note_at(id, fmt::format("waits for the ranks behind {}", fmt::join(ahead, ", ")));
  return turn_.acquire(name, next);
}

bool JobDriver::fit_to_ranks(const std::string& id) {
  const v1::Job job = store_.get(id);
  std::optional<v1::RunConfig> config;
  try {
    config = resolver_.refit(job);
  } catch (const train::NeedsOtherRanks& error) {
    spdlog::warn("job {} is held: it {}", id, error.what());
    store_.hold(id, v1::HOLD_CODE_NEEDS_OTHER_RANKS, error.what());
    return false;
  } catch (const train::NeedsOtherDevices& error) {
    const std::string reason = device_hold_reason(id, error);
    spdlog::warn("job {} is held: {}", id, reason);
    store_.hold(id, v1::HOLD_CODE_NEEDS_OTHER_DEVICES, reason);
    return false;
  }
  if (!config) return true;
  store_.update(id, [&](v1::Job* changed) { *changed->mutable_resolved() = *config; });
  for (const std::string& note : refit_notes(job.resolved(), *config)) {
    spdlog::info("job {}: {}", id, note);
    store_.add_note(id, note);
  }
  return true;
}

void JobDriver::end_job(const std::string& id, const Ended& end) {
  store_.update(id, [&](v1::Job* changed) {
    changed->set_state(end.state);
    changed->clear_tokenizing();
    if (end.ran_seconds > 0) changed->set_ran_seconds(end.ran_seconds);
    if (end.state == v1::JOB_STATE_FAILED) *changed->mutable_error() = end.details;
    // A daemon that stops in good order is no sign of a job that takes it down.
    if (!executor_.fatal()) changed->set_stalled_attempts(0);
  });
  if (!end.hold_reason.empty()) store_.hold(id, v1::HOLD_CODE_NO_SPACE, end.hold_reason);
  const v1::Job ended = store_.get(id);
  if (end.state == v1::JOB_STATE_RECOVERING && end.hold_reason.empty() && !executor_.fatal()) {
    spdlog::info("job {}: stopped at step {}, the next daemon goes on from step {}", id,
                 ended.step(), ended.checkpoint_step());
    return;
  }
  spdlog::info("job {}: {} at step {}{}", id,
               base::enum_spelling(*v1::JobState_descriptor()->FindValueByNumber(ended.state())),
               ended.step(), end.state == v1::JOB_STATE_FAILED ? ": " + end.details.message() : "");
}

void JobDriver::remember_damage_of(const v1::Job& job, const Error& error) const {
  // The ranks read the newest of its own, else the one that the job begins with.
  const auto own = train::list_checkpoints(state_.checkpoints(parse_job_name(job.name())));
  const std::filesystem::path folder =
      own.empty() ? resume_folder(job.resolved(), state_, data_dir_) : own.back().folder;
  // Beside a user's own folder nothing is written.
  if (folder.empty() || !checkpoint_at(state_.jobs(), folder)) return;
  // The damage may be that of other files, such as those of the model.
  const auto path = error.metadata().find("path");
  if (path != error.metadata().end()) {
    const auto below = std::filesystem::path(path->second).lexically_relative(folder);
    if (below.empty() || *below.begin() == "..") return;
  }
  remember_damage(folder, error.what());
}

void JobDriver::run_job(const std::string& id) {
  std::filesystem::path model, tokenizer;
  try {
    if (!fit_to_ranks(id)) return;
    const v1::RunConfig resolved = store_.get(id).resolved();
    model = folders_.model_folder(resolved);
    tokenizer = folders_.tokenizer_folder(resolved, model);
  } catch (...) {
    if (stop_) return;  // what a stop has interrupted says nothing about the job
    return end_job(id, {.details = to_details(std::current_exception())});
  }
  const v1::Job job = store_.begin_attempt(id);
  executor_.set_epoch(job.epoch());
  spdlog::info("job {} begins, attempt {}", id, job.attempt());
  Ended end;
  try {
    const train::RunFolders folders = {
        .data_dir = data_dir_,
        .model = model,
        .tokenizer = tokenizer,
        .checkpoints = state_.checkpoints(id),
        .resume_from = resume_folder(job.resolved(), state_, data_dir_),
        .resume_older = may_resume_older(job)};
    JobAttempt attempt(store_, executor_, resolver_, tokenization_, job, state_.job(id), folders,
                       devices_, stop_);
    const AttemptEnd how = attempt.run();
    end.ran_seconds = attempt.ran_seconds();
    switch (how) {
      case AttemptEnd::kSucceeded: end.state = v1::JOB_STATE_SUCCEEDED; break;
      case AttemptEnd::kCancelled: end.state = v1::JOB_STATE_CANCELLED; break;
      case AttemptEnd::kPaused: end.state = v1::JOB_STATE_PAUSED; break;
      case AttemptEnd::kStopped: end.state = v1::JOB_STATE_RECOVERING; break;
      case AttemptEnd::kHeld:
        end.state = v1::JOB_STATE_RECOVERING;
        end.hold_reason = attempt.hold_reason();
        break;
    }
  } catch (const Error& error) {
    end.details = to_details(std::current_exception());
    if (error.kind() == ErrorKind::kDataLoss) remember_damage_of(job, error);
  } catch (...) {
    end.details = to_details(std::current_exception());
  }
  // A job is not to blame for a lost rank or a daemon that stops: a later start goes on from its
  // checkpoint.
  const auto fatal = executor_.fatal();
  if (end.state == v1::JOB_STATE_FAILED && (fatal || executor_.stopping())) {
    const std::string cause = fatal ? fatal->what() : end.details.message();
    store_.add_note(id, fmt::format("attempt {} ended: {}", job.attempt(), cause));
    end.state = v1::JOB_STATE_RECOVERING;
  }
  end_job(id, end);
}

}  // namespace meshloom::control
