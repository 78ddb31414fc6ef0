// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/memory_limit.h"

#include "daemon/base/memory_cgroups.h"

namespace meshloom::base {

MemoryLimit memory_limit(const std::filesystem::path& proc, const std::filesystem::path& cgroups) {
  MemoryLimit limit;
  const std::int64_t total = number_after(proc / "meminfo", "MemTotal:").value_or(0);
  if (total > 0) limit = {total * 1024, "MemTotal"};
  for (const auto& [folder, version] : memory_cgroups(proc, cgroups)) {
    // v1 writes about 2^63 for no limit.
    const std::int64_t bytes =
        number_in(folder / (version == 2 ? "memory.max" : "memory.limit_in_bytes")).value_or(0);
    if (bytes > 0 && (limit.bytes == 0 || bytes < limit.bytes)) limit = {bytes, "cgroup limit"};
  }
  return limit;
}

}  // namespace meshloom::base
