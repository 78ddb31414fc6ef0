// SPDX-License-Identifier: Apache-2.0
// The cluster `local_cpu`: this machine, by its cores, its kind of CPU and its memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "v1/plan.pb.h"

namespace meshloom::plan {

inline constexpr const char* kLocalCluster = "local_cpu";

struct LocalHost {
  int cores = 1;                  ///< of this host, and no more than the cgroup's quota
  std::int64_t memory_bytes = 0;  ///< that processes may take; 0: not known
  std::string flags;              ///< of the CPU, as /proc/cpuinfo has them
};
LocalHost read_local_host(const std::filesystem::path& proc = "/proc",
                          const std::filesystem::path& cgroups = "/sys/fs/cgroup");

/// Puts rates of so many cores of such a CPU in the place of those in `cluster`, which are those of
/// two cores with AVX-512.
void fit_to_host(const LocalHost& host, v1::Cluster* cluster);

}  // namespace meshloom::plan
