// SPDX-License-Identifier: Apache-2.0
// Files of a checkpoint against its manifest: sizes and digests.
#pragma once

#include <filesystem>
#include <functional>

#include "daemon/train/files/manifest.h"

namespace meshloom::train {

/// Throws DataLoss naming the file if its size or digest differs from the manifest, or it is
/// missing. `go_on` as for digest_of_file.
void verify_file(const std::filesystem::path& folder, const ManifestFile& file,
                 const std::function<void()>& go_on = {});
/// Verifies files of tensors as verify_file does: share, share + shares, share + 2 shares, ...
void verify_tensor_files(const std::filesystem::path& folder, const Manifest& manifest,
                         int share = 0, int shares = 1, const std::function<void()>& go_on = {});
/// Verifies the files that go along, such as a tokenizer's, as verify_file does.
void verify_other_files(const std::filesystem::path& folder, const Manifest& manifest,
                        const std::function<void()>& go_on = {});
/// Verifies all files of the manifest as verify_file does.
void verify_files(const std::filesystem::path& folder, const Manifest& manifest,
                  const std::function<void()>& go_on = {});
/// Checks all files of the manifest as verify_files does, but by their sizes alone, so that none is
/// read.
void check_file_sizes(const std::filesystem::path& folder, const Manifest& manifest);

}  // namespace meshloom::train
