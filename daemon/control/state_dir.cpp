// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/state_dir.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;

void make_private_folder(const fs::path& folder) {
  std::error_code error;
  if (fs::is_directory(folder, error)) return;
  fs::create_directories(folder, error);
  if (error)
    throw IoError(fmt::format("state dir {} cannot be made: {}", folder.string(), error.message()));
  fs::permissions(folder, fs::perms::owner_all, error);
}

std::string owner_of_lock(int fd) {
  char text[32] = {};
  return ::pread(fd, text, sizeof text - 1, 0) > 0 ? text : "unknown";
}

}  // namespace

StateDir::StateDir(fs::path root) : root_(fs::absolute(std::move(root))) {
  make_private_folder(root_);
  const fs::path path = root_ / "lock";
  lock_fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock_fd_ < 0)
    throw IoError(fmt::format("state dir {}: lock cannot be opened: {}", root_.string(),
                              std::strerror(errno)));
  if (::flock(lock_fd_, LOCK_EX | LOCK_NB) != 0) {
    const std::string pid = owner_of_lock(lock_fd_);
    ::close(lock_fd_);
    throw FailedPrecondition(
        fmt::format("state dir {} is in use by another meshloomd (pid {})", root_.string(), pid),
        "STATE_DIR_LOCKED", {{"pid", pid}});
  }
  const std::string pid = std::to_string(::getpid());
  if (::ftruncate(lock_fd_, 0) != 0 || ::pwrite(lock_fd_, pid.data(), pid.size(), 0) < 0) {
    const std::string why = std::strerror(errno);
    ::close(lock_fd_);
    throw IoError(fmt::format("state dir {}: lock cannot be written: {}", root_.string(), why));
  }
  fs::remove(root_ / "address");
  fs::create_directories(root_ / "jobs");
}

StateDir::~StateDir() {
  std::error_code ignored;
  if (published_) fs::remove(root_ / "address", ignored);
  ::close(lock_fd_);
}

void StateDir::publish_address(const std::string& address) {
  const fs::path next = root_ / "address.new";
  {
    std::ofstream file(next, std::ios::trunc);
    file << address << '\n';
    if (!file.flush()) throw IoError(fmt::format("{} cannot be written", next.string()));
  }
  fs::rename(next, root_ / "address");
  published_ = true;
}

fs::path log_file(const fs::path& state_dir, int rank) {
  make_private_folder(state_dir);
  const fs::path folder = state_dir / "logs";
  std::error_code error;
  fs::create_directories(folder, error);
  return folder / fmt::format("rank-{}.log", rank);
}

}  // namespace meshloom::control
