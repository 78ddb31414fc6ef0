// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/lost_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

#include "daemon/base/files.h"
#include "daemon/base/input_file.h"
#include "daemon/base/timestamp.h"
#include "daemon/base/unique_fd.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLost = "lost";
constexpr const char* kSetMarker = "journal-id";

/// Hands over what is no folder: the path itself, or all below it, until `visit` returns false.
/// False if it did.
bool visit_files(const fs::path& path,
                 const std::function<bool(const fs::path&, const struct stat&)>& visit) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return true;
  if (!S_ISDIR(status.st_mode)) return visit(path, status);
  std::error_code error;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error))
    if (!visit_files(entry->path(), visit)) return false;
  return true;
}

bool is_hole(const fs::path& file, const struct stat& status) {
  if (!S_ISREG(status.st_mode)) return false;
  if (status.st_size == 0) return true;
  const base::UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  return fd && ::lseek(fd.get(), 0, SEEK_DATA) < 0 && errno == ENXIO;
}

/// The first of DATE, DATE-2, ... below `lost` that is `fit`.
fs::path dated(const fs::path& lost, const std::function<bool(const fs::path&)>& fit) {
  const std::string date = base::now_rfc3339().substr(0, std::string("2026-01-31").size());
  fs::path folder = lost / date;
  for (int number = 2; !fit(folder); ++number) folder = lost / fmt::format("{}-{}", date, number);
  return folder;
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

void move_below(const fs::path& lost, const fs::path& state_dir, const fs::path& path) {
  const fs::path place = path.lexically_relative(state_dir);
  const fs::path target =
      dated(lost,
            [&](const fs::path& folder) {
              return !is_there(folder / kSetMarker) && !is_there(folder / place);
            }) /
      place;
  fs::create_directories(target.parent_path());
  base::rename_file(path, target);
}

}  // namespace

std::vector<fs::path> entries_of(const fs::path& folder,
                                 const std::function<bool(const std::string& name)>& which) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error))
    if (!which || which(entry->path().filename().string())) found.push_back(entry->path());
  std::sort(found.begin(), found.end());
  return found;
}

bool holds_bytes(const fs::path& path) {
  return !visit_files(
      path, [](const fs::path& file, const struct stat& status) { return is_hole(file, status); });
}

FolderSize size_of(const std::vector<fs::path>& paths) {
  FolderSize size;
  std::set<std::pair<dev_t, ino_t>> seen;
  for (const fs::path& path : paths)
    visit_files(path, [&](const fs::path&, const struct stat& status) {
      ++size.files;
      if (S_ISREG(status.st_mode) && seen.emplace(status.st_dev, status.st_ino).second)
        size.bytes += status.st_size;
      return true;
    });
  return size;
}

void LostFolder::take(const std::vector<fs::path>& paths, std::string_view where) const {
  std::vector<fs::path> kept;
  for (const fs::path& path : paths) {
    if (holds_bytes(path)) {
      kept.push_back(path);
      continue;
    }
    std::error_code error;
    fs::remove_all(path, error);
    if (error) spdlog::warn("{} is empty and stays: {}", path.string(), error.message());
  }
  if (kept.empty()) return;
  const FolderSize size = size_of(kept);
  std::size_t moved = 0;
  for (const fs::path& path : kept) {
    try {
      move_below(root_ / kLost, root_, path);
      ++moved;
    } catch (const std::exception& error) {
      spdlog::error("{} belongs to nothing that the journal knows and stays: {}", path.string(),
                    error.what());
    }
  }
  if (moved > 0)
    spdlog::warn(
        "{} of what lies in {} belongs to nothing that the journal knows ({} files, {} bytes): it "
        "is "
        "kept in {}, where nothing uses or removes it",
        moved, where, size.files, size.bytes, (root_ / kLost).string());
}

fs::path LostFolder::make_set(const std::string& journal_id) const {
  const fs::path folder =
      dated(root_ / kLost, [](const fs::path& place) { return !is_there(place); });
  fs::create_directories(folder);
  base::replace_file(folder / kSetMarker, journal_id);
  return folder;
}

void LostFolder::forget_set(const Set& set) const {
  std::vector<fs::path> left = entries_of(set.folder);
  std::erase(left, set.folder / kSetMarker);
  if (!left.empty()) return;
  std::error_code ignored;
  fs::remove(set.folder / kSetMarker, ignored);
  fs::remove(set.folder, ignored);
}

std::vector<LostFolder::Set> LostFolder::sets() const {
  constexpr std::uint64_t kLongestId = 256;
  std::vector<Set> found;
  for (const fs::path& folder : entries_of(root_ / kLost)) {
    if (!is_there(folder / kSetMarker)) continue;
    try {
      const base::InputFile marker(folder / kSetMarker, base::InputFile::Links::kRefuse);
      found.push_back({folder, marker.read_text(kLongestId)});
    } catch (const Error& error) {
      spdlog::warn("whose {} was cannot be told: {}", folder.string(), error.what());
    }
  }
  return found;
}

std::vector<LostFolder::Held> LostFolder::list() const {
  std::vector<Held> all;
  for (const fs::path& folder : entries_of(root_ / kLost)) {
    std::vector<fs::path> held = entries_of(folder);
    std::erase(held, folder / kSetMarker);
    const FolderSize size = size_of(held);
    if (size.files > 0)
      all.push_back({folder.lexically_relative(root_).string(), size.files, size.bytes});
  }
  return all;
}

}  // namespace meshloom::control
