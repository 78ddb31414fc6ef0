// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/data_output.h"

#include <unistd.h>

#include <cerrno>
#include <vector>

#include "daemon/base/field_error.h"
#include "daemon/base/files.h"
#include "daemon/base/published_file.h"
#include "daemon/base/utf8.h"
#include "daemon/control/access/access_error.h"
#include "daemon/control/stores/names.h"
#include "daemon/train/files/paths.h"
#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;

/// File systems take 255 bytes, and the hidden name of a file that is written has five more.
constexpr std::size_t kLongestFileName = 250;

}  // namespace

std::string own_data_folder(const Identity& who) {
  if (who.is_admin()) return "";
  if (!is_folder_name(who.name))
    throw AccessError::denied(
        fmt::format("\"{}\" can be no folder below the daemon's --data-dir, so that it has none to "
                    "write into; expected [A-Za-z0-9][A-Za-z0-9._-]{{0,62}}",
                    base::shown(who.name)),
        "NO_DATA_FOLDER", {{"name", who.name}});
  return who.name;
}

fs::path DataOutputs::find(const Asked& asked) const {
  const fs::path given(asked.name);
  const fs::path name = given.filename();
  if (asked.name.find('\0') != std::string::npos || name.empty() || name == "." || name == "..")
    base::refuse_field(asked.field, "\"{}\" names no file below the daemon's --data-dir",
                       base::shown(asked.name));
  if (name.native().size() > kLongestFileName)
    base::refuse_field(asked.field, "the name of the file has {} bytes, expected at most {}",
                       name.native().size(), kLongestFileName);
  // As files are called that are not whole yet, and those that lists of a folder leave out.
  if (name.native().front() == '.')
    base::refuse_field(asked.field, "\"{}\" is the name of a hidden file: it begins with a dot",
                       base::shown(asked.name));
  if (base::printable_text(asked.name, std::string::npos, false) != asked.name)
    base::refuse_field(asked.field, "\"{}\" has control characters, or bytes that are not UTF-8",
                       base::shown(asked.name));
  // A file that has the name already is the one that jobs find, in whichever folder.
  const fs::path found = train::below_data_folders(given, data_dir_);
  std::error_code unknown;
  const fs::path above = (fs::exists(found, unknown) ? found : given).parent_path();
  const fs::path folder = folder_of(above, asked);
  if (train::is_inside(train::followed(folder), train::followed(state_dir_)))
    base::refuse_field(asked.field, "\"{}\" is in the daemon's state folder", asked.name);
  check_below(folder, asked);
  if (fs::exists(folder, unknown) && ::access(folder.c_str(), W_OK | X_OK) != 0)
    base::throw_input_error("cannot write into", folder, errno);
  return (folder / name).lexically_normal();
}

void DataOutputs::check_below(const fs::path& folder, const Asked& asked) const {
  if (asked.below.empty()) return;
  for (const fs::path& root : train::data_folders(data_dir_))
    if (train::is_inside(train::followed(folder), train::followed(root / asked.below))) return;
  throw AccessError::denied(
      fmt::format("{}: \"{}\" does not lie below \"{}/\", where you may write", asked.field,
                  base::shown(asked.name), asked.below),
      "NOT_OWNER", {{"field", asked.field}, {"folder", asked.below}});
}

fs::path DataOutputs::folder_of(const fs::path& above, const Asked& asked) const {
  constexpr std::size_t kMostMissing = 16;
  std::vector<fs::path> missing;  // the last first
  fs::path there = above;
  std::error_code unknown;
  while (asked.makes_folders && !there.empty() &&
         !fs::exists(train::below_data_folders(there, data_dir_), unknown)) {
    const fs::path name = there.filename();
    if (name.empty() || name.native().front() == '.' || missing.size() == kMostMissing)
      base::refuse_field(asked.field, "\"{}\" is no name for a folder that is to be made",
                         base::shown(above.string()));
    missing.push_back(name);
    there = there.parent_path();
  }
  const std::string parent = there.empty() ? "." : there.string();
  fs::path folder = train::resolve_path(parent, data_dir_, asked.field);
  if (!fs::is_directory(folder, unknown))
    base::refuse_field(asked.field, "\"{}\" is no folder", parent);
  if (!missing.empty() && ::access(folder.c_str(), W_OK | X_OK) != 0)
    base::throw_input_error("cannot make a folder in", folder, errno);
  for (auto name = missing.rbegin(); name != missing.rend(); ++name) folder /= *name;
  return folder;
}

void DataOutputs::check(const fs::path& path, const Asked& asked) {
  std::error_code unknown;
  const fs::file_status status = fs::symlink_status(path, unknown);
  if (fs::is_directory(status)) base::refuse_field(asked.field, "\"{}\" is a folder", asked.name);
  if (fs::exists(status) && !asked.overwrite) refuse_existing(asked.field, path);
}

fs::path DataOutputs::look(const Asked& asked) const {
  const fs::path path = find(asked);
  check(path, asked);
  return path;
}

DataOutputs::Place DataOutputs::claim(const Asked& asked) {
  const fs::path path = find(asked);
  std::error_code error;
  if (asked.makes_folders) fs::create_directories(path.parent_path(), error);
  if (error) base::throw_io_error("cannot make", path.parent_path(), error.value());
  // What is there is looked at once nobody else writes it.
  Place place{path, take(train::followed(path.parent_path()) / path.filename())};
  check(path, asked);
  return place;
}

void DataOutputs::refuse_existing(const std::string& field, const fs::path& path) {
  throw AlreadyExists(
      fmt::format("{}: {} is there already; overwrite it (--overwrite), or name another file",
                  field, path.string()),
      "ALREADY_EXISTS", {{"field", field}, {"path", path.string()}});
}

Hold DataOutputs::take(const fs::path& path) {
  const std::lock_guard lock(mutex_);
  const fs::path hidden = base::PublishedFile::hidden_path(path);
  if (taken_.contains(path) || taken_.contains(hidden))
    throw Aborted(fmt::format("another call writes {}", path.string()), "FILE_BUSY",
                  {{"path", path.string()}});
  taken_.insert({path, hidden});
  return Hold([this, path, hidden] {
    const std::lock_guard giving_back(mutex_);
    taken_.erase(path);
    taken_.erase(hidden);
  });
}

std::string DataOutputs::name_for_jobs(const fs::path& path) const {
  for (const fs::path& folder : train::data_folders(data_dir_)) {
    const fs::path name = path.lexically_relative(folder.lexically_normal());
    if (name.empty() || *name.begin() == "..") continue;
    if (train::below_data_folders(name, data_dir_).lexically_normal() == path) return name.string();
  }
  return path.string();
}

}  // namespace meshloom::control
