// SPDX-License-Identifier: Apache-2.0
#include "daemon/launch/log_tail.h"

#include <algorithm>
#include <deque>
#include <fstream>
#include <vector>

#include "daemon/base/utf8.h"

namespace meshloom::launch {
namespace {

constexpr std::streamoff kMostBytes = 64 << 10;  // of the log's end
constexpr std::size_t kLongestLine = 1000;

/// Open MPI puts its own words between two such lines.
bool is_rule(const std::string& line) {
  return line.size() >= 40 && line.find_first_not_of('-') == std::string::npos;
}

/// Returns whether the words say no more than that a process has failed.
bool tells_nothing(const std::vector<std::string>& block) {
  return std::any_of(block.begin(), block.end(), [](const std::string& line) {
    return line.find("non-zero") != std::string::npos;
  });
}

std::vector<std::string> lines_of(std::ifstream& file) {
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(std::move(line));
  return lines;
}

/// Without the blocks that tell nothing.
std::vector<std::string> telling(const std::vector<std::string>& lines) {
  std::vector<std::string> kept;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto begin = lines.begin() + static_cast<std::ptrdiff_t>(i);
    const auto close =
        is_rule(*begin) ? std::find_if(begin + 1, lines.end(), is_rule) : lines.end();
    if (close == lines.end()) {
      kept.push_back(lines[i]);
      continue;
    }
    const std::vector<std::string> block(begin, close + 1);
    if (!tells_nothing(block)) kept.insert(kept.end(), block.begin(), block.end());
    i += block.size() - 1;
  }
  std::erase_if(kept, [](const std::string& line) {
    return line.find_first_not_of(" \r") == std::string::npos;
  });
  return kept;
}

}  // namespace

std::string last_lines(const std::filesystem::path& log, int count) {
  std::ifstream file(log, std::ios::binary | std::ios::ate);
  if (!file) return "";
  const std::streamoff size = file.tellg();
  file.seekg(std::max<std::streamoff>(0, size - kMostBytes));
  const std::vector<std::string> lines = telling(lines_of(file));
  const std::size_t first = lines.size() - std::min(lines.size(), static_cast<std::size_t>(count));
  std::string text;
  for (std::size_t i = first; i < lines.size(); ++i)
    text += base::printable_text(lines[i], kLongestLine) + "\n";
  return text;
}

}  // namespace meshloom::launch
