// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/launcher_watch.h"

#include <algorithm>
#include <array>
#include <optional>

namespace meshloom::cli {

std::optional<base::ProcessStat> LauncherWatch::look_at(pid_t pid) const {
  const auto stat = base::read_process_stat(proc_ / std::to_string(pid) / "stat");
  return stat && !stat->has_ended() ? stat : std::nullopt;
}

LauncherWatch::LauncherWatch(const v1::ListWorkersResponse& workers, const std::string& this_host,
                             std::filesystem::path proc)
    : proc_(std::move(proc)) {
  constexpr std::array kLaunchers = {"mpirun", "mpiexec", "orterun", "prterun", "prte", "orted"};
  for (const v1::Worker& worker : workers.workers()) {
    if (worker.host() != this_host) continue;
    const auto rank = look_at(worker.pid());
    if (!rank || rank->name != "meshloomd") continue;  // of another namespace of processes
    const auto parent = look_at(rank->parent);
    if (parent && std::find(kLaunchers.begin(), kLaunchers.end(), parent->name) != kLaunchers.end())
      launchers_.push_back({rank->parent, parent->start_time});
  }
}

bool LauncherWatch::ended() const {
  return std::none_of(launchers_.begin(), launchers_.end(), [&](const Launcher& launcher) {
    const auto now = look_at(launcher.pid);
    return now && now->start_time == launcher.start_time;
  });
}

}  // namespace meshloom::cli
