// SPDX-License-Identifier: Apache-2.0
// The digests of the files of an exported folder, in a file beside them that Meshloom alone reads:
//
//   meshloom_digests.json   {"format": "meshloom.digests", "version": 1,
//                            "files": [{"name": ..., "bytes": ..., "xxh3_128": ...}, ...]}
//
// Exports of older versions have none.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/train/files/manifest.h"

namespace meshloom::train {

inline constexpr const char* kExportDigestsName = "meshloom_digests.json";

std::string export_digests_to_json(std::span<const ManifestFile> files);

/// Returns the digests; nothing where the folder has none. Throws DataLoss (CHECKPOINT_DAMAGED)
/// naming the file if it is none of this format, FailedPrecondition for a newer version of it.
std::optional<std::vector<ManifestFile>> read_export_digests(const std::filesystem::path& folder);

}  // namespace meshloom::train
