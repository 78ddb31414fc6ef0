// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/symm_mem/memory_room.h"

#include <algorithm>
#include <fstream>
#include <sstream>

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

/// The number after `name` in a file of lines "NAME NUMBER ..."; -1 where there is none.
std::int64_t number_after(const fs::path& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string word;
    std::int64_t number = 0;
    if (words >> word >> number && word == name) return number;
  }
  return -1;
}

void narrow(const fs::path& group, const CgroupFiles& files, MemoryRoom& room) {
  std::ifstream limit_file(group / files.limit), usage_file(group / files.usage);
  std::int64_t limit = 0, usage = 0;
  // "max" is no number; version 1 writes about 2^63 for no limit.
  if (!(limit_file >> limit) || !(usage_file >> usage)) return;
  // Shared memory counts as anonymous on these lists, so what they hold is cache of files alone.
  const std::int64_t cache =
      std::max<std::int64_t>(0, number_after(group / "memory.stat", files.inactive)) +
      std::max<std::int64_t>(0, number_after(group / "memory.stat", files.active));
  const std::int64_t left =
      std::max<std::int64_t>(0, limit - std::max<std::int64_t>(0, usage - cache));
  if (left < room.bytes) room = {left, group.string()};
}

/// A cgroup and all above it. Inside a container the path may be one that only the host sees: then
/// the mount's root is the container's own group.
void narrow_by_all(const fs::path& mount, const std::string& group, const CgroupFiles& files,
                   MemoryRoom& room) {
  fs::path below = fs::path(group).relative_path().lexically_normal();
  if (!below.empty() && *below.begin() == "..") below.clear();
  for (; !below.empty(); below = below.parent_path()) narrow(mount / below, files, room);
  narrow(mount, files, room);
}

}  // namespace

MemoryRoom memory_room(const fs::path& proc, const fs::path& cgroups) {
  MemoryRoom room;
  if (const std::int64_t kilobytes = number_after(proc / "meminfo", "MemAvailable:");
      kilobytes >= 0)
    room = {kilobytes * 1024, "MemAvailable"};
  std::ifstream file(proc / "self/cgroup");
  // Each line is ID:CONTROLLERS:PATH; version 2 names no controllers.
  for (std::string line; std::getline(file, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string group = line.substr(second + 1);
    if (controllers == ",,") narrow_by_all(cgroups, group, kVersion2, room);
    if (controllers.find(",memory,") != std::string::npos)
      narrow_by_all(cgroups / "memory", group, kVersion1, room);
  }
  return room;
}

}  // namespace meshloom::comm
