// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/files/file_system.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "daemon/base/files.h"

namespace meshloom::train {
namespace {

namespace fs = std::filesystem;

/// After this many bytes the kernel is asked to start writing them out, so that the final sync
/// finds little left.
constexpr std::size_t kWritebackBytes = std::size_t{32} << 20;

class PosixFile : public OutputFile {
 public:
  PosixFile(const fs::path& path, std::size_t expected_bytes)
      : path_(path), file_(base::open_output(path, O_WRONLY | O_CREAT | O_TRUNC, 0644)) {
    if (expected_bytes == 0) return;
    const auto bytes = static_cast<off_t>(expected_bytes);
    if (::fallocate(file_.get(), FALLOC_FL_KEEP_SIZE, 0, bytes) == 0) return;
    if (errno != EOPNOTSUPP && errno != ENOSYS && errno != EINTR)
      base::throw_io_error("cannot reserve space for", path, errno);
  }

  void write(std::span<const std::byte> bytes) override {
    base::write_all(file_.get(), bytes, path_);
    written_ += bytes.size();
    if (written_ - started_ >= kWritebackBytes) {
      ::sync_file_range(file_.get(), static_cast<off_t>(started_),
                        static_cast<off_t>(written_ - started_), SYNC_FILE_RANGE_WRITE);
      started_ = written_;
    }
  }

  void sync() override { base::sync_file(file_.get(), path_); }

  void close() override {
    if (::close(file_.release()) != 0) base::throw_io_error("cannot close", path_, errno);
  }

 private:
  fs::path path_;
  base::UniqueFd file_;
  std::size_t written_ = 0;
  std::size_t started_ = 0;  ///< bytes whose writing out was started
};

class PosixFileSystem : public FileSystem {
 public:
  std::unique_ptr<OutputFile> create(const fs::path& path, std::size_t expected_bytes) override {
    return std::make_unique<PosixFile>(path, expected_bytes);
  }

  void create_directories(const fs::path& path) override {
    std::error_code error;
    fs::create_directories(path, error);
    if (error) base::throw_io_error("cannot create folder", path, error.value());
  }

  void sync_directory(const fs::path& path) override { base::sync_folder(path); }

  void rename(const fs::path& from, const fs::path& to) override { base::rename_file(from, to); }

  void replace_directory(const fs::path& from, const fs::path& to) override {
    if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) return;
    const int code = errno;
    if (code != EINVAL && code != ENOSYS) base::throw_io_error("cannot replace", to, code);
    remove_all(to);
    rename(from, to);
  }

  void remove_all(const fs::path& path) override {
    std::error_code error;
    fs::remove_all(path, error);
    if (error) base::throw_io_error("cannot remove", path, error.value());
  }
};

}  // namespace

FileSystem& posix_file_system() {
  static PosixFileSystem file_system;
  return file_system;
}

void put_in_place(FileSystem& files, const fs::path& temporary, const fs::path& target) {
  files.sync_directory(temporary);
  if (fs::exists(target)) {
    files.replace_directory(temporary, target);
    files.remove_all(temporary);
  } else {
    files.rename(temporary, target);
  }
  files.sync_directory(target.has_parent_path() ? target.parent_path() : fs::path("."));
}

}  // namespace meshloom::train
