// SPDX-License-Identifier: Apache-2.0
// Paths that come from outside: always below a root folder.
#pragma once

#include <filesystem>
#include <string>

namespace meshloom::train {

/// Throws InvalidArgument unless `path`, with links followed, lies below `root` (or is it).
void check_inside(const std::filesystem::path& path, const std::filesystem::path& root);

/// The file or folder that a config names: `name` relative to `root`, or absolute and below it.
/// Refuses (InvalidArgument) an empty name, "..", one that is too long, and links that lead outside
/// or in a circle; throws NotFound if nothing is there. `field` is the path of the config's
/// field, for text and metadata.
std::filesystem::path resolve_path(const std::string& name, const std::filesystem::path& root,
                                   const std::string& field);

}  // namespace meshloom::train
