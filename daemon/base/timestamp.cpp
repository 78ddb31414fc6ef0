// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/timestamp.h"

#include <fmt/chrono.h>

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

}  // namespace meshloom::base
