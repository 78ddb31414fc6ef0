// SPDX-License-Identifier: Apache-2.0
// Finds the daemons that run on this host: by their state dir, or whichever this account has
// started.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "daemon/launch/launch_record.h"

namespace meshloom::launch {

/// FoundDaemon is a daemon as its state dir tells of it.
struct FoundDaemon {
  std::filesystem::path state_dir;
  std::optional<LaunchRecord> record;  ///< nothing: it was started by hand
  bool runs = false;                   ///< else it has ended, and what it left is stale
  std::string address;                 ///< empty: it does not run, or does not serve yet
};

/// Returns the record; nothing where no daemon has ever been on the folder, or the folder is
/// another account's. One that was started by hand is known by the lock that it has. Throws as
/// read_record().
std::optional<FoundDaemon> find_on(const std::filesystem::path& state_dir);

/// Returns the folder where this account keeps which daemons it has started:
/// $XDG_STATE_HOME/meshloom/daemons, by default below ~/.local/state. Empty if there is no home.
std::filesystem::path started_folder();

/// Puts a daemon on that list, or takes it off. Throws IoError if the list cannot be written.
void remember(const LaunchRecord& record, const std::filesystem::path& list = started_folder());
void forget(const LaunchRecord& record, const std::filesystem::path& list = started_folder());

/// Returns those on the list that run, the one that was started last first. Those that this host
/// has started and that have ended are taken off the list.
std::vector<FoundDaemon> running(const std::filesystem::path& list = started_folder());

}  // namespace meshloom::launch
