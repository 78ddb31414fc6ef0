// SPDX-License-Identifier: Apache-2.0
// RunStates: the states that a run has saved on disk, from which it begins anew.
#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/control/host/uptime_clock.h"
#include "daemon/control/stores/run_store.h"
#include "daemon/control/stores/state_dir.h"
#include "kernels/base/error.h"
#include "v1/run_service.pb.h"

namespace meshloom::control {

/// It is thread safe. RunStore has the records, which readers ask without a mutex of this; changes
/// come one at a time by its own mutex, under which it calls RunStore and removes files.
class RunStates {
 public:
  /// `clock`: what the age of a state is counted by; `run` is an id, without "runs/". The first
  /// three outlive it.
  RunStates(RunStore& store, const StateDir& dir, const UptimeClock& clock, std::string run)
      : store_(store), dir_(dir), clock_(clock), run_(std::move(run)) {}

  bool empty() const { return store_.count_states(run_) == 0; }
  /// The newest that can be read, as far as is known, without user_metadata.
  std::optional<v1::SavedState> newest_readable() const {
    return store_.newest_readable_state(run_);
  }
  /// Returns the newest `most` of them, oldest first.
  std::vector<v1::SavedState> newest(std::size_t most) const;
  /// Returns a page as RunStore::list_states does.
  std::pair<std::vector<v1::SavedState>, std::int64_t> list(std::int64_t position, int size) const;
  /// Fills in a run as RunStore::tell_states does.
  void tell(const RunStore::StateRoom& room, v1::Run* run) const;
  /// Throws ResourceExhausted (STATES_FULL) for a state whose record there is no room for.
  void check_room(const v1::SaveStateRequest& state) const;
  /// The folder is absolute.
  std::filesystem::path folder_of(const v1::SavedState& state) const {
    return dir_.root() / state.folder();
  }
  /// A run fails with it whose states are all damaged (STATES_DAMAGED).
  Error none_readable() const;

  /// Makes a state that the ranks have written durable, in the place of one of its name, and
  /// returns it complete. Throws where the disk is full: its files are gone then.
  v1::SavedState keep(v1::SavedState saved);
  /// It is skipped from here on. Nothing happens if there is none.
  void mark_damaged(const std::string& name, const Error& damage);
  /// Its files go, too. Throws NotFound.
  void remove(const std::string& name);
  /// Waits for a change that is under way, which may remove files.
  void finish_changes() { const std::lock_guard one(changing_); }
  /// Removes those whose time to live is over, but for `own` and those that `needed` names.
  void remove_expired(const std::string& own, const std::set<std::string>& needed);

 private:
  void set_expiry(v1::SavedState& state) const;
  /// Nothing knows of the folder any more. What cannot be removed is named in the log, and goes at
  /// the next start.
  void remove_files(const std::string& folder) const;

  RunStore& store_;
  const StateDir& dir_;
  const UptimeClock& clock_;
  const std::string run_;
  std::mutex changing_;
};

}  // namespace meshloom::control
