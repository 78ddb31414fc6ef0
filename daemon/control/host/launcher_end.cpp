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

constexpr int kLooks = 100;
/// A launcher of Open MPI 4 that only looks after its events may be asleep for a moment.
constexpr int kLooksInARow = 16;
/// One of Open MPI 5 is never asleep otherwise, and its ranks have half a second in all.
constexpr int kLooksInARowOfPrrte = 3;

/// mpirun and its other names start ranks on the first host, orted and prted do on the others.
constexpr std::array<std::string_view, 7> kLaunchers = {
    "mpirun", "mpiexec", "mpirun.openmpi", "mpiexec.openmpi", "orterun", "oshrun", "orted"};
/// These are the names that Open MPI 5 has, whose mpirun executes prterun.
constexpr std::array<std::string_view, 3> kPrrteLaunchers = {"prterun", "prte", "prted"};

/// How often in a row it must be found asleep; 0: it is none.
int looks_needed(pid_t pid) {
  const auto stat = base::read_process_stat(pid);
  if (!stat) return 0;
  const auto is_one_of = [&](const auto& names) {
    return std::find(names.begin(), names.end(), stat->name) != names.end();
  };
  if (is_one_of(kPrrteLaunchers)) return kLooksInARowOfPrrte;
  return is_one_of(kLaunchers) ? kLooksInARow : 0;
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
  if (sender != ::getppid()) return;
  looks_needed_ = looks_needed(sender);
  if (looks_needed_ == 0) return;
  launcher_ = sender;
  looks_left_ = kLooks;
  looks_asleep_ = 0;
}

bool LauncherEnd::look() {
  --looks_left_;
  looks_asleep_ = is_asleep(launcher_) ? looks_asleep_ + 1 : 0;
  if (looks_asleep_ < looks_needed_) return false;
  looks_left_ = 0;
  return true;
}

}  // namespace meshloom::control
