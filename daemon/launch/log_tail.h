// SPDX-License-Identifier: Apache-2.0
// The end of a daemon's log, for people.
#pragma once

#include <filesystem>
#include <string>

namespace meshloom::launch {

/// Returns the last lines of a log, each with its newline, without what mpirun prints below every
/// program that failed: that a process has ended with another code than 0. Empty if there is no
/// log.
std::string last_lines(const std::filesystem::path& log, int count);

}  // namespace meshloom::launch
