// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/runs/run_states.h"

#include <fmt/format.h>

#include <algorithm>

#include "daemon/control/net/status.h"
#include "daemon/control/stores/checkpoint_files.h"
#include "daemon/control/stores/names.h"
#include "kernels/base/log.h"

namespace meshloom::control {

std::vector<v1::SavedState> RunStates::newest(std::size_t most) const {
  std::vector<v1::SavedState> states;
  std::int64_t older = store_.count_states(run_) - static_cast<std::int64_t>(most);
  store_.visit_states(run_, [&](const v1::SavedState& saved) {
    if (older-- <= 0) states.push_back(saved);
  });
  return states;
}

std::pair<std::vector<v1::SavedState>, std::int64_t> RunStates::list(std::int64_t position,
                                                                     int size) const {
  auto page = store_.list_states(run_, position, size);
  for (v1::SavedState& state : page.first) set_expiry(state);
  return page;
}

void RunStates::tell(const RunStore::StateRoom& room, v1::Run* run) const {
  store_.tell_states(room, run);
  for (v1::SavedState& state : *run->mutable_saved()) set_expiry(state);
}

void RunStates::set_expiry(v1::SavedState& state) const {
  if (state.ttl_seconds() == 0) return;
  state.set_expires_in_seconds(
      std::max<std::int64_t>(0, state.saved_at() + state.ttl_seconds() - clock_.uptime()));
}

void RunStates::check_room(const v1::SaveStateRequest& state) const {
  constexpr std::size_t kOwn = 256;  // of a record, beside what the client has given
  store_.check_state_room(state_resource(run_, state.name()), state.ByteSizeLong() + kOwn);
}

Error RunStates::none_readable() const {
  constexpr std::size_t kLongest = 4000;
  std::string text = fmt::format("none of the saved states of run \"{}\" can be read", run_);
  store_.visit_states(run_, [&](const v1::SavedState& state) {
    if (text.size() < kLongest)
      text += fmt::format("; {}: {}", state.name(), state.damage().message());
  });
  return DataLoss(text, "STATES_DAMAGED", {{"run", run_}});
}

v1::SavedState RunStates::keep(v1::SavedState saved) {
  const std::lock_guard one(changing_);
  saved.set_saved_at(clock_.uptime());
  const auto replaced = store_.find_state(saved.name());
  try {
    store_.put_state(saved);
  } catch (...) {
    // Nobody was told of it.
    remove_files(saved.folder());
    throw;
  }
  if (replaced && replaced->folder() != saved.folder()) remove_files(replaced->folder());
  return saved;
}

void RunStates::mark_damaged(const std::string& name, const Error& damage) {
  const std::lock_guard one(changing_);
  auto state = store_.find_state(name);
  if (!state) return;
  *state->mutable_damage() = to_details(damage);
  store_.put_state_kept(*state);
}

void RunStates::remove(const std::string& name) {
  const std::lock_guard one(changing_);
  const std::string folder = store_.state(name).folder();
  store_.remove_state(name);
  remove_files(folder);
}

void RunStates::remove_files(const std::string& folder) const {
  try_removal(folder, [&] { std::filesystem::remove_all(dir_.root() / folder); });
}

void RunStates::remove_expired(const std::string& own, const std::set<std::string>& needed) {
  std::vector<std::string> expired;
  const std::int64_t now = clock_.uptime();
  store_.visit_states(run_, [&](const v1::SavedState& state) {
    if (state.ttl_seconds() > 0 && now - state.saved_at() >= state.ttl_seconds() &&
        state.name() != own && needed.count(state.name()) == 0)
      expired.push_back(state.name());
  });
  for (const std::string& name : expired) {
    try {
      remove(name);
      spdlog::info("{}: deleted, its time to live is over", name);
    } catch (const NotFound&) {
      spdlog::debug("{}: a client has deleted it meanwhile", name);
    }
  }
}

}  // namespace meshloom::control
