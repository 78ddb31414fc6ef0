// SPDX-License-Identifier: Apache-2.0
// Points in time as text.
#pragma once

#include <chrono>
#include <string>

namespace meshloom::control {

/// "2026-01-31T12:00:00Z"
std::string to_rfc3339(std::chrono::system_clock::time_point time);
std::string now_rfc3339();

}  // namespace meshloom::control
