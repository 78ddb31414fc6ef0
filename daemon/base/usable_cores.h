// SPDX-License-Identifier: Apache-2.0
// How many cores this process may use.
#pragma once

#include <filesystem>
#include <string>

namespace meshloom::base {

/// Returns the cores that a cgroup v2 file cpu.max allows ("200000 100000" -> 2, rounded up); 0: no
/// limit.
int cores_of_quota(const std::string& cpu_max);

/// Returns the cores that the quota of this process's cgroup allows; 0: no limit. `cgroups` is the
/// mount.
int core_quota(const std::filesystem::path& cgroups = "/sys/fs/cgroup");

/// Returns the cores of this process's affinity mask, and no more than its quota; at least 1.
int usable_cores();

}  // namespace meshloom::base
