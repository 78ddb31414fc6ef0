// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/blob_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <functional>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <set>
#include <vector>

#include "daemon/base/files.h"
#include "daemon/control/stores/lost_folder.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;

constexpr unsigned kReadOnly = 0400;

void remove_if_there(const fs::path& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT)
    base::throw_io_error("cannot remove", path, errno);
}

using Knows = std::function<bool(const std::string& name)>;

std::vector<fs::path> files_in(const fs::path& folder, bool known, const Knows& knows) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().filename() != "incoming" && knows(entry.path().filename().string()) == known)
      found.push_back(entry.path());
  return found;
}

ino_t inode_of(const fs::path& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 ? status.st_ino : 0;
}

}  // namespace

BlobFolder::BlobFolder(fs::path root) : root_(std::move(root)) {
  std::error_code error;
  fs::create_directories(root_ / "incoming", error);
  if (error) throw IoError(fmt::format("{} cannot be made: {}", root_.string(), error.message()));
}

bool BlobFolder::has_blob(const std::string& sha256, std::int64_t size) const {
  struct stat status {};
  return ::lstat(blob(sha256).c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         status.st_size == size;
}

void BlobFolder::create_incoming(const std::string& id, std::int64_t size) const {
  const fs::path path = incoming(id);
  const base::UniqueFd file =
      base::open_output(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
  if (::ftruncate(file.get(), size) != 0) {
    const int error = errno;
    remove_if_there(path);
    base::throw_io_error("cannot make room for", path, error);
  }
  base::sync_file(file.get(), path);
  base::sync_folder(path.parent_path());
}

base::UniqueFd BlobFolder::open_incoming(const std::string& id) const {
  const fs::path path = incoming(id);
  base::UniqueFd file = base::open_output(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) base::throw_io_error("cannot look at", path, errno);
  if (!S_ISREG(status.st_mode) || status.st_nlink != 1)
    throw DataLoss(fmt::format("{} was replaced: it is no file of its own", path.string()),
                   "UPLOAD_FILE_REPLACED", {{"upload", id}});
  return file;
}

void BlobFolder::remove_incoming(const std::string& id) const { remove_if_there(incoming(id)); }

void BlobFolder::keep(const std::string& id, const std::string& sha256) const {
  const fs::path from = incoming(id), to = blob(sha256);
  if (::chmod(from.c_str(), kReadOnly) != 0) base::throw_io_error("cannot close", from, errno);
  if (::link(from.c_str(), to.c_str()) != 0 && errno != EEXIST)
    base::throw_io_error("cannot link", to, errno);
  base::sync_folder(root_);
}

void BlobFolder::remove_blob(const std::string& sha256) const {
  remove_if_there(blob(sha256));
  base::sync_folder(root_);
}

void BlobFolder::sweep(const Known& known) const {
  const auto knows_blob = [&](const std::string& sha256) { return known.knows_blob(sha256); };
  const auto knows_upload = [&](const std::string& id) { return known.knows_upload(id); };
  std::set<ino_t> uploads;
  for (const fs::path& path : files_in(root_ / "incoming", true, knows_upload))
    uploads.insert(inode_of(path));
  std::vector<fs::path> unknown = files_in(root_, false, knows_blob);
  std::erase_if(unknown, [&](const fs::path& path) {
    const bool second_name = uploads.contains(inode_of(path));
    if (second_name) remove_if_there(path);
    return second_name;
  });
  const LostFolder lost(root_.parent_path());
  lost.take(unknown, "blobs");
  lost.take(files_in(root_ / "incoming", false, knows_upload), "blobs/incoming");
}

std::int64_t BlobFolder::available_bytes() const {
  struct statvfs status {};
  if (::statvfs(root_.c_str(), &status) != 0)
    base::throw_io_error("cannot look at the room of", root_, errno);
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<std::int64_t>(status.f_bavail),
                             static_cast<std::int64_t>(status.f_frsize), &bytes))
    return std::numeric_limits<std::int64_t>::max();
  return bytes;
}

}  // namespace meshloom::control
