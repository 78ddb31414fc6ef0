// SPDX-License-Identifier: Apache-2.0
// Folders that appear and go as a whole: their names while they are written or removed.
#pragma once

#include <filesystem>

#include "daemon/train/files/file_system.h"

namespace meshloom::train {

/// Returns where a checkpoint lies until it is complete and gets its name.
std::filesystem::path unfinished_folder(const std::filesystem::path& checkpoint);
bool is_unfinished_folder(const std::filesystem::path& folder);

/// Removes a finished checkpoint or export: out of sight in one durable step, then deleted, so that
/// a crash in between leaves no half of it.
void discard_folder(FileSystem& files, const std::filesystem::path& folder);

/// Removes what crashed saves and deletions left behind. Rank 0 alone does it.
void remove_leftovers(FileSystem& files, const std::filesystem::path& directory);

}  // namespace meshloom::train
