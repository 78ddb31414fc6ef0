// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/files/unfinished_folder.h"

#include <string>
#include <string_view>
#include <vector>

#include "daemon/train/files/manifest.h"

namespace meshloom::train {
namespace {

// Names of a checkpoint's folder begin so while it is written, and while it is removed.
constexpr std::string_view kTemporaryPrefix = ".tmp-", kDiscardedPrefix = ".old-";

}  // namespace

namespace fs = std::filesystem;

fs::path unfinished_folder(const fs::path& checkpoint) {
  return checkpoint.parent_path() /
         (std::string(kTemporaryPrefix) + checkpoint.filename().string());
}

bool is_unfinished_folder(const fs::path& folder) {
  return folder.filename().string().starts_with(kTemporaryPrefix);
}

void discard_folder(FileSystem& files, const fs::path& folder) {
  const fs::path hidden =
      folder.parent_path() / (std::string(kDiscardedPrefix) + folder.filename().string());
  files.remove_all(hidden);
  files.rename(folder, hidden);
  files.sync_directory(folder.parent_path());
  files.remove_all(hidden);
}

void remove_leftovers(FileSystem& files, const fs::path& directory) {
  if (!fs::is_directory(directory)) return;
  std::vector<fs::path> leftovers;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    for (const std::string_view prefix : {kTemporaryPrefix, kDiscardedPrefix})
      if (name.starts_with(prefix) && step_of_folder_name(name.substr(prefix.size())))
        leftovers.push_back(entry.path());
  }
  for (const fs::path& path : leftovers) files.remove_all(path);
}

}  // namespace meshloom::train
