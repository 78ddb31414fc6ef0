// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/found_damage.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "daemon/base/files.h"
#include "daemon/base/utf8.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestText = 1000;

/// Hidden, in the folder of the job, and gone with it.
fs::path file_of(const fs::path& folder) {
  return folder.parent_path() / ("." + folder.filename().string() + ".damage");
}

/// Names, sizes and times of all files; empty if they cannot be looked at.
std::string stamp_of(const fs::path& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (auto entry = fs::recursive_directory_iterator(folder, error);
       !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    std::error_code unknown;
    if (!entry->is_regular_file(unknown)) continue;
    const auto time = entry->last_write_time(unknown).time_since_epoch().count();
    files.push_back(fmt::format("{} {} {}", entry->path().lexically_relative(folder).string(),
                                entry->file_size(unknown), time));
  }
  if (error) return "";
  std::sort(files.begin(), files.end());
  std::string stamp;
  for (const std::string& file : files) stamp += file + "\n";
  return base::printable_text(stamp);
}

}  // namespace

void remember_damage(const fs::path& folder, const std::string& damage) {
  const std::string stamp = stamp_of(folder);
  if (stamp.empty()) return;
  const nlohmann::json record = {{"stamp", stamp},
                                 {"damage", base::printable_text(damage, kLongestText)}};
  try {
    base::replace_file(file_of(folder), record.dump(), 0644);
  } catch (const Error& error) {
    spdlog::warn("{}: that it is damaged is not kept: {}", folder.string(), error.what());
  }
}

std::string remembered_damage(const fs::path& folder) {
  std::ifstream file(file_of(folder));
  if (!file) return "";
  std::ostringstream text;
  text << file.rdbuf();
  const nlohmann::json record = nlohmann::json::parse(text.str(), nullptr, false);
  if (!record.is_object() || !record.contains("stamp") || !record.contains("damage")) return "";
  if (!record["stamp"].is_string() || !record["damage"].is_string()) return "";
  return record["stamp"] == stamp_of(folder) ? record["damage"].get<std::string>() : "";
}

void forget_damage(const fs::path& folder) {
  std::error_code ignored;
  fs::remove(file_of(folder), ignored);
}

}  // namespace meshloom::control
