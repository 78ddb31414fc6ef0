// SPDX-License-Identifier: Apache-2.0
// What tells whether a file is still the one that was read.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace meshloom::base {

/// Returns inode, size and time of what lies at the path, links followed: another text once
/// somebody has written to it or put another file in its place. Nothing if it cannot be looked at;
/// errno then says why.
std::optional<std::string> file_stamp(const std::filesystem::path& path);

}  // namespace meshloom::base
