// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/timestamp.h"

#include <fmt/chrono.h>

#include <charconv>
#include <ctime>
#include <string_view>

namespace meshloom::base {
namespace {

using Clock = std::chrono::system_clock;

}  // namespace

std::string to_rfc3339(Clock::time_point time) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(Clock::to_time_t(time)));
}

std::string now_rfc3339() { return to_rfc3339(Clock::now()); }

std::string now_rfc3339_with_milliseconds() {
  const auto now = Clock::now();
  const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch());
  std::string text = to_rfc3339(now);
  text.insert(text.size() - 1, fmt::format(".{:03}", since.count() % 1000));
  return text;
}

double now_seconds() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

std::optional<double> seconds_of_rfc3339(const std::string& text) {
  std::tm time{};
  const char* rest = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &time);
  if (!rest) return std::nullopt;
  int milliseconds = 0;
  if (*rest == '.') {
    const auto [end, error] = std::from_chars(rest + 1, text.c_str() + text.size(), milliseconds);
    if (error != std::errc() || end != rest + 4) return std::nullopt;
    rest = end;
  }
  if (std::string_view(rest) != "Z") return std::nullopt;
  return static_cast<double>(::timegm(&time)) + milliseconds / 1000.0;
}

}  // namespace meshloom::base
