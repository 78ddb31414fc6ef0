// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/run/core_times.h"

#include <algorithm>
#include <fstream>
#include <system_error>

namespace meshloom::train {

std::optional<CoreTimes> read_core_times(const std::filesystem::path& tasks) {
  CoreTimes all;
  bool told = false;
  std::error_code error;
  for (auto task = std::filesystem::directory_iterator(tasks, error);
       !error && task != std::filesystem::directory_iterator(); task.increment(error)) {
    // Nanoseconds; a thread may have ended meanwhile.
    std::ifstream file(task->path() / "schedstat");
    double ran = 0.0, waited = 0.0;
    if (!(file >> ran >> waited)) continue;
    told = true;
    all.ran += 1e-9 * ran;
    all.waited += 1e-9 * waited;
  }
  return told ? std::optional(all) : std::nullopt;
}

CoreTimes core_times_between(const CoreTimes& before, const CoreTimes& after) {
  return {std::max(0.0, after.ran - before.ran), std::max(0.0, after.waited - before.waited)};
}

}  // namespace meshloom::train
