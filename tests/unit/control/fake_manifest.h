// SPDX-License-Identifier: Apache-2.0
// The manifest of a checkpoint that has files of any content.
#pragma once

#include <filesystem>
#include <fstream>

#include "daemon/train/files/digest.h"
#include "daemon/train/files/manifest.h"

namespace meshloom::control {

/// Makes `folder` the checkpoint of this step, with the files that are there.
inline void write_manifest(const std::filesystem::path& folder, std::int64_t step) {
  std::filesystem::remove(folder / train::kManifestName);
  train::Manifest manifest;
  manifest.step = step;
  manifest.model_config = manifest.run_config = "{}";
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    manifest.files.push_back(
        {entry.path().filename().string(), entry.file_size(), train::digest_of_file(entry.path())});
  std::ofstream(folder / train::kManifestName) << train::manifest_to_json(manifest);
}

}  // namespace meshloom::control
