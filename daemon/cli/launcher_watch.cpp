// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/launcher_watch.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>

namespace meshloom::cli {
namespace {

/// Of /proc/PID/stat.
struct Process {
  std::string name;
  pid_t parent = 0;
  std::string started;  ///< in clock ticks since boot
};

std::optional<Process> read_process(const std::filesystem::path& proc, pid_t pid) {
  std::ifstream file(proc / std::to_string(pid) / "stat");
  // Where the process goes after the file was opened, iterators of the stream would throw.
  std::string text;
  std::getline(file, text, '\0');
  // The name is in parentheses and may have any character.
  const auto open = text.find('('), close = text.rfind(')');
  if (open == std::string::npos || close == std::string::npos) return std::nullopt;
  std::istringstream rest(text.substr(close + 1));
  const std::vector<std::string> fields{std::istream_iterator<std::string>(rest), {}};
  constexpr std::size_t kState = 0, kParent = 1, kStarted = 19;
  if (fields.size() <= kStarted || fields[kState] == "Z") return std::nullopt;
  return Process{text.substr(open + 1, close - open - 1),
                 static_cast<pid_t>(std::strtol(fields[kParent].c_str(), nullptr, 10)),
                 fields[kStarted]};
}

bool is_launcher(const std::string& name) {
  constexpr std::array kNames = {"mpirun", "mpiexec", "orterun", "prterun", "prte", "orted"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

}  // namespace

LauncherWatch::LauncherWatch(const v1::ListWorkersResponse& workers, const std::string& this_host,
                             std::filesystem::path proc)
    : proc_(std::move(proc)) {
  for (const v1::Worker& worker : workers.workers()) {
    if (worker.host() != this_host) continue;
    const auto rank = read_process(proc_, worker.pid());
    if (!rank || rank->name != "meshloomd") continue;  // of another namespace of processes
    const auto parent = read_process(proc_, rank->parent);
    if (parent && is_launcher(parent->name)) launchers_.push_back({rank->parent, parent->started});
  }
}

bool LauncherWatch::ended() const {
  return std::none_of(launchers_.begin(), launchers_.end(), [&](const Launcher& launcher) {
    const auto now = read_process(proc_, launcher.pid);
    return now && now->started == launcher.started;
  });
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace meshloom::cli
