// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/host/memory_limit.h"

#include <fstream>
#include <sstream>

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;

/// MemTotal of /proc/meminfo in bytes; 0 where it is not there.
std::int64_t total_memory(const fs::path& proc) {
  std::ifstream file(proc / "meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    std::int64_t kilobytes = 0;
    if (words >> name >> kilobytes && name == "MemTotal:") return kilobytes * 1024;
  }
  return 0;
}

void take_least(const fs::path& file, MemoryLimit& limit) {
  std::ifstream text(file);
  std::int64_t bytes = 0;
  // "max" is no number; v1 writes about 2^63 for no limit.
  if (!(text >> bytes) || bytes <= 0) return;
  if (limit.bytes == 0 || bytes < limit.bytes) limit = {bytes, "cgroup limit"};
}

/// The limits of a cgroup and of all above it. Inside a container the path may be one that only the
/// host sees: then the mount's root is the container's own group.
void take_least_of_groups(const fs::path& mount, const std::string& group, const char* file,
                          MemoryLimit& limit) {
  fs::path below = fs::path(group).relative_path().lexically_normal();
  if (!below.empty() && *below.begin() == "..") below.clear();
  for (; !below.empty(); below = below.parent_path()) take_least(mount / below / file, limit);
  take_least(mount / file, limit);
}

bool names_memory(const std::string& controllers) {
  std::istringstream list(controllers);
  for (std::string name; std::getline(list, name, ',');)
    if (name == "memory") return true;
  return false;
}

}  // namespace

MemoryLimit memory_limit(const fs::path& proc, const fs::path& cgroups) {
  MemoryLimit limit;
  if (const std::int64_t bytes = total_memory(proc); bytes > 0) limit = {bytes, "MemTotal"};
  std::ifstream file(proc / "self/cgroup");
  // Each line is ID:CONTROLLERS:PATH; v2 names no controllers.
  for (std::string line; std::getline(file, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) take_least_of_groups(cgroups, group, "memory.max", limit);
    if (names_memory(controllers))
      take_least_of_groups(cgroups / "memory", group, "memory.limit_in_bytes", limit);
  }
  return limit;
}

}  // namespace meshloom::control
