// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/files/paths.h"

#include <algorithm>
#include <sstream>

#include "daemon/base/field_error.h"
#include "daemon/base/files.h"
#include "daemon/base/nearest_name.h"
#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

namespace fs = std::filesystem;

std::string names_of(const fs::path& roots) {
  const std::vector<fs::path> folders = data_folders(roots);
  std::string text = folders.size() == 1 ? "the data folder " : "the data folders ";
  for (std::size_t i = 0; i < folders.size(); ++i)
    text += (i == 0 ? "" : ", ") + folders[i].string();
  return text;
}

}  // namespace

fs::path followed(const fs::path& path) {
  std::error_code error;
  fs::path result = fs::absolute(path, error);
  if (!error) result = fs::weakly_canonical(result, error);
  if (error) base::throw_input_error("cannot follow", path, error.value());
  return result;
}

bool is_inside(const fs::path& path, const fs::path& root) {
  const auto [root_end, rest] = std::mismatch(root.begin(), root.end(), path.begin(), path.end());
  return root_end == root.end();
}

std::vector<fs::path> data_folders(const fs::path& roots) {
  std::vector<fs::path> folders;
  std::istringstream parts(roots.string());
  for (std::string part; std::getline(parts, part, kBetweenFolders);)
    if (!part.empty()) folders.emplace_back(part);
  return folders;
}

fs::path below_data_folders(const fs::path& name, const fs::path& roots, base::Disk& disk) {
  const std::vector<fs::path> folders = data_folders(roots);
  for (const fs::path& folder : folders)
    if (disk.has(folder / name)) return folder / name;
  return folders.empty() ? name : folders.front() / name;
}

void check_inside(const fs::path& path, const fs::path& roots, base::Disk& disk) {
  if (disk.is_remote()) return;
  const fs::path target = followed(path);
  for (const fs::path& folder : data_folders(roots))
    if (is_inside(target, followed(folder))) return;
  throw InvalidArgument(
      fmt::format("{} is at {}, outside {}: links are followed as far as folders are given with "
                  "--data-dir",
                  path.string(), target.string(), names_of(roots)),
      "INVALID_PATH", {{"path", path.string()}});
}

void check_links(const fs::path& folder, const fs::path& roots, base::Disk& disk) {
  if (disk.is_remote()) return;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (std::error_code unread; entry.is_symlink(unread)) check_inside(entry.path(), roots);
}

fs::path resolve_path(const std::string& name, const fs::path& roots, const std::string& field,
                      base::Disk& disk) {
  const Error::Metadata metadata = {{"field", field}, {"path", name}};
  const auto refuse = [&](const std::string& why) {
    throw InvalidArgument(fmt::format("{}: \"{}\" {}", field, name, why), "INVALID_PATH", metadata);
  };
  if (name.empty()) refuse("is empty");
  if (name.find('\0') != std::string::npos) refuse("holds a NUL byte");
  const fs::path given(name);
  if (std::find(given.begin(), given.end(), "..") != given.end()) refuse("must not hold \"..\"");
  return base::with_field(field, [&] {
    const fs::path full = below_data_folders(given, roots, disk);
    check_inside(full, roots, disk);
    if (!disk.has(full))
      throw NotFound(
          fmt::format("{}: \"{}\" does not exist below {}{}", field, name, names_of(roots),
                      disk.is_remote() ? "" : base::nearest_hint(full, base::Beside::kAnything)),
          "NOT_FOUND", metadata);
    return full;
  });
}

}  // namespace meshloom::train
