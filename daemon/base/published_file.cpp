// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/published_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "daemon/base/files.h"
#include "kernels/base/error.h"

namespace meshloom::base {
namespace {

namespace fs = std::filesystem;

UniqueFd open_hidden(const fs::path& hidden, const fs::path& path) {
  // Never the file that is there: it could be a link, a pipe, or another name of some file.
  ::unlink(hidden.c_str());
  UniqueFd fd(::open(hidden.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!fd) throw_io_error("cannot write", path, errno);
  return fd;
}

bool is_unsupported(int error) { return error == EINVAL || error == ENOSYS || error == EOPNOTSUPP; }

/// 0, or the error; EEXIST if something has the name `to`.
int rename_to_free_name(const fs::path& from, const fs::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return 0;
  if (!is_unsupported(errno)) return errno;
  return link_to_free_name(from, to);
}

}  // namespace

// Some file systems, such as NFS, know no rename that replaces nothing; a second name does the same
// there. Some know neither (object stores, SMB): what can be done there is to look.
int link_to_free_name(const fs::path& from, const fs::path& to) {
  if (::link(from.c_str(), to.c_str()) == 0) {
    ::unlink(from.c_str());
    return 0;
  }
  if (errno != EPERM && !is_unsupported(errno)) return errno;
  struct stat there = {};
  if (::lstat(to.c_str(), &there) == 0) return EEXIST;
  return ::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
}

fs::path PublishedFile::hidden_path(const fs::path& path) {
  return path.parent_path() / ("." + path.filename().string() + ".new");
}

PublishedFile::PublishedFile(fs::path path)
    : path_(std::move(path)), hidden_(hidden_path(path_)), fd_(open_hidden(hidden_, path_)) {}

PublishedFile::~PublishedFile() {
  if (!is_done_ && has_hidden_name()) ::unlink(hidden_.c_str());
}

bool PublishedFile::has_hidden_name() const {
  struct stat own = {}, named = {};
  return ::fstat(fd_.get(), &own) == 0 && ::lstat(hidden_.c_str(), &named) == 0 &&
         own.st_dev == named.st_dev && own.st_ino == named.st_ino;
}

void PublishedFile::write(std::span<const std::byte> bytes) { write_all(fd_.get(), bytes, path_); }

void PublishedFile::write_at(std::string_view bytes, std::uint64_t offset) {
  write_all_at(fd_.get(), bytes, offset, path_);
}

void PublishedFile::sync() { sync_data(fd_.get(), path_); }

void PublishedFile::commit(Existing existing) {
  sync_file(fd_.get(), path_);
  if (!has_hidden_name())
    throw Aborted(fmt::format("another process writes {}", shown(path_)), "FILE_BUSY",
                  {{"path", shown(path_)}});
  if (existing == Existing::kReplace) {
    if (::rename(hidden_.c_str(), path_.c_str()) != 0)
      throw_io_error("cannot replace", path_, errno);
  } else if (const int error = rename_to_free_name(hidden_, path_); error != 0) {
    if (error == EPERM || error == EACCES) throw_input_error("cannot name", path_, error);
    if (error != EEXIST) throw_io_error("cannot name", path_, error);
    throw AlreadyExists(fmt::format("{} is there already", shown(path_)), "ALREADY_EXISTS",
                        {{"path", shown(path_)}});
  }
  is_done_ = true;
  sync_folder(path_.has_parent_path() ? path_.parent_path() : fs::path("."));
}

}  // namespace meshloom::base
