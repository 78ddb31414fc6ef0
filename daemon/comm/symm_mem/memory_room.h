// SPDX-License-Identifier: Apache-2.0
// How much memory can still be taken before the kernel kills somebody for it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace meshloom::comm {

struct MemoryRoom {
  std::int64_t bytes = INT64_MAX;  ///< INT64_MAX: nothing here tells
  std::string source;  ///< "MemAvailable", or the folder of the cgroup that is narrowest
};

/// Returns the least of MemAvailable and of what the memory cgroups (v2 and v1) of this process and
/// all above them leave: their limit less what is used and cannot be dropped. Pages of shared
/// memory that do not fit in a cgroup end in its OOM killer, not in ENOSPC, so whoever makes them
/// asks here first. Other processes may take the room in the meantime.
MemoryRoom memory_room(const std::filesystem::path& proc = "/proc",
                       const std::filesystem::path& cgroups = "/sys/fs/cgroup");

}  // namespace meshloom::comm
