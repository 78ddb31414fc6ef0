// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/checkpoint_damage.h"

#include "daemon/train/files/checkpoint_check.h"
#include "daemon/train/files/export_digests.h"
#include "daemon/train/files/hf_folder.h"
#include "daemon/train/files/manifest.h"
#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;

/// What `look` throws of the folder as a text; empty if that is nothing.
template <typename Look>
std::string error_of(const fs::path& folder, const Look& look) {
  try {
    look();
    return {};
  } catch (const Cancelled&) {
    throw;
  } catch (const Unavailable&) {
    throw;
  } catch (const Error& error) {
    // It goes by one rename: what is there is whole.
    std::error_code ignored;
    return fs::exists(folder, ignored) ? error.what() : std::string();
  }
}

std::string find_export_damage(const fs::path& folder, bool digests,
                               const std::function<void()>& go_on) {
  train::Manifest listed;
  std::string damage = error_of(folder, [&] {
    if (auto files = train::read_export_digests(folder)) listed.other_files = *std::move(files);
    train::check_file_sizes(folder, listed);
    train::check_hf_folder(folder);
  });
  if (!digests || !damage.empty()) return damage;
  return error_of(folder, [&] { train::verify_other_files(folder, listed, go_on); });
}

}  // namespace

bool has_digests(const fs::path& folder) {
  std::error_code ignored;
  return train::is_checkpoint(folder) || fs::exists(folder / train::kExportDigestsName, ignored);
}

std::string find_damage(const fs::path& folder, bool digests, const std::function<void()>& go_on) {
  if (!train::is_checkpoint(folder)) return find_export_damage(folder, digests, go_on);
  train::Manifest manifest;
  std::string damage = error_of(folder, [&] {
    manifest = train::read_manifest(folder);
    train::check_file_sizes(folder, manifest);
  });
  if (!damage.empty() || !digests) return damage;
  return error_of(folder, [&] { train::verify_files(folder, manifest, go_on); });
}

}  // namespace meshloom::control
