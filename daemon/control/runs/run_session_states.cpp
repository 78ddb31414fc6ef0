// SPDX-License-Identifier: Apache-2.0
// RunSession and what survives it: its record in the journal, and its saved states.
#include <algorithm>

#include "daemon/base/states.h"
#include "daemon/base/timestamp.h"
#include "daemon/control/runs/run_session.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

const v1::SavedState* newest_readable(const v1::Run& run) {
  const auto found = std::find_if(run.saved().rbegin(), run.saved().rend(),
                                  [](const v1::SavedState& state) { return !state.has_damage(); });
  return found == run.saved().rend() ? nullptr : &*found;
}

}  // namespace

v1::RunRecord RunSession::restarted(v1::RunRecord record) {
  v1::Run& run = *record.mutable_run();
  if (control::has_ended(run)) return record;
  if (run.state() == v1::RUN_STATE_CLOSING) {
    const v1::SavedState* last = newest_readable(run);
    const bool saved = last && last->epoch() == run.epoch() && last->seq() == 0;
    if (run.cause().info().reason() == kLeaseEnded && !saved)
      run.add_notes(kNotSaved + std::string("the daemon ended meanwhile"));
    base::move_to(run, v1::RUN_STATE_CLOSED);
    run.set_end_time(base::now_rfc3339());
    return record;
  }
  run.clear_cause();
  const v1::SavedState* state = newest_readable(run);
  run.set_epoch(run.epoch() + 1);
  run.set_next_seq(state ? state->next_seq() : 1);
  run.set_step(state ? state->step() : 0);
  if (run.state() != v1::RUN_STATE_QUEUED) base::move_to(run, v1::RUN_STATE_RECOVERING);
  return record;
}

void RunSession::restore_saves() {
  const auto restore = [&](const auto& saved, const char* verb, auto set) {
    if (saved.seq() == 0) return;
    auto result = std::make_shared<v1::VerbResult>();
    *set(*result) = saved;
    world_.operations.restore(id_, operation_name(saved.epoch(), std::to_string(saved.seq())), verb,
                              std::move(result));
  };
  for (const v1::SavedState& saved : run_.saved())
    restore(saved, "save_state", [](v1::VerbResult& of) { return of.mutable_saved_state(); });
  for (const v1::SavedWeights& saved : run_.weights())
    restore(saved, "save_weights", [](v1::VerbResult& of) { return of.mutable_saved_weights(); });
}

const v1::SavedState* RunSession::newest_state() const { return newest_readable(run_); }

Error RunSession::no_state_left() const {
  std::string text = fmt::format("none of the saved states of run \"{}\" can be read", id_);
  for (const v1::SavedState& state : run_.saved())
    text += fmt::format("; {}: {}", state.name(), state.damage().message());
  return DataLoss(text, "STATES_DAMAGED", {{"run", id_}});
}

v1::SavedState RunSession::find_state(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(run_.saved().begin(), run_.saved().end(),
                   [&](const v1::SavedState& state) { return state.name() == name; });
  if (found == run_.saved().end())
    throw NotFound(fmt::format("{} does not exist", name), "STATE_NOT_FOUND", {{"state", name}});
  return *found;
}

v1::RunRecord RunSession::durable_record() const {
  v1::RunRecord record = record_;
  auto& weights = *record.mutable_run()->mutable_weights();
  weights.erase(
      std::remove_if(weights.begin(), weights.end(),
                     [](const auto& saved) { return saved.storage() != v1::WEIGHTS_STORAGE_DISK; }),
      weights.end());
  return record;
}

void RunSession::persist() {
  const std::lock_guard one(persist_mutex_);
  persist_locked();
}

void RunSession::persist_locked() {
  v1::RunRecord record;
  {
    const std::lock_guard lock(mutex_);
    record = durable_record();
    record.mutable_run()->set_next_seq(sequence_.next());
  }
  world_.store.put_kept(record);
}

v1::SavedState RunSession::keep_state(v1::SavedState saved) {
  const std::lock_guard one(persist_mutex_);
  v1::RunRecord record;
  std::string replaced;
  {
    const std::lock_guard lock(mutex_);
    saved.set_saved_at(world_.uptime());
    record = durable_record();
    auto& states = *record.mutable_run()->mutable_saved();
    for (auto state = states.begin(); state != states.end(); ++state) {
      if (state->name() != saved.name()) continue;
      replaced = state->folder();
      states.erase(state);
      break;
    }
    *states.Add() = saved;
  }
  world_.store.put(record);
  {
    const std::lock_guard lock(mutex_);
    *run_.mutable_saved() = record.run().saved();
  }
  std::error_code error;
  if (!replaced.empty()) std::filesystem::remove_all(world_.state.root() / replaced, error);
  return saved;
}

void RunSession::delete_state(const std::string& name) {
  // A state that is being kept is written with those that there were, and would bring it back.
  const std::lock_guard one(persist_mutex_);
  const std::string folder = find_state(name).folder();
  {
    const std::lock_guard lock(mutex_);
    auto& states = *run_.mutable_saved();
    for (auto state = states.begin(); state != states.end(); ++state) {
      if (state->name() != name) continue;
      states.erase(state);
      break;
    }
  }
  persist_locked();
  std::error_code error;
  std::filesystem::remove_all(world_.state.root() / folder, error);
}

std::string RunSession::needed_state() const {
  const std::lock_guard lock(mutex_);
  return has_ended() || newest_state() ? "" : run_.spec().state();
}

void RunSession::collect_states(const std::set<std::string>& needed) {
  std::vector<std::string> expired;
  {
    const std::lock_guard lock(mutex_);
    const std::int64_t now = world_.uptime();
    const v1::SavedState* own = has_ended() ? nullptr : newest_state();
    for (const v1::SavedState& state : run_.saved())
      if (state.ttl_seconds() > 0 && now - state.saved_at() >= state.ttl_seconds() &&
          &state != own && needed.count(state.name()) == 0)
        expired.push_back(state.name());
  }
  for (const std::string& name : expired) {
    try {
      delete_state(name);
      spdlog::info("{}: deleted, its time to live is over", name);
    } catch (const NotFound&) {
      spdlog::debug("{}: a client has deleted it meanwhile", name);
    }
  }
}

}  // namespace meshloom::control
