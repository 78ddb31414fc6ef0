// SPDX-License-Identifier: Apache-2.0
// RunSession and what survives it: its record in the journal, and its saved states.
#include <algorithm>

#include "daemon/base/states.h"
#include "daemon/base/timestamp.h"
#include "daemon/control/net/status.h"
#include "daemon/control/runs/run_session.h"
#include "daemon/control/stores/checkpoint_files.h"
#include "daemon/control/stores/names.h"
#include "kernels/base/log.h"

namespace meshloom::control {
v1::RunRecord RunSession::restarted(v1::RunRecord record,
                                    const std::optional<v1::SavedState>& newest) {
  v1::Run& run = *record.mutable_run();
  if (control::has_ended(run)) return record;
  if (run.state() == v1::RUN_STATE_CLOSING) {
    const bool saved = newest && newest->epoch() == run.epoch() && newest->seq() == 0;
    if (run.cause().info().reason() == kLeaseEnded && !saved)
      keep_newest_note(kNotSaved + std::string("the daemon ended meanwhile"), run.mutable_notes());
    base::move_to(run, v1::RUN_STATE_CLOSED);
    run.set_end_time(base::now_rfc3339());
    return record;
  }
  run.clear_cause();
  run.set_epoch(run.epoch() + 1);
  run.set_next_seq(newest ? newest->next_seq() : 1);
  run.set_step(newest ? newest->step() : 0);
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
  // The newest, as many as are kept of a run.
  std::vector<v1::SavedState> states;
  std::int64_t older =
      world_.store.count_states(id_) - static_cast<std::int64_t>(Operations::kKept);
  world_.store.visit_states(id_, [&](const v1::SavedState& saved) {
    if (older-- <= 0) states.push_back(saved);
  });
  for (const v1::SavedState& saved : states)
    restore(saved, "save_state", [](v1::VerbResult& of) { return of.mutable_saved_state(); });
  for (const v1::SavedWeights& saved : run_.weights())
    restore(saved, "save_weights", [](v1::VerbResult& of) { return of.mutable_saved_weights(); });
}

Error RunSession::no_state_left() const {
  constexpr std::size_t kLongest = 4000;
  std::string text = fmt::format("none of the saved states of run \"{}\" can be read", id_);
  world_.store.visit_states(id_, [&](const v1::SavedState& state) {
    if (text.size() < kLongest)
      text += fmt::format("; {}: {}", state.name(), state.damage().message());
  });
  return DataLoss(text, "STATES_DAMAGED", {{"run", id_}});
}

std::pair<std::vector<v1::SavedState>, std::int64_t> RunSession::list_states(std::int64_t position,
                                                                             int size) const {
  auto page = world_.store.list_states(id_, position, size);
  for (v1::SavedState& state : page.first) set_expiry(state);
  return page;
}

void RunSession::set_expiry(v1::SavedState& state) const {
  if (state.ttl_seconds() == 0) return;
  state.set_expires_in_seconds(
      std::max<std::int64_t>(0, state.saved_at() + state.ttl_seconds() - world_.uptime()));
}

void RunSession::forget() {
  const std::lock_guard one(persist_mutex_);
  forgotten_ = true;
}

void RunSession::persist() {
  const std::lock_guard one(persist_mutex_);
  if (forgotten_) return;
  v1::RunRecord record;
  {
    const std::lock_guard lock(mutex_);
    record = record_;
    record.mutable_run()->set_next_seq(sequence_.next());
  }
  world_.store.put_kept(record);
}

void RunSession::check_room(const v1::SaveStateRequest& state) const {
  constexpr std::size_t kOwn = 256;  // of a record, beside what the client has given
  world_.store.check_state_room(state_resource(id_, state.name()), state.ByteSizeLong() + kOwn);
}

v1::SavedState RunSession::keep_state(v1::SavedState saved) {
  const std::lock_guard one(persist_mutex_);
  saved.set_saved_at(world_.uptime());
  const auto replaced = world_.store.find_state(saved.name());
  try {
    world_.store.put_state(saved);
  } catch (...) {
    // Nobody was told of it.
    remove_saved(saved.folder());
    throw;
  }
  if (replaced && replaced->folder() != saved.folder()) remove_saved(replaced->folder());
  return saved;
}

void RunSession::mark_damaged(const std::string& name, const Error& damage) {
  const std::lock_guard one(persist_mutex_);
  auto state = world_.store.find_state(name);
  if (!state) return;
  *state->mutable_damage() = to_details(damage);
  world_.store.put_state_kept(*state);
}

void RunSession::delete_state(const std::string& name) {
  const std::lock_guard one(persist_mutex_);
  const std::string folder = world_.store.state(name).folder();
  world_.store.remove_state(name);
  remove_saved(folder);
}

void RunSession::remove_saved(const std::string& folder) const {
  try_removal(folder, [&] { std::filesystem::remove_all(world_.state.root() / folder); });
}

std::string RunSession::needed_state() const {
  const std::lock_guard lock(mutex_);
  return has_ended() || newest_state() ? "" : run_.spec().state();
}

void RunSession::collect_states(const std::set<std::string>& needed) {
  std::string own;
  {
    const std::lock_guard lock(mutex_);
    if (!has_ended())
      if (const auto newest = newest_state()) own = newest->name();
  }
  std::vector<std::string> expired;
  const std::int64_t now = world_.uptime();
  world_.store.visit_states(id_, [&](const v1::SavedState& state) {
    if (state.ttl_seconds() > 0 && now - state.saved_at() >= state.ttl_seconds() &&
        state.name() != own && needed.count(state.name()) == 0)
      expired.push_back(state.name());
  });
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
