// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/host/descriptor_limit.h"

#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "kernels/base/error.h"

namespace meshloom::control {

int raise_descriptor_limit() {
  constexpr rlim_t kHighest = 65'536;
  rlimit limit{};
  check_internal(::getrlimit(RLIMIT_NOFILE, &limit) == 0, "no limit of open files can be read");
  const rlim_t wanted = std::min(limit.rlim_max, kHighest);
  if (limit.rlim_cur < wanted) {
    limit.rlim_cur = wanted;
    check_internal(::setrlimit(RLIMIT_NOFILE, &limit) == 0,
                   "the limit of open files cannot be raised to {}", wanted);
  }
  return static_cast<int>(std::min(limit.rlim_cur, kHighest));
}

int connection_capacity(int promised) {
  constexpr int kMost = 1024;
  constexpr int kLeast = 16;
  constexpr int kForFiles = 256;
  const int limit = raise_descriptor_limit();
  const std::filesystem::directory_iterator open("/proc/self/fd");
  const auto used = static_cast<int>(std::distance(begin(open), end(open)));
  const int capacity = std::min(kMost, limit - used - promised - kForFiles);
  if (capacity < kLeast)
    throw FailedPrecondition(
        fmt::format("the limit of open files is {}, expected at least {}: raise it (ulimit -n)",
                    limit, used + promised + kForFiles + kLeast),
        "DESCRIPTOR_LIMIT");
  return capacity;
}

}  // namespace meshloom::control
