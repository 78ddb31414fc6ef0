// SPDX-License-Identifier: Apache-2.0
// How much memory the processes of a host may take together, and how much this one takes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace meshloom::control {

struct MemoryLimit {
  std::int64_t bytes = 0;  ///< 0: not known
  std::string source;      ///< "cgroup limit" or "MemTotal"
};

/// The least of the host's memory and the limits of the cgroups (v2 and v1) that this process is
/// in, those above them included. Read anew with each call. The folders are parameters for tests.
MemoryLimit memory_limit(const std::filesystem::path& proc = "/proc",
                         const std::filesystem::path& cgroups = "/sys/fs/cgroup");

struct MemoryUse {
  std::int64_t resident = 0;  ///< bytes
  std::int64_t peak = 0;      ///< bytes, the most that were resident
};

/// Returns what this process uses as the kernel counts it in /proc; zeros if that is not there.
MemoryUse process_memory();

/// Gives pages that were allocated and are free to the system, which malloc would keep for later.
/// Whoever allocates meanwhile may wait, about 0.2 s for 1 GiB that is free.
void give_back_free_memory();

}  // namespace meshloom::control
