// SPDX-License-Identifier: Apache-2.0
#include "daemon/launch/launched_processes.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "daemon/base/process_stat.h"

namespace meshloom::launch {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kBetweenLooks{20};

/// Whether one of its arguments is the folder, as a rank's --state-dir is.
bool was_given(pid_t pid, const fs::path& folder) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline", std::ios::binary);
  const std::string wanted = folder.string();
  for (std::string argument; std::getline(file, argument, '\0');)
    if (argument == wanted) return true;
  return false;
}

bool is_running(pid_t pid) {
  const auto stat = base::read_process_stat(pid);
  return stat && !stat->has_ended();
}

std::vector<pid_t> all_processes() {
  std::vector<pid_t> pids;
  std::error_code error;
  for (fs::directory_iterator entry("/proc", error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    pid_t pid = 0;
    const auto [rest, wrong] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (wrong == std::errc() && rest == name.data() + name.size()) pids.push_back(pid);
  }
  return pids;
}

}  // namespace

bool wait_until(std::chrono::milliseconds patience, const std::function<bool()>& condition) {
  const auto end = Clock::now() + patience;
  while (!condition()) {
    if (Clock::now() >= end) return false;
    std::this_thread::sleep_for(kBetweenLooks);
  }
  return true;
}

std::vector<pid_t> LaunchedProcesses::members() const {
  const bool led = launcher_runs();
  std::vector<pid_t> members;
  if (!same_boot(record_.launcher)) return members;
  // The number of a session is no other process's while one of its members runs.
  if (!led && is_running(record_.launcher.pid)) return members;
  for (const pid_t pid : all_processes()) {
    const auto stat = base::read_process_stat(pid);
    if (!stat || stat->has_ended() || stat->session != record_.launcher.pid) continue;
    if (stat->start_time < record_.launcher.start_time) continue;
    if (led || was_given(pid, record_.state_dir)) members.push_back(pid);
  }
  return members;
}

bool LaunchedProcesses::ended() const {
  // A child of this process is known to have ended once it was waited for.
  ::waitpid(record_.launcher.pid, nullptr, WNOHANG);
  return !launcher_runs() && members().empty();
}

bool LaunchedProcesses::owns(pid_t pid) const {
  const std::vector<pid_t> mine = members();
  return std::find(mine.begin(), mine.end(), pid) != mine.end();
}

void LaunchedProcesses::ask_to_end() const {
  if (launcher_runs()) {
    ::kill(record_.launcher.pid, SIGTERM);
  } else {
    for (const pid_t pid : members()) ::kill(pid, SIGTERM);
  }
}

bool LaunchedProcesses::kill_all(std::chrono::milliseconds patience) const {
  return wait_until(patience, [&] {
    for (const pid_t pid : members()) ::kill(pid, SIGKILL);
    return ended();
  });
}

bool LaunchedProcesses::end(std::chrono::milliseconds grace) const {
  ask_to_end();
  constexpr std::chrono::seconds kAfterKill{5};
  return wait_until(grace, [&] { return ended(); }) || kill_all(kAfterKill);
}

}  // namespace meshloom::launch
