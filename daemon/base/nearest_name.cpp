// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/nearest_name.h"

#include <algorithm>

namespace meshloom::base {

int edit_distance(std::string_view a, std::string_view b) {
  const std::size_t columns = b.size() + 1;
  std::vector<int> before(columns), last(columns), row(columns);
  for (std::size_t j = 0; j < columns; ++j) last[j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int>(i);
    for (std::size_t j = 1; j < columns; ++j) {
      const int substitution = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({substitution, last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates) {
  constexpr std::size_t kLongestName = 128;  // the distance is quadratic in the length
  if (name.size() > kLongestName) return "";
  std::string best;
  // Of two letters one is half a name: "pp" is as near to "dp" as to anything, and of four two are.
  const std::size_t length = name.size();
  int best_distance = length <= 2 ? 1 : static_cast<int>(length) / 3 + 1;
  for (const auto& candidate : candidates) {
    const int distance = edit_distance(name, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string nearest_hint(std::string_view name, const std::vector<std::string>& candidates) {
  const std::string nearest = nearest_name(name, candidates);
  return nearest.empty() ? "" : "; did you mean " + nearest + "?";
}

std::string nearest_hint(const std::filesystem::path& missing, Beside beside) {
  constexpr std::size_t kMostNames = 1000;
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(missing.parent_path(), error), end;
       !error && entry != end && names.size() < kMostNames; entry.increment(error))
    if (std::error_code unread; beside == Beside::kAnything || entry->is_directory(unread))
      names.push_back(entry->path().filename().string());
  const std::string nearest = nearest_name(missing.filename().string(), names);
  return nearest.empty() ? ""
                         : "; did you mean " + (missing.parent_path() / nearest).string() + "?";
}

}  // namespace meshloom::base
