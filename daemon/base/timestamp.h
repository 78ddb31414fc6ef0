// SPDX-License-Identifier: Apache-2.0
// Points in time as text: RFC 3339 in UTC.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace meshloom::base {

/// Returns "2026-01-31T12:00:00Z"
std::string to_rfc3339(std::chrono::system_clock::time_point time);
std::string now_rfc3339();
/// Returns the time for records that programs read: "2026-01-31T12:00:00.250Z".
std::string now_rfc3339_with_milliseconds();
/// Returns the time of the system's clock in seconds since 1970.
double now_seconds();
/// Seconds since 1970 of a time that these have written; nothing for another text.
std::optional<double> seconds_of_rfc3339(const std::string& text);

}  // namespace meshloom::base
