// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/stop_strings.h"

#include <algorithm>
#include <utility>

namespace meshloom::text {

StopStrings::StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {}

std::size_t StopStrings::length_before(std::size_t end) const {
  const std::string_view text = std::string_view(held_).substr(0, end);
  std::size_t length = 0;
  for (const std::string& stop : strings_)
    if (stop.size() > length && text.ends_with(stop)) length = stop.size();
  return length;
}

std::size_t StopStrings::possible_beginning() const {
  const std::string_view text = held_;
  std::size_t longest = 0;
  for (const std::string& stop : strings_) {
    std::size_t length = std::min(stop.size() - 1, text.size());
    while (length > longest && !text.ends_with(std::string_view(stop).substr(0, length))) --length;
    longest = std::max(longest, length);
  }
  return longest;
}

std::string StopStrings::add(std::string_view piece) {
  if (stopped_) return {};
  if (strings_.empty()) return std::string(piece);
  const std::size_t seen = held_.size();
  held_ += piece;
  for (std::size_t end = seen + 1; end <= held_.size(); ++end) {
    const std::size_t length = length_before(end);
    if (length == 0) continue;
    stopped_ = true;
    held_.resize(end - length);
    return std::exchange(held_, {});
  }
  std::string certain = held_.substr(0, held_.size() - possible_beginning());
  held_.erase(0, certain.size());
  return certain;
}

std::string StopStrings::finish() { return std::exchange(held_, {}); }

}  // namespace meshloom::text
