// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/host/launcher_end.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "daemon/base/process_stat.h"

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;

constexpr int kLooks = 50;
/// A launcher that only looks after its events may be asleep for a moment.
constexpr int kLooksInARow = 8;

/// mpirun and its other names start ranks on the first host, orted and prted do on the others.
constexpr std::array<std::string_view, 10> kLaunchers = {
    "mpirun",  "mpiexec", "mpirun.openmpi", "mpiexec.openmpi", "orterun", "oshrun", "orted",
    "prterun", "prte",    "prted"};

bool is_launcher(pid_t pid) {
  const auto stat = base::read_process_stat(pid);
  return stat && std::find(kLaunchers.begin(), kLaunchers.end(), stat->name) != kLaunchers.end();
}

/// Whether a thread of the process is in sleep().
bool is_asleep(pid_t pid) {
  std::error_code error;
  fs::directory_iterator task("/proc/" + std::to_string(pid) + "/task", error);
  for (; !error && task != fs::directory_iterator(); task.increment(error)) {
    std::ifstream file(task->path() / "wchan");
    std::string waits_in;
    file >> waits_in;
    if (waits_in.find("nanosleep") != std::string::npos) return true;
  }
  return false;
}

}  // namespace

void LauncherEnd::suspect(pid_t sender) {
  if (sender != ::getppid() || !is_launcher(sender)) return;
  launcher_ = sender;
  looks_left_ = kLooks;
  asleep_ = 0;
}

bool LauncherEnd::look() {
  --looks_left_;
  asleep_ = is_asleep(launcher_) ? asleep_ + 1 : 0;
  if (asleep_ < kLooksInARow) return false;
  looks_left_ = 0;
  return true;
}

}  // namespace meshloom::control
