// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/host/timestamp.h"

#include <ctime>

namespace meshloom::control {

std::string to_rfc3339(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

std::string now_rfc3339() { return to_rfc3339(std::chrono::system_clock::now()); }

}  // namespace meshloom::control
