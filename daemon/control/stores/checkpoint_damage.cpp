// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/checkpoint_damage.h"

#include "daemon/train/checkpoint/checkpoint_reader.h"
#include "daemon/train/checkpoint/hf_folder.h"
#include "daemon/train/checkpoint/manifest.h"
#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;

/// What `look` throws as a text; empty if that is nothing.
template <typename Look>
std::string error_of(const fs::path& folder, const Look& look) {
  try {
    look();
    return {};
  } catch (const Error& error) {
    // It goes by one rename: what is there is whole.
    std::error_code ignored;
    return fs::exists(folder, ignored) ? error.what() : std::string();
  }
}

}  // namespace

std::string find_damage(const fs::path& folder, bool digests, const std::function<void()>& go_on) {
  if (!train::is_checkpoint(folder))
    return error_of(folder, [&] { train::check_hf_folder(folder); });
  train::Manifest manifest;
  std::string damage = error_of(folder, [&] {
    manifest = train::read_manifest(folder);
    train::check_file_sizes(folder, manifest);
  });
  if (!damage.empty() || !digests) return damage;
  const auto files = static_cast<int>(manifest.files.size());
  for (int file = 0; file < files && damage.empty(); ++file) {
    go_on();
    damage = error_of(folder, [&] { train::verify_tensor_files(folder, manifest, file, files); });
  }
  if (!damage.empty()) return damage;
  return error_of(folder, [&] { train::verify_other_files(folder, manifest); });
}

}  // namespace meshloom::control
