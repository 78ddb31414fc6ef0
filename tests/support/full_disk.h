// SPDX-License-Identifier: Apache-2.0
// Disks on which nothing more can be written.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/support/temp_folder.h"

namespace meshloom::test {

/// While it lives no file of this process can become longer than `bytes`: writes fail as on a disk
/// with an error.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(std::uintmax_t bytes) : handler_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit full{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &full);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  sighandler_t handler_;
  rlimit before_{};
};

/// A file system of its own of a few MiB. Only root can make one: tests skip where it is not
/// `mounted`.
class SmallDisk {
 public:
  explicit SmallDisk(int mebibytes)
      : mounted_(::mount("tmpfs", folder_.path().c_str(), "tmpfs", 0,
                         ("size=" + std::to_string(mebibytes) + "m").c_str()) == 0) {}
  ~SmallDisk() {
    if (mounted_) ::umount2(folder_.path().c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  bool mounted() const { return mounted_; }
  std::filesystem::path operator/(const std::string& name) const { return folder_.path() / name; }

  /// Takes every byte that is left, as another program would.
  void fill() const {
    const int fd = ::open((*this / "filler").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    const std::string block(4096, 'f');
    while (::write(fd, block.data(), block.size()) > 0) {
    }
    ::close(fd);
  }
  void free() const { std::filesystem::remove(*this / "filler"); }

 private:
  TempFolder folder_;
  bool mounted_;
};

}  // namespace meshloom::test
