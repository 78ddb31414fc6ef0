// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/checkpoint/file_system.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

namespace fs = std::filesystem;

/// After this many bytes the kernel is asked to start writing them out, so that the final sync
/// finds little left.
constexpr std::size_t kWritebackBytes = std::size_t{32} << 20;

[[noreturn]] void fail(const char* what, const fs::path& path, int code) {
  const auto text = fmt::format("cannot {} {}: {}", what, path.string(), std::strerror(code));
  const Error::Metadata metadata = {{"path", path.string()}, {"errno", std::to_string(code)}};
  if (code == ENOSPC || code == EDQUOT || code == EFBIG)
    throw ResourceExhausted(text, "DISK_FULL", metadata);
  throw IoError(text, "IO_ERROR", metadata);
}

class PosixFile : public OutputFile {
 public:
  PosixFile(const fs::path& path, std::size_t expected_bytes) : path_(path) {
    file_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file_ < 0) fail("create", path, errno);
    if (expected_bytes == 0) return;
    if (::fallocate(file_, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(expected_bytes)) == 0) return;
    const int code = errno;
    if (code == EOPNOTSUPP || code == ENOSYS || code == EINTR) return;
    ::close(file_);
    fail("reserve space for", path, code);
  }
  ~PosixFile() override {
    if (file_ >= 0) ::close(file_);
  }

  void write(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t n = ::write(file_, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail("write", path_, errno);
      bytes = bytes.subspan(static_cast<std::size_t>(n));
      written_ += static_cast<std::size_t>(n);
    }
    if (written_ - started_ >= kWritebackBytes) {
      ::sync_file_range(file_, static_cast<off_t>(started_),
                        static_cast<off_t>(written_ - started_), SYNC_FILE_RANGE_WRITE);
      started_ = written_;
    }
  }

  void sync() override {
    if (::fsync(file_) != 0) fail("sync", path_, errno);
  }

  void close() override {
    const int file = std::exchange(file_, -1);
    if (::close(file) != 0) fail("close", path_, errno);
  }

 private:
  fs::path path_;
  int file_;
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
    if (error) fail("create folder", path, error.value());
  }

  void sync_directory(const fs::path& path) override {
    const int folder = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) fail("open folder", path, errno);
    const int result = ::fsync(folder);
    const int code = errno;
    ::close(folder);
    if (result != 0) fail("sync folder", path, code);
  }

  void rename(const fs::path& from, const fs::path& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) fail("rename", from, errno);
  }

  void replace_directory(const fs::path& from, const fs::path& to) override {
    if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) return;
    const int code = errno;
    if (code != EINVAL && code != ENOSYS) fail("replace", to, code);
    remove_all(to);
    rename(from, to);
  }

  void remove_all(const fs::path& path) override {
    std::error_code error;
    fs::remove_all(path, error);
    if (error) fail("remove", path, error.value());
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
