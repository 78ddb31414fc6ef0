// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/usable_cores.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "kernels/base/integer_math.h"

namespace meshloom::base {

int cores_of_quota(const std::string& cpu_max) {
  long long quota = 0;
  long long period = 0;
  std::istringstream text(cpu_max);
  if (!(text >> quota >> period) || quota <= 0 || period <= 0) return 0;
  return static_cast<int>(divide_up(quota, period));
}

int core_quota(const std::filesystem::path& cgroups) {
  std::ifstream file(cgroups / "cpu.max");
  std::string text;
  return std::getline(file, text) ? cores_of_quota(text) : 0;
}

int usable_cores() {
  cpu_set_t mask;
  const int cores = ::sched_getaffinity(0, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : 1;
  const int quota = core_quota();
  return std::max(1, quota > 0 ? std::min(cores, quota) : cores);
}

}  // namespace meshloom::base
