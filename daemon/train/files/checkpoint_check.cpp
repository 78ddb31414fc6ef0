// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/files/checkpoint_check.h"

#include "daemon/train/files/digest.h"
#include "daemon/train/files/file_check.h"

namespace meshloom::train {
namespace {

namespace fs = std::filesystem;

void check_file_size(const fs::path& folder, const ManifestFile& file) {
  const fs::path path = folder / file.name;
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  if (error) checkpoint_damaged(path, error.message());
  check_size(path, bytes, file.bytes);
}

}  // namespace

void verify_file(const fs::path& folder, const ManifestFile& file,
                 const std::function<void()>& go_on) {
  check_file_size(folder, file);
  const fs::path path = folder / file.name;
  check_digest(path, digest_of_file(path, go_on), file.xxh3_128);
}

void verify_tensor_files(const fs::path& folder, const Manifest& manifest, int share, int shares,
                         const std::function<void()>& go_on) {
  for (std::size_t i = static_cast<std::size_t>(share); i < manifest.files.size();
       i += static_cast<std::size_t>(shares))
    verify_file(folder, manifest.files[i], go_on);
}

void verify_other_files(const fs::path& folder, const Manifest& manifest,
                        const std::function<void()>& go_on) {
  for (const ManifestFile& file : manifest.other_files) verify_file(folder, file, go_on);
}

void verify_files(const fs::path& folder, const Manifest& manifest,
                  const std::function<void()>& go_on) {
  verify_tensor_files(folder, manifest, 0, 1, go_on);
  verify_other_files(folder, manifest, go_on);
}

void check_file_sizes(const fs::path& folder, const Manifest& manifest) {
  for (const ManifestFile& file : manifest.files) check_file_size(folder, file);
  for (const ManifestFile& file : manifest.other_files) check_file_size(folder, file);
}

}  // namespace meshloom::train
