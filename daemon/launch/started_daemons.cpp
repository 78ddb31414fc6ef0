// SPDX-License-Identifier: Apache-2.0
#include "daemon/launch/started_daemons.h"

#include <algorithm>
#include <fstream>
#include <span>

#include "daemon/base/files.h"
#include "daemon/base/host_identity.h"
#include "daemon/base/sha256.h"
#include "daemon/launch/launch_command.h"
#include "daemon/launch/launched_processes.h"
#include "daemon/launch/state_lock.h"
#include "kernels/base/error.h"

namespace meshloom::launch {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostEntries = 1000;  // that are looked at

/// Returns the file that stands for the state dir on the list.
fs::path entry_of(const fs::path& state_dir, const fs::path& list) {
  base::Sha256 digest;
  const std::string path = state_dir.string();
  digest.update(std::as_bytes(std::span(path)));
  return list / digest.hex().substr(0, 16);
}

struct Entry {
  std::string state_dir;
  std::string host;  ///< on which the daemon was started
};

Entry read_entry(const fs::path& file) {
  std::ifstream lines(file);
  Entry entry;
  std::getline(lines, entry.state_dir);
  std::getline(lines, entry.host);
  return entry;
}

/// Returns whether the daemon of an entry has ended for good. The list may lie in a home that hosts
/// share, where a folder of another host is not seen.
bool has_ended(const Entry& entry, const std::optional<FoundDaemon>& found) {
  const std::string here = base::host_name();
  if (entry.host != here) return false;
  std::error_code error;
  if (fs::status(entry.state_dir, error).type() == fs::file_type::not_found) return true;
  return found && found->record && !found->runs && found->record->launcher.host == here;
}

}  // namespace

std::optional<FoundDaemon> find_on(const fs::path& state_dir) {
  if (!is_own(state_dir)) return std::nullopt;
  FoundDaemon found;
  found.state_dir = state_dir;
  found.record = read_record(state_dir);
  found.runs = found.record && !LaunchedProcesses(*found.record).ended();
  if (!found.runs && is_locked_here(state_dir)) {
    found.record.reset();
    found.runs = true;
  }
  const std::string written = written_address(state_dir);
  if (!found.record && !found.runs && written.empty()) return std::nullopt;
  if (found.runs) found.address = written;
  return found;
}

fs::path started_folder() {
  const EnvironmentLookup environment = process_environment();
  const std::string state = environment("XDG_STATE_HOME").value_or("");
  const std::string home = environment("HOME").value_or("");
  // The specification of these folders tells programs to pass over a path that is relative.
  if (fs::path(state).is_absolute()) return fs::path(state) / "meshloom" / "daemons";
  if (fs::path(home).is_absolute()) return fs::path(home) / ".local/state/meshloom/daemons";
  return {};
}

void remember(const LaunchRecord& record, const fs::path& list) {
  if (list.empty())
    throw IoError("neither XDG_STATE_HOME nor HOME names a folder for the list of daemons");
  std::error_code error;
  fs::create_directories(list, error);
  if (error) throw IoError(fmt::format("cannot make {}: {}", base::shown(list), error.message()));
  base::replace_file(entry_of(record.state_dir, list),
                     record.state_dir.string() + "\n" + record.launcher.host + "\n");
}

void forget(const LaunchRecord& record, const fs::path& list) {
  std::error_code ignored;
  if (!list.empty()) fs::remove(entry_of(record.state_dir, list), ignored);
}

std::vector<FoundDaemon> running(const fs::path& list) {
  std::vector<std::pair<fs::file_time_type, FoundDaemon>> found;
  std::error_code error;
  std::size_t looked_at = 0;
  for (fs::directory_iterator file(list, error), end;
       !error && file != end && looked_at++ < kMostEntries; file.increment(error)) {
    const Entry entry = read_entry(file->path());
    std::error_code gone;
    const auto time = fs::last_write_time(file->path(), gone);
    if (entry.state_dir.empty() || gone) continue;
    try {
      auto daemon = find_on(entry.state_dir);
      if (has_ended(entry, daemon))
        fs::remove(file->path(), gone);
      else if (daemon && daemon->runs && daemon->record)
        found.emplace_back(time, std::move(*daemon));
    } catch (const Error&) {
      // Whoever names that folder is told what is wrong with its record.
    }
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<FoundDaemon> daemons;
  for (auto& [time, daemon] : found) daemons.push_back(std::move(daemon));
  return daemons;
}

}  // namespace meshloom::launch
