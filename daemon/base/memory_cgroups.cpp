// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/memory_cgroups.h"

#include <fstream>
#include <sstream>

namespace meshloom::base {
namespace {

namespace fs = std::filesystem;

void append_with_parents(const fs::path& mount, const std::string& group, int version,
                         std::vector<MemoryCgroup>& all) {
  fs::path below = fs::path(group).relative_path().lexically_normal();
  if (!below.empty() && *below.begin() == "..") below.clear();
  for (; !below.empty(); below = below.parent_path()) all.push_back({mount / below, version});
  all.push_back({mount, version});
}

}  // namespace

std::vector<MemoryCgroup> memory_cgroups(const fs::path& proc, const fs::path& cgroups) {
  std::vector<MemoryCgroup> all;
  std::ifstream file(proc / "self/cgroup");
  // Each line is ID:CONTROLLERS:PATH; v2 names no controllers.
  for (std::string line; std::getline(file, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string group = line.substr(second + 1);
    if (controllers == ",,") append_with_parents(cgroups, group, 2, all);
    if (controllers.find(",memory,") != std::string::npos)
      append_with_parents(cgroups / "memory", group, 1, all);
  }
  return all;
}

std::optional<std::int64_t> number_in(const fs::path& file) {
  std::ifstream text(file);
  std::int64_t number = 0;
  return text >> number ? std::optional(number) : std::nullopt;
}

std::optional<std::int64_t> number_after(const fs::path& file, const std::string& name) {
  std::ifstream text(file);
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line);
    std::string word;
    std::int64_t number = 0;
    if (words >> word >> number && word == name) return number;
  }
  return std::nullopt;
}

}  // namespace meshloom::base
