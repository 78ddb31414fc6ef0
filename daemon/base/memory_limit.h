// SPDX-License-Identifier: Apache-2.0
// How much memory the processes of a host may take together.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace meshloom::base {

struct MemoryLimit {
  std::int64_t bytes = 0;  ///< 0: not known
  std::string source;      ///< "cgroup limit" or "MemTotal"
};

/// Returns the least of the host's memory and the limits of the cgroups (v2 and v1) that this
/// process is in, those above them included. Read anew with each call. The folders are parameters
/// for tests.
MemoryLimit memory_limit(const std::filesystem::path& proc = "/proc",
                         const std::filesystem::path& cgroups = "/sys/fs/cgroup");

}  // namespace meshloom::base
