// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/symm_mem/memory_room.h"

#include <algorithm>

#include "daemon/base/memory_cgroups.h"

namespace meshloom::comm {
namespace {

namespace fs = std::filesystem;

/// The files of one version of cgroups.
struct CgroupFiles {
  const char* limit;
  const char* usage;
  const char* inactive;  ///< lines of memory.stat: file pages that can be dropped
  const char* active;
};

constexpr CgroupFiles kVersion1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                   "total_inactive_file", "total_active_file"};
constexpr CgroupFiles kVersion2 = {"memory.max", "memory.current", "inactive_file", "active_file"};

}  // namespace

MemoryRoom memory_room(const fs::path& proc, const fs::path& cgroups) {
  MemoryRoom room;
  if (const auto kilobytes = base::number_after(proc / "meminfo", "MemAvailable:");
      kilobytes && *kilobytes >= 0)
    room = {*kilobytes * 1024, "MemAvailable"};
  for (const auto& [folder, version] : base::memory_cgroups(proc, cgroups)) {
    const CgroupFiles& files = version == 2 ? kVersion2 : kVersion1;
    // v1 writes about 2^63 for no limit.
    const auto limit = base::number_in(folder / files.limit);
    const auto usage = base::number_in(folder / files.usage);
    if (!limit || !usage) continue;
    const fs::path stat = folder / "memory.stat";
    // Shared memory counts as anonymous on these lists, so what they hold is cache of files alone.
    const std::int64_t cache =
        std::max<std::int64_t>(0, base::number_after(stat, files.inactive).value_or(0)) +
        std::max<std::int64_t>(0, base::number_after(stat, files.active).value_or(0));
    const std::int64_t left =
        std::max<std::int64_t>(0, *limit - std::max<std::int64_t>(0, *usage - cache));
    if (left < room.bytes) room = {left, folder.string()};
  }
  return room;
}

}  // namespace meshloom::comm
