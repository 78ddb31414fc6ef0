// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/disk.h"

#include <algorithm>

#include "daemon/base/file_stamp.h"
#include "daemon/base/files.h"

namespace meshloom::base {
namespace {

namespace fs = std::filesystem;

class OwnDisk final : public Disk {
 public:
  bool is_remote() const override { return false; }

  FileKind kind(const fs::path& path) override {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (!fs::exists(status)) return FileKind::kNone;
    if (fs::is_directory(status)) return FileKind::kFolder;
    return fs::is_regular_file(status) ? FileKind::kFile : FileKind::kOther;
  }

  InputFile open(const fs::path& path) override { return InputFile(path); }

  std::vector<std::string> list(const fs::path& folder) override {
    std::vector<std::string> names;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder, error))
      names.push_back(entry.path().filename().string());
    if (error && error != std::errc::no_such_file_or_directory)
      throw_input_error("cannot list", folder, error.value());
    return names;
  }

  std::vector<fs::path> files_below(const fs::path& folder) override {
    std::vector<fs::path> files;
    std::error_code error;
    fs::recursive_directory_iterator entry(folder, error);
    for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
      if (entry->path().filename().string().starts_with('.')) {
        entry.disable_recursion_pending();
        continue;
      }
      std::error_code broken;  // a link that leads nowhere
      const auto status = entry->status(broken);
      if (broken) throw_input_error("cannot follow", entry->path(), broken.value());
      if (fs::is_regular_file(status)) files.push_back(entry->path());
    }
    if (error) throw_input_error("cannot list", folder, error.value());
    std::sort(files.begin(), files.end());
    return files;
  }

  std::optional<std::string> stamp(const fs::path& path) override { return file_stamp(path); }
};

}  // namespace

Disk& own_disk() {
  static OwnDisk disk;
  return disk;
}

}  // namespace meshloom::base
