// SPDX-License-Identifier: Apache-2.0
// The cgroups that bound the memory of this process, and the numbers in their files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace meshloom::base {

struct MemoryCgroup {
  std::filesystem::path folder;
  int version;  ///< 2 ("memory.max") or 1 ("memory.limit_in_bytes")
};

/// Returns the memory cgroups (v2 and v1) of this process and all above them. Inside a container
/// the path in /proc may be one that only the host sees: then the mount's root is the container's
/// own group. Folders need not exist. `proc` and `cgroups` are the mounts.
std::vector<MemoryCgroup> memory_cgroups(const std::filesystem::path& proc,
                                         const std::filesystem::path& cgroups);

/// Returns the number that a file begins with; none for "max", or if there is no such file.
std::optional<std::int64_t> number_in(const std::filesystem::path& file);
/// Returns the number after `name` in a file of lines "NAME NUMBER ...", such as /proc/meminfo.
std::optional<std::int64_t> number_after(const std::filesystem::path& file,
                                         const std::string& name);

}  // namespace meshloom::base
