// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/host/memory.h"

#include <malloc.h>

#include <cstdio>

#include "daemon/base/memory_cgroups.h"

namespace meshloom::control {

MemoryLimit memory_limit(const std::filesystem::path& proc, const std::filesystem::path& cgroups) {
  MemoryLimit limit;
  const std::int64_t total = base::number_after(proc / "meminfo", "MemTotal:").value_or(0);
  if (total > 0) limit = {total * 1024, "MemTotal"};
  for (const auto& [folder, version] : base::memory_cgroups(proc, cgroups)) {
    // v1 writes about 2^63 for no limit.
    const std::int64_t bytes =
        base::number_in(folder / (version == 2 ? "memory.max" : "memory.limit_in_bytes"))
            .value_or(0);
    if (bytes > 0 && (limit.bytes == 0 || bytes < limit.bytes)) limit = {bytes, "cgroup limit"};
  }
  return limit;
}

MemoryUse process_memory() {
  MemoryUse use;
  std::FILE* file = std::fopen("/proc/self/status", "re");
  if (!file) return use;
  char line[256];
  long long kilobytes = 0;
  while (std::fgets(line, sizeof line, file)) {
    if (std::sscanf(line, "VmRSS: %lld kB", &kilobytes) == 1) use.resident = kilobytes * 1024;
    if (std::sscanf(line, "VmHWM: %lld kB", &kilobytes) == 1) use.peak = kilobytes * 1024;
  }
  std::fclose(file);
  return use;
}

void give_back_free_memory() { ::malloc_trim(0); }

}  // namespace meshloom::control
