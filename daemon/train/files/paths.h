// SPDX-License-Identifier: Apache-2.0
// Paths that come from outside: always below a root folder, or one of several.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "daemon/base/disk.h"

namespace meshloom::train {

/// Between the folders of a data dir that are several, as in PATH.
inline constexpr char kBetweenFolders = ':';

/// Returns the folders of `roots`, in the order in which names are looked for in them.
std::vector<std::filesystem::path> data_folders(const std::filesystem::path& roots);

/// Returns the absolute path with links followed, as far as something is there. Throws as
/// base::throw_input_error.
std::filesystem::path followed(const std::filesystem::path& path);
/// Tells whether a path is `root` or lies below it; both are followed.
bool is_inside(const std::filesystem::path& path, const std::filesystem::path& root);

/// Returns where a relative name is: below the first folder that has it, else below the first of
/// all. An absolute one stays as it is.
std::filesystem::path below_data_folders(const std::filesystem::path& name,
                                         const std::filesystem::path& roots,
                                         base::Disk& disk = base::own_disk());

// --- Nothing is checked of a disk of another host: it checks every path that it is asked for.
/// Throws InvalidArgument unless `path`, with links followed, lies below one of `roots` (or is it).
void check_inside(const std::filesystem::path& path, const std::filesystem::path& roots,
                  base::Disk& disk = base::own_disk());

/// Checks every link in a folder as check_inside does: what a model folder links to may be no more
/// than what a config may name.
void check_links(const std::filesystem::path& folder, const std::filesystem::path& roots,
                 base::Disk& disk = base::own_disk());

/// Returns the file or folder that a config names: `name` relative to one of `roots`, or absolute
/// and below one. Refuses (InvalidArgument) an empty name, "..", one that is too long, and links
/// that lead outside or in a circle; throws NotFound if nothing is there. `field` is the path of
/// the config's field, for text and metadata.
std::filesystem::path resolve_path(const std::string& name, const std::filesystem::path& roots,
                                   const std::string& field, base::Disk& disk = base::own_disk());

}  // namespace meshloom::train
